"""Credentials that real clients used, searched for in every output, in 13 encodings. They are known from how
the samples were recorded, found in the raw bytes of the files, or in messages of other libraries: what
kdissect redacts plays no part in it. The logs of Spark are searched in tests/spark/test_credentials.py.
"""

from __future__ import annotations

import base64
import gzip
import hashlib
import hmac
import json
import re
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote

import pytest
from click.testing import CliRunner
from prometheus_client import generate_latest

from kdissect import dissect, open_capture
from kdissect.cli.main import kdissect, main
from kdissect.cli.terminal import FAILED
from kdissect.limits import DEFAULT
from kdissect.stats.facts import Facts
from kdissect.stats.pulse import Pulse
from kdissect.text.metrics import Metrics
from samples.golden import captures, name_of
from tests.attack import client_messages
from tests.captures import pcap
from tests.terminal import Terminal
from tests.test_secrets import exported

if TYPE_CHECKING:
    from collections.abc import Iterator

# Passwords and salts of samples/README.md, as far as they are on the wire.
PASSWORDS = (
    b"wonderland-7", b"looking-glass-9", b"wrong-pass", b"alice-secret", b"through-the-looking-glass",
    b"salt-of-alice", b"salt-of-bob", b"salt-of-carol", b"of-no-use",
)  # fmt: skip
SCRAM = re.compile(rb"(?:,p|,s|[^a-z]v)=([A-Za-z0-9+/]{20,}={0,2})")
"""Proofs, salts and signatures (RFC 5802)."""
TOKEN = re.compile(rb"[A-Za-z0-9_-]{10,}\.[A-Za-z0-9_-]{10,}\.[A-Za-z0-9_-]*")
"""A JSON web token, as in SASL/OAUTHBEARER."""
TOKEN_ID = re.compile(rb"[A-Za-z0-9_-]{22}")
"""Of a delegation token, whose secret is derived from it."""
BY_DEFAULT = ("kafka-4-sasl", "tansu-sasl", "kafka-4-kraft")
OTHERS = (
    "kafka-0.10.2", "kafka-0.11", "kafka-1.1", "kafka-2.8", "kafka-3.9-zookeeper", "kafka-3.9",
    "kafka-4-basics", "kafka-4-cluster", "tansu-admin",
)  # fmt: skip
SALTED = hashlib.pbkdf2_hmac("sha256", b"through-the-looking-glass", b"salt-of-carol", 4096)

COMMANDS = [
    ("read",), ("read", "-V", "--full", "--records"), ("read", "-x", "--full", "--records"),
    ("read", "--json", "--records"), ("read", "--csv", "--records"), ("read", "-q"),
    ("records", "-V", "--full"), ("records", "--json"), ("records", "--csv"),
    ("summary", "--groups", "--lag", "--versions", "--transactions", "--findings"),
    ("summary", "--json"), ("check",), ("check", "--json"), ("read", "--debug"),
    ("story", "--json", "client:*"),
]  # fmt: skip


def encodings(secret: bytes) -> Iterator[str]:
    """What the secret would look like in an output, without white space."""
    text = secret.decode("latin-1")
    yield text
    yield secret.hex()
    yield secret.hex().upper()
    for lead in range(3):  # wherever it begins in what is encoded; the characters that only it determines
        skip = (0, 2, 3)[lead]
        yield base64.b64encode(bytes(lead) + secret).decode()[skip : -4 or None]
    yield base64.urlsafe_b64encode(secret).decode()[:-4]
    yield "\0".join(text)  # UTF-16
    yield text[::-1]
    yield ",".join(map(str, secret))
    yield "".join(f"\\x{byte:02x}" for byte in secret)
    yield json.dumps(text)[1:-1]
    yield quote(secret, safe="")


def plain(path: Path) -> bytes:
    data = path.read_bytes()
    return gzip.decompress(data) if path.suffix == ".gz" else data


def credentials(path: Path) -> set[bytes]:
    data = plain(path)
    tokens = (hmac.digest(b"of-no-use", each, "sha512") for each in set(TOKEN_ID.findall(data)))
    known = {each for each in (*PASSWORDS, SALTED, *tokens) if each in data}
    return known | {each for pattern in (SCRAM, TOKEN) for each in pattern.findall(data)}


PATHS = {name_of(path): path for path in captures()}


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A capture of messages that kio and kafka-python wrote."""
    path = tmp_path_factory.mktemp("written") / "written.pcap"
    path.write_bytes(pcap((packet.time_ns, packet.data) for packet in client_messages.conversation().packets))
    assert all(secret in path.read_bytes() for secret in client_messages.SECRETS)
    return path


@pytest.fixture(autouse=True)
def _debug_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    """``--debug`` sets the variable for child processes, too."""
    monkeypatch.setenv("KDISSECT_DEBUG", "0")


def leaked(text: str, secrets: set[bytes]) -> list[bytes]:
    squeezed = "".join(text.split())
    return [secret for secret in secrets if any(form in squeezed for form in encodings(secret))]


def test_the_samples_have_credentials() -> None:
    known = {name: secrets for name, path in PATHS.items() if (secrets := credentials(path))}
    assert known.keys() == {*BY_DEFAULT, *OTHERS}
    assert sum(map(len, known.values())) > 100
    assert all(len(list(encodings(secret))) == 13 for secrets in known.values() for secret in secrets)


@pytest.mark.parametrize("encoding", range(13))
def test_each_encoding_is_recognized(encoding: int) -> None:
    """The search can fail."""
    secret = b"wonderland-7"
    text = [*encodings(b"before" + secret + b"behind")][encoding]
    assert leaked(f"... {text} ...", {secret})


@pytest.mark.parametrize(
    "name", [*BY_DEFAULT, *(pytest.param(name, marks=pytest.mark.deep) for name in OTHERS)]
)
def test_no_output_has_a_credential_of_a_client(name: str, tmp_path: Path) -> None:
    assert_no_output_has(credentials(PATHS[name]), PATHS[name], tmp_path)


def test_no_output_has_one_that_others_wrote(written: Path, tmp_path: Path) -> None:
    assert_no_output_has(client_messages.SECRETS, written, tmp_path)


def test_with_show_secrets_they_are_there(written: Path) -> None:
    result = CliRunner().invoke(kdissect, ["read", "--json", "--show-secrets", str(written)])
    assert set(leaked(result.output, client_messages.SECRETS)) == client_messages.SECRETS


def assert_no_output_has(secrets: set[bytes], path: Path, directory: Path) -> None:
    for command in COMMANDS:
        result = CliRunner().invoke(kdissect, [*command, str(path)], catch_exceptions=False)
        assert result.exit_code == 0
        assert leaked(result.output, secrets) == [], command
    for form in ("jsonl", "parquet"):
        texts = exported(path, directory / form, "--format", form)
        assert leaked("".join(texts.values()), secrets) == [], form


BUGS = {
    "kdissect.exchanges.kafka_connection.user_of": "read",
    "kdissect.kafka.secrets.carries_secrets": "read --json",
    "kdissect.text.tree.ExchangeTree.feed": "read -V",
    "kdissect.tables.lines.JsonLines.feed": "read --json",
    "kdissect.stats.summarizer.Summarizer.feed": "summary",
}
"""Where a bug is put, and the command that has it."""


@pytest.mark.parametrize("where", BUGS)
@pytest.mark.parametrize("debug", [(), ("--debug",)])
def test_no_report_of_a_bug_has_one(
    where: str,
    debug: tuple[str, ...],
    written: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("KDISSECT_PURE", "1")
    monkeypatch.setattr(where, lambda *_, **__: [][0])
    assert main([*BUGS[where].split(), *debug, str(written)]) == FAILED
    captured = capsys.readouterr()
    assert ("Traceback" in captured.err) == bool(debug)
    assert leaked(captured.out + captured.err, client_messages.SECRETS) == []


@pytest.mark.parametrize("name", ["kafka-4-sasl", "tansu-sasl", "written"])
def test_neither_metrics_nor_the_dashboard_have_one(name: str, written: Path, tmp_path: Path) -> None:
    path = written if name == "written" else PATHS[name]
    secrets = client_messages.SECRETS if name == "written" else credentials(path)
    pulse = Pulse()
    metrics = Metrics(DEFAULT, pulse.now, lambda: (0, 0))
    with open_capture(path) as packets:
        for exchange in dissect(packets):
            facts = Facts(exchange)
            pulse.feed(facts)
            metrics.feed(facts)
    assert leaked(generate_latest(metrics.registry).decode(), secrets) == []
    file = tmp_path / "plain.pcap"
    file.write_bytes(plain(path))
    with Terminal("live", "-", "--top", size=(200, 50), stdin=str(file)) as terminal:
        for key in "123456789":
            terminal.press(key)
            terminal.shows("quit")
        terminal.press("q")
        terminal.ends()
        assert leaked(terminal.output.decode(), secrets) == []


def test_no_output_has_the_secrets_of_a_key_log() -> None:
    keys = Path("samples/tls.keys")
    lines = [line.split() for line in keys.read_bytes().splitlines() if not line.startswith(b"#")]
    secrets = {bytes.fromhex(secret.decode()) for _, _, secret in lines} | {b"wonderland-7"}
    for command in COMMANDS:
        arguments = [*command, "--tls-keylog", str(keys), "samples/tls.pcap"]
        result = CliRunner().invoke(kdissect, arguments, catch_exceptions=False)
        assert result.exit_code == 0
        assert leaked(result.output, secrets) == [], command
