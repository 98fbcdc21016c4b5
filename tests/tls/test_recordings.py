"""Recordings of Apache Kafka's own TLS listener, and of OpenSSL in front of it, judged by what the clients
wrote down, by tshark, and by the same traffic in clear.
"""

from __future__ import annotations

import json
import subprocess
from collections import Counter
from pathlib import Path

import pytest

from tests.cli.commands import run

DIRECTORY = Path(__file__).parents[2] / "samples" / "tls"
CAPTURE, KEYS = str(DIRECTORY / "kafka-4-tls.pcap.gz"), DIRECTORY / "kafka-4-tls.keys"
TRUTH = json.loads((DIRECTORY / "kafka-4-tls.truth.json").read_text())
(PORT,) = TRUTH["ports"]
WHOLE = ("--tls-keylog", str(KEYS), CAPTURE)  # with what passes in clear beside TLS
ARGUMENTS = ("--port", str(PORT), *WHOLE)
WITHOUT_LOG = "java"  # clients that do not log their requests


def test_the_requests_of_all_clients(capsys: pytest.CaptureFixture[str]) -> None:
    rows = [json.loads(line) for line in run(capsys, "read", "--json", *ARGUMENTS).lines]
    shown = Counter(
        (row["client_id"], row["api"], row["api_version"], row["correlation_id"])
        for row in rows
        if not row["client_id"].startswith(WITHOUT_LOG)
    )
    assert shown == Counter(
        (each["client_id"], each["api"], each["version"], each["correlation_id"])
        for each in TRUTH["requests"]
        if each["client_id"] != "setup"  # on the port without TLS
    )
    assert {row["principal"] for row in rows} == {None, "User:alice", "User:bob"}


def test_the_records(capsys: pytest.CaptureFixture[str]) -> None:
    rows = map(json.loads, run(capsys, "records", "--json", "--produced", *ARGUMENTS).lines)
    shown = Counter((row["client_id"], row["topic"], row["partition"], row["offset"]) for row in rows)
    produced = TRUTH["produced"]
    assert shown == Counter(
        (each["client_id"], each["topic"], each["partition"], each["offset"]) for each in produced
    )


def test_the_ciphers(capsys: pytest.CaptureFixture[str]) -> None:
    document = json.loads(run(capsys, "summary", "--connections", "--json", *ARGUMENTS).out)
    assert {row["client"]: list(row["tls"]) for row in document["client_connections"]} == {
        "rd-tls": ["TLS 1.3 TLS_AES_256_GCM_SHA384"],
        "rd-reader": ["TLS 1.3 TLS_AES_256_GCM_SHA384"],
        "kp-1.2": ["TLS 1.2 TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384"],
        "aio-1.3": ["TLS 1.3 TLS_AES_256_GCM_SHA384"],
        "java-1.3-gcm": ["TLS 1.3 TLS_AES_256_GCM_SHA384"],
        "java-1.3-chacha": ["TLS 1.3 TLS_CHACHA20_POLY1305_SHA256"],
        "java-1.2-gcm": ["TLS 1.2 TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256"],
        "java-1.2-cbc": ["TLS 1.2 TLS_ECDHE_RSA_WITH_AES_256_CBC_SHA384"],
    }


def test_every_connection_is_decrypted(capsys: pytest.CaptureFixture[str]) -> None:
    document = json.loads(run(capsys, "check", "--json", "--tls-keylog", str(KEYS), CAPTURE).out)
    connections = document["connections"]
    assert (connections["tls_decrypted"], connections["tls_not_decrypted"]) == (17, {})


@pytest.mark.parametrize(
    "arguments",
    [
        ["read", "-V"],
        ["read", "-x"],
        ["read", "--json"],
        ["records", "--json"],
        ["summary", "--json"],
        ["check"],
    ],
)
def test_no_output_has_secrets_or_passwords(capsys: pytest.CaptureFixture[str], arguments: list[str]) -> None:
    done = run(capsys, *arguments, "--tls-keylog", str(KEYS), CAPTURE)
    written = done.out + done.err
    for line in KEYS.read_text().splitlines():
        secret = line.split()[-1].rpartition(":")[2]
        assert secret.lower() not in written.lower()
        assert bytes.fromhex(secret)[:8].hex(" ") not in written
    for password in ("wonderland-7", "looking-glass-9"):
        assert password not in written
        assert password.encode()[:6].hex(" ") not in written


@pytest.mark.parametrize("option", ["--with-keys", "--decrypted"])
def test_what_is_written_can_be_read(capsys: pytest.CaptureFixture[str], tmp_path: Path, option: str) -> None:
    written = str(tmp_path / "out.pcapng")
    assert run(capsys, "read", "-w", written, option, *WHOLE).err.count("omitted") == 1  # SASL inside
    run(capsys, "read", "-w", written, option, "--show-secrets", *WHOLE)
    ours = [json.loads(line) for line in run(capsys, "read", "--json", *WHOLE).lines]
    again = [json.loads(line) for line in run(capsys, "read", "--json", written).lines]
    keys = ("client_id", "client_port", "api", "correlation_id", "response_bytes", "principal")
    assert Counter(tuple(row[key] for key in keys) for row in again) == Counter(
        tuple(row[key] for key in keys) for row in ours
    )


def rows_of(directory: Path, table: str) -> list[str]:
    """Of an exported table, without where they were captured."""
    rows = [
        json.loads(line)
        for path in (directory / table).rglob("*.jsonl")
        for line in path.read_text().splitlines()
    ]
    return sorted(
        json.dumps({name: row[name] for name in row.keys() - {"capture", "packet"}}, sort_keys=True)
        for row in rows
    )


def test_stories_and_tables_are_those_of_the_same_packets_in_clear(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    clear = str(tmp_path / "clear.pcapng")
    run(capsys, "read", "-w", clear, "--decrypted", "--show-secrets", *WHOLE)
    for subject in ("topic:sealed", "client:java-1.2-cbc"):
        story = run(capsys, "story", subject, *WHOLE)
        assert story.lines
        assert story.out == run(capsys, "story", subject, clear).out
    sealed, plain = tmp_path / "sealed", tmp_path / "plain"
    run(capsys, "export", "--records", "-o", str(sealed), *WHOLE)
    run(capsys, "export", "--records", "-o", str(plain), clear)
    for table in ("exchanges", "records", "partitions", "groups", "topic_ids"):
        assert rows_of(sealed, table) == rows_of(plain, table) != []


@pytest.mark.tshark
@pytest.mark.parametrize("option", [None, "--decrypted"])
def test_the_same_as_tshark(capsys: pytest.CaptureFixture[str], tmp_path: Path, option: str | None) -> None:
    capture, decode_as = CAPTURE, ("-d", f"tcp.port=={PORT},tls", "-d", f"tls.port=={PORT},kafka")
    if option is not None:
        capture, decode_as = str(tmp_path / "out.pcapng"), ("-d", f"tcp.port=={PORT},kafka")
        run(capsys, "read", "-w", capture, option, "--show-secrets", *ARGUMENTS)
    command = ["tshark", "-r", capture, "-o", f"tls.keylog_file:{KEYS}", *decode_as]
    command += [
        "-Y",
        f"kafka.correlation_id && tcp.port=={PORT}",
        "-T",
        "fields",
        "-e",
        "kafka.correlation_id",
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    rows = [json.loads(line) for line in run(capsys, "read", "--json", *ARGUMENTS).lines]
    ids = [
        str(row["correlation_id"])
        for row in rows
        for size in ("request", "response")
        if row[f"{size}_bytes"] and row[f"{size}_size"] is None  # tshark leaves out incomplete ones
    ]
    assert Counter(done.stdout.replace(",", "\n").split()) == Counter(ids)


FRONT = str(DIRECTORY / "kafka-4-front.pcapng")
FRONT_TRUTH = json.loads((DIRECTORY / "kafka-4-front.truth.json").read_text())
ENCRYPTED, CLEAR = FRONT_TRUTH["ports"]
OF_CONNECTION = {
    "connection", "number", "packet", "time", "request_time", "client_ip", "client_port", "broker_port",
    "community_id", "broker", "end", "exchange", "text",
}  # fmt: skip


def on_port(capsys: pytest.CaptureFixture[str], command: str, port: int, *options: str) -> list[str]:
    """The rows of a port as text, without times and what names the connection."""
    rows = map(json.loads, run(capsys, command, "--json", *options, "--port", str(port), FRONT).lines)
    kept = [
        {name: value for name, value in row.items() if name not in OF_CONNECTION and not name.endswith("_us")}
        for row in rows
    ]
    return sorted(json.dumps(row, sort_keys=True) for row in kept)


@pytest.mark.parametrize("options", [("read",), ("read", "-j", "2"), ("records",), ("story", "topic:sealed")])
def test_what_is_inside_is_what_passes_in_clear(
    capsys: pytest.CaptureFixture[str], options: tuple[str, ...]
) -> None:
    command, *more = options
    inside, clear = (on_port(capsys, command, port, *more) for port in (ENCRYPTED, CLEAR))
    assert inside == clear
    assert len(inside) > 12


def test_the_records_through_the_front(capsys: pytest.CaptureFixture[str]) -> None:
    done = run(capsys, "records", "--json", "--produced", "--port", str(ENCRYPTED), FRONT)
    shown = Counter((row["topic"], row["partition"], row["offset"]) for row in map(json.loads, done.lines))
    produced = FRONT_TRUTH["produced"]
    assert shown == Counter((each["topic"], each["partition"], each["offset"]) for each in produced)


def test_the_sessions_of_the_front(capsys: pytest.CaptureFixture[str]) -> None:
    sessions = json.loads(run(capsys, "check", "--json", FRONT).out)["connections"]["tls"]
    assert {(each["version"], each["cipher"], each["decrypted"]) for each in sessions} == {
        ("TLS 1.2", "TLS_RSA_WITH_AES_128_CCM", True),
        ("TLS 1.2", "TLS_RSA_WITH_AES_256_CCM_8", True),
        ("TLS 1.2", "TLS_RSA_WITH_AES_256_CBC_SHA256", True),
        ("TLS 1.2", "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256", True),
        ("TLS 1.3", "TLS_AES_128_GCM_SHA256", True),
        ("TLS 1.3", "TLS_AES_256_GCM_SHA384", True),
    }


@pytest.mark.tshark
def test_tshark_sees_renegotiations_key_updates_and_the_same_requests(
    capsys: pytest.CaptureFixture[str],
) -> None:
    def fields(name: str, shown: str, *options: str) -> list[str]:
        command = ["tshark", "-r", FRONT, *options, "-Y", shown, "-T", "fields", "-e", name]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        return done.stdout.replace(",", "\n").split()

    hellos = Counter(fields("tcp.stream", "tls.handshake.type == 1"))
    assert max(hellos.values()) > 2
    assert fields("tcp.stream", "tls.handshake.type == 24")
    decode_as = ("-d", f"tcp.port=={ENCRYPTED},tls", "-d", f"tls.port=={ENCRYPTED},kafka")
    ids = fields("kafka.correlation_id", f"kafka.correlation_id && tcp.port=={ENCRYPTED}", *decode_as)
    rows = [json.loads(line) for line in run(capsys, "read", "--json", "--port", str(ENCRYPTED), FRONT).lines]
    assert Counter(ids) == Counter(str(row["correlation_id"]) for row in rows for _ in range(2))


@pytest.mark.parametrize(
    ("name", "clients", "lines"),
    [
        ("kafka-4-tls-1.0", {"java-1.0-cbc-128", "java-1.0-cbc-256"}, 8),
        ("kafka-4-tls-resumed", {"go-1.2", "node-1.3"}, 6),
    ],
)
def test_the_records_of_other_recordings(
    name: str, clients: set[str], lines: int, capsys: pytest.CaptureFixture[str]
) -> None:
    """RSA key exchange of TLS 1.0; and sessions that Go has resumed, for which it writes no line."""
    truth = json.loads((DIRECTORY / f"{name}.truth.json").read_text())
    keys, capture = DIRECTORY / f"{name}.keys", DIRECTORY / f"{name}.pcap"
    assert len(keys.read_text().splitlines()) == lines
    done = run(capsys, "records", "--json", "--produced", "--tls-keylog", str(keys), str(capture))
    rows = list(map(json.loads, done.lines))
    assert {row["client_id"] for row in rows} == clients
    assert Counter((row["topic"], row["partition"], row["offset"], row["key"]) for row in rows) == Counter(
        (each["topic"], each["partition"], each["offset"], each["key"]) for each in truth["produced"]
    )
    document = json.loads(run(capsys, "check", "--json", "--tls-keylog", str(keys), str(capture)).out)
    assert all(each["decrypted"] for each in document["connections"]["tls"])
