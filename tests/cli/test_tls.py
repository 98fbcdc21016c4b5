"""TLS in the commands, on a recording of three clients of which two wrote a key log."""

from __future__ import annotations

import gzip
import json
import struct
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import lz4.frame
import pytest
import zstandard
from click.testing import CliRunner

from kdissect.capture.reader import open_capture
from kdissect.cli.main import kdissect
from kdissect.limits import DEFAULT
from kdissect.net.tcp import Segments
from tests.cli.commands import run
from tests.frames import request, response
from tests.rings import write
from tests.tls.sessions import TlsSettings, TlsTalk
from tests.tls.test_decryption import kafka

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

SAMPLES = Path(__file__).parents[2] / "samples"
CAPTURE, KEYS = str(SAMPLES / "tls.pcap"), SAMPLES / "tls.keys"
TRUTH = json.loads((SAMPLES / "tls.truth.json").read_text())
LAST = 1_000_000
WITH_KEYS = "kp-tls", "aio-tls"


def secrets() -> Iterator[str]:
    for line in KEYS.read_text().splitlines():
        if not line.startswith("#"):
            yield line.split()[2]


def pcapng_with_secrets(path: Path, after: int = 0) -> str:
    """The capture as pcapng, with its key log in a Decryption Secrets Block after so many packets."""
    keys = KEYS.read_bytes()
    padded = keys + bytes(-len(keys) % 4)

    def block(kind: int, body: bytes) -> bytes:
        return struct.pack("<II", kind, len(body) + 12) + body + struct.pack("<I", len(body) + 12)

    capture = Path(CAPTURE).read_bytes()
    nanoseconds = capture[:4] == b"\x4d\x3c\xb2\xa1"
    (link_type,) = struct.unpack_from("<I", capture, 20)
    resolution = struct.pack("<HHB3xHH", 9, 1, 9 if nanoseconds else 6, 0, 0)
    out = block(0x0A0D0D0A, struct.pack("<IHHq", 0x1A2B3C4D, 1, 0, -1))
    out += block(1, struct.pack("<HHI", link_type, 0, 0) + resolution)
    sealed = block(10, struct.pack("<II", 0x544C534B, len(keys)) + padded)
    at, number = 24, 0
    while at < len(capture):
        if number == after:
            out += sealed
        number += 1
        seconds, fraction, length, full = struct.unpack_from("<4I", capture, at)
        ticks = seconds * (10**9 if nanoseconds else 10**6) + fraction
        data = capture[at + 16 : at + 16 + length]
        head = struct.pack("<5I", 0, ticks >> 32, ticks & 0xFFFFFFFF, length, full)
        out += block(6, head + data + bytes(-length % 4))
        at += 16 + length
    path.write_bytes(out + sealed if number <= after else out)
    return str(path)


def test_what_the_clients_say(capsys: pytest.CaptureFixture[str]) -> None:
    done = run(capsys, "read", "--json", "--tls-keylog", str(KEYS), CAPTURE)
    rows = [json.loads(line) for line in done.out.splitlines()]
    shown = [(row["client_id"], row["client_port"], row["api"], row["api_version"]) for row in rows]
    expected = [
        (each["client_id"], each["client_port"], each["api"], each["version"])
        for each in TRUTH["requests"]
        if each["client_id"] in WITH_KEYS
    ]
    assert sorted(shown) == sorted(expected)
    assert "2 TLS connections not decrypted: the key log has no secret for this client random" in done.err


def test_records(capsys: pytest.CaptureFixture[str]) -> None:
    done = run(capsys, "records", "--json", "--tls-keylog", str(KEYS), CAPTURE)
    values = [
        (row["topic"], row["partition"], row["key"], row["value"]) for row in map(json.loads, done.lines)
    ]
    expected = [
        (each["topic"], each["partition"], each["key"], each["value"])
        for each in TRUTH["produced"]
        if each["client_id"] in WITH_KEYS
    ]
    assert sorted(values, key=str) == sorted(expected, key=str)


@pytest.mark.parametrize("options", [["-j", "2"], ["--names", "whole"], ["--names", "window"]])
def test_all_ways_show_the_same(capsys: pytest.CaptureFixture[str], options: list[str]) -> None:
    one = run(capsys, "read", "--json", "--tls-keylog", str(KEYS), CAPTURE)
    other = run(capsys, "read", "--json", *options, "--tls-keylog", str(KEYS), CAPTURE)
    if "whole" in options:  # the first pass knows the cluster of a connection from its start
        rows, expected = ([json.loads(line) for line in each.lines] for each in (other, one))
        for row in (*rows, *expected):
            del row["cluster_id"]
        assert rows == expected
    else:
        assert other.out == one.out


@pytest.mark.parametrize("after", [0, 1, 100])
@pytest.mark.parametrize("options", [[], ["-j", "2"], ["--names", "whole"]])
def test_secrets_anywhere_in_a_pcapng_file(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, after: int, options: list[str]
) -> None:
    path = pcapng_with_secrets(tmp_path / "tls.pcapng", after)
    done = run(capsys, "read", *options, path)
    assert done.lines == run(capsys, "read", *KEYED).lines
    assert len(done.lines) == 8


@pytest.mark.parametrize("command", [["read", "-"], ["live", "--no-summary", "-"]])
def test_secrets_in_a_pipe(tmp_path: Path, command: list[str]) -> None:
    content = Path(pcapng_with_secrets(tmp_path / "tls.pcapng")).read_bytes()
    done = subprocess.run(
        [sys.executable, "-m", "kdissect", *command], input=content, capture_output=True, check=True
    )
    assert len(done.stdout.splitlines()) == 8


@pytest.mark.parametrize("compress", [bytes, gzip.compress, zstandard.compress, lz4.frame.compress])
@pytest.mark.parametrize("after", [0, 8, LAST])
def test_secrets_in_a_compressed_file(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, compress: Callable[[bytes], bytes], after: int
) -> None:
    path = tmp_path / "tls.pcapng"
    path.write_bytes(compress(Path(pcapng_with_secrets(path, after)).read_bytes()))
    expected = run(capsys, "read", *KEYED).lines
    assert len(expected) == 8
    assert run(capsys, "read", str(path)).lines == expected
    assert run(capsys, "read", "--tls-keylog", str(path), CAPTURE).lines == expected
    piped = CliRunner().invoke(kdissect, ["read", "-"], input=path.read_bytes())
    assert piped.stdout.splitlines() == expected


def test_secrets_in_a_pipe_after_those_of_a_key_log(tmp_path: Path) -> None:
    path = pcapng_with_secrets(tmp_path / "tls.pcapng", after=8)
    (tmp_path / "keys.log").touch()
    command = [sys.executable, "-m", "kdissect", "read", "--tls-keylog", str(tmp_path / "keys.log"), "-"]
    done = subprocess.run(command, input=Path(path).read_bytes(), capture_output=True, check=True)
    assert len(done.stdout.splitlines()) == 8


@pytest.mark.parametrize("place", [b"KSLT", b"\n\0\0\0"])
def test_damaged_secrets(capsys: pytest.CaptureFixture[str], tmp_path: Path, place: bytes) -> None:
    """Of the wrong kind, or with a wrong length: the packets are those of the capture."""
    path = Path(pcapng_with_secrets(tmp_path / "tls.pcapng"))
    content = bytearray(path.read_bytes())
    at = content.index(place)
    content[at : at + 8] = place + b"\xff\xff\xff\x0f"
    path.write_bytes(content)
    done = run(capsys, "read", str(path))
    assert "Traceback" not in done.err
    assert not any(secret in done.out + done.err for secret in secrets())


def test_the_environment(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SSLKEYLOGFILE", str(KEYS))
    done = run(capsys, "read", CAPTURE)
    assert len(done.lines) == 8
    assert f"decrypting TLS with {KEYS} (SSLKEYLOGFILE)" in done.err


def test_a_directory_of_key_logs(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    (tmp_path / "one.keys").write_bytes(KEYS.read_bytes())
    assert len(run(capsys, "read", "--tls-keylog", str(tmp_path), CAPTURE).lines) == 8


def test_check_says_what_was_decrypted(capsys: pytest.CaptureFixture[str]) -> None:
    done = run(capsys, "check", "--json", "--tls-keylog", str(KEYS), CAPTURE)
    connections = json.loads(done.out)["connections"]
    no_secret = "the key log has no secret for this client random"
    assert connections["tls_decrypted"] == 4
    assert connections["tls_not_decrypted"] == {no_secret: 2}
    text = run(capsys, "check", "--tls-keylog", str(KEYS), CAPTURE).out
    assert "4 TLS connections decrypted with the key log." in text
    assert f"2 TLS connections cannot be read (2: {no_secret})." in text


@pytest.mark.parametrize("options", [[], ["-j", "2"]])
def test_the_sessions_of_connections(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, options: list[str]
) -> None:
    arguments = [*options, "--tls-keylog", str(KEYS), CAPTURE]
    run(
        capsys,
        "export",
        "--tables",
        "connections",
        "--format",
        "jsonl",
        *arguments,
        "-o",
        str(tmp_path / "out"),
    )
    lines = [
        line
        for path in (tmp_path / "out" / "connections").glob("*.jsonl")
        for line in path.read_text().splitlines()
    ]
    rows = list(map(json.loads, lines))
    assert {(row["protocol"], row["tls_version"]) for row in rows} == {
        ("Kafka", "TLS 1.3"),
        ("TLS", "TLS 1.3"),
    }
    document = json.loads(run(capsys, "summary", "--connections", "--json", *arguments).out)
    assert {name for row in document["client_connections"] for name in row["tls"]} == {
        f"{row['tls_version']} {row['tls_cipher']}" for row in rows if row["protocol"] == "Kafka"
    }


KEYED = ("--tls-keylog", str(KEYS), CAPTURE)


def test_the_sessions_are_known_without_a_key_log(capsys: pytest.CaptureFixture[str]) -> None:
    """The hellos are in clear."""
    with_keys = json.loads(run(capsys, "check", "--json", *KEYED).out)["connections"]["tls"]
    without = json.loads(run(capsys, "check", "--json", CAPTURE).out)["connections"]["tls"]
    session = {"endpoint": "127.0.0.1:9093", "version": "TLS 1.3", "cipher": "TLS_AES_256_GCM_SHA384"}
    assert without == [session | {"decrypted": False, "connections": 6}]
    assert with_keys == [
        session | {"decrypted": True, "connections": 4},
        session | {"decrypted": False, "connections": 2},
    ]
    assert "TLS_AES_256_GCM_SHA384  no                   6" in run(capsys, "check", CAPTURE).out


def exchanges(capsys: pytest.CaptureFixture[str], *arguments: str) -> list[tuple[object, ...]]:
    rows = map(json.loads, run(capsys, "read", "--json", *arguments).lines)
    return sorted(
        (row["client_id"], row["client_port"], row["api"], row["correlation_id"], row["response_bytes"])
        for row in rows
    )


@pytest.mark.parametrize("option", ["--with-keys", "--decrypted"])
def test_a_file_that_can_be_read_without_the_key_log(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, option: str
) -> None:
    written = str(tmp_path / "out.pcapng")
    done = run(capsys, "read", "-w", written, option, *KEYED)
    assert "4 connections written" in done.err
    assert exchanges(capsys, written) == exchanges(capsys, *KEYED)


def test_only_the_secrets_of_selected_connections(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    written = tmp_path / "out.pcapng"
    run(capsys, "read", "--client", "kp-tls", "-w", str(written), "--with-keys", *KEYED)
    content = written.read_bytes()
    count = sum(secret.encode() in content for secret in secrets())
    assert 0 < count < len(list(secrets()))
    assert {row[0] for row in exchanges(capsys, str(written))} == {"kp-tls"}


def test_the_secrets_of_the_input_are_not_copied(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    path, written = pcapng_with_secrets(tmp_path / "tls.pcapng"), tmp_path / "out.pcapng"
    run(capsys, "read", "-w", str(written), path)
    content = written.read_bytes()
    assert len(content) > 10_000
    assert not any(secret.encode() in content for secret in secrets())


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--with-keys", *KEYED], "--with-keys and --decrypted need -w FILE"),
        (["-w", "-", "--with-keys", CAPTURE], "--with-keys and --decrypted need a key log (--tls-keylog)"),
        (["-w", "-", "--with-keys", "--decrypted", *KEYED], "use either --with-keys or --decrypted"),
    ],
)
def test_options_that_do_not_fit(
    capsys: pytest.CaptureFixture[str], arguments: list[str], message: str
) -> None:
    done = run(capsys, "read", *arguments)
    assert done.status == 2
    assert message in done.err


@pytest.mark.tshark
@pytest.mark.parametrize("option", ["--with-keys", "--decrypted"])
def test_tshark_reads_what_was_written(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, option: str
) -> None:
    written = str(tmp_path / "out.pcapng")
    run(capsys, "read", "-w", written, option, *KEYED)
    decode_as = "tls.port==9093,kafka" if option == "--with-keys" else "tcp.port==9093,kafka"
    fields = ["-Y", "kafka.correlation_id", "-T", "fields", "-e", "kafka.correlation_id"]
    command = ["tshark", "-r", written, "-d", decode_as, *fields]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert len(done.stdout.split()) == 2 * len(exchanges(capsys, *KEYED))


@pytest.mark.parametrize("missing", [40, 41, 47, 55])
def test_what_is_written_of_a_session_entered_in_the_middle(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, missing: int
) -> None:
    """The rest of the record that had begun before is no plaintext."""
    settings = TlsSettings()
    talk = kafka(settings, rounds=8, mss=1448)
    keys, capture, written = (tmp_path / name for name in ("keys", "in.pcapng", "out.pcapng"))
    keys.write_bytes(b"".join(settings.key_log))
    write(capture, talk.packets[missing:])
    options = "--decrypted", "--show-secrets", "--tls-keylog", str(keys)
    done = run(capsys, "read", "-w", str(written), *options, str(capture))
    assert "1 connection written" in done.err, done.err
    with open_capture(str(written)) as opened:
        segments = [segment for segment in map(Segments(DEFAULT).feed, opened) if segment is not None]
    payloads = [segment.payload for segment in segments if segment.payload]
    assert payloads
    assert all(payload in talk.sent[0] or payload in talk.sent[1] for payload in payloads)


@pytest.mark.parametrize(
    "options", [["-j", "2"], ["-j", "3"], ["--names", "whole"], ["-j", "3", "--names", "whole"]]
)
def test_resumed_sessions_without_lines(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, options: list[str]
) -> None:
    """As Go writes its key log: other connections have the line of the session."""
    settings = TlsSettings("TLS 1.2", client_certificate=True)
    talks = [TlsTalk(settings).opens()]
    keys, capture = tmp_path / "keys", tmp_path / "in.pcap"
    keys.write_bytes(b"".join(settings.key_log))
    session = talks[0].ends_of_tls[0].get_session()
    for place in range(6):
        start = {"client": ("10.0.0.1", 50000 + place), "start_ns": talks[-1].time_ns + 1}
        talks.append(TlsTalk(settings, session=session, **start).opens())
        talks[-1].says(0, request(18, 0, {})).says(1, response(18, 0, {})).finish()
    write(capture, [packet for talk in talks for packet in talk.packets])
    arguments = ["--tls-keylog", str(keys), str(capture)]
    one = run(capsys, "read", "--json", *arguments)
    assert [json.loads(line)["principal"] for line in one.lines] == ["User:CN=broker-1.example"] * 6
    assert run(capsys, "read", "--json", *options, *arguments).out == one.out


PASSWORD = b"extremely-secret"


@pytest.mark.parametrize(
    ("options", "is_written"),
    [
        ([], True),
        (["--with-keys"], False),
        (["--decrypted"], False),
        (["--with-keys", "--show-secrets"], True),
        (["--decrypted", "--show-secrets"], True),
    ],
)
def test_credentials_inside_tls(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, options: list[str], is_written: bool
) -> None:
    """They are as secret as the keys with which they can be read."""
    settings = TlsSettings()
    talk = TlsTalk(settings).opens()
    talk.says(0, request(17, 1, {"mechanism": "PLAIN"}))
    talk.says(1, response(17, 1, {"mechanisms": ["PLAIN"]}))
    talk.says(0, request(36, 2, {"auth_bytes": b"\0alice\0" + PASSWORD}, correlation_id=2))
    talk.says(1, response(36, 2, correlation_id=2)).finish()
    keys, capture, written = tmp_path / "keys", tmp_path / "in.pcapng", tmp_path / "out.pcapng"
    keys.write_bytes(b"".join(settings.key_log))
    write(capture, talk.packets)
    done = run(capsys, "read", "-w", str(written), "--tls-keylog", str(keys), *options, str(capture))
    assert ("1 connection omitted" in done.err) != is_written
    assert (written.stat().st_size > 500) == is_written
    content = written.read_bytes()
    assert (PASSWORD in content) == (is_written and "--decrypted" in options)
    secret = settings.key_log[-1].split()[2]
    assert (secret in content) == (is_written and "--with-keys" in options)


@pytest.mark.parametrize("command", ["read", "summary", "check"])
def test_the_preference_of_tshark(capsys: pytest.CaptureFixture[str], command: str) -> None:
    preference = run(capsys, command, "-o", f"tls.keylog_file:{KEYS}", CAPTURE)
    assert preference == run(capsys, command, *KEYED)
    done = run(capsys, command, "-o", "kafka.tcp.port:9093", CAPTURE)
    assert done.status == 2
    assert "use tls.keylog_file:FILE" in done.err


def test_the_preference_beside_a_directory(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "kdissect", "live", "--no-summary", "-o", f"tls.keylog_file:{KEYS}", "-"]
    capture = Path(CAPTURE).read_bytes()
    done = subprocess.run(command, input=capture, capture_output=True, check=True)
    assert len(done.stdout.splitlines()) == 8
    command[-1:] = ["-o", str(tmp_path / "tables"), "--tables", "exchanges", "-"]
    subprocess.run(command, input=capture, capture_output=True, check=True)
    (table,) = (tmp_path / "tables" / "exchanges").glob("**/*.jsonl")
    assert len(table.read_text().splitlines()) == 8
    command[-1:] = ["-o", str(tmp_path / "other"), "-"]
    done = subprocess.run(command, input=capture, capture_output=True, check=False)
    assert done.returncode == 2
    assert b"use only one DIR" in done.stderr


def test_without_a_key_log(capsys: pytest.CaptureFixture[str]) -> None:
    done = run(capsys, "read", CAPTURE)
    assert done.out == ""
    assert "decrypt with a key log (--tls-keylog)" in done.err


@pytest.mark.parametrize("command", ["read", "records", "summary", "check"])
def test_a_missing_key_log(capsys: pytest.CaptureFixture[str], command: str) -> None:
    done = run(capsys, command, "--tls-keylog", "no-such-file", CAPTURE)
    assert done.status == 2
    assert done.err.endswith("--tls-keylog no-such-file: no such file or directory\n")


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
def test_no_output_has_secrets(capsys: pytest.CaptureFixture[str], arguments: list[str]) -> None:
    done = run(capsys, *arguments, "--tls-keylog", str(KEYS), CAPTURE)
    for secret in secrets():
        assert secret not in done.out + done.err
        assert bytes.fromhex(secret).hex(" ") not in done.out


@pytest.mark.tshark
def test_the_same_as_tshark(capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["-o", f"tls.keylog_file:{KEYS}", "-d", "tls.port==9093,kafka", "-Y", "kafka.correlation_id"]
    done = subprocess.run(
        [
            "tshark",
            "-r",
            CAPTURE,
            *arguments,
            "-T",
            "fields",
            "-e",
            "frame.number",
            "-e",
            "kafka.correlation_id",
        ],
        capture_output=True,
        text=True,
        check=True,
    )
    seen = sorted(tuple(map(int, line.split())) for line in done.stdout.splitlines())
    rows = map(json.loads, run(capsys, "read", "--json", "--tls-keylog", str(KEYS), CAPTURE).lines)
    requests = {(row["packet"], row["correlation_id"]) for row in rows}
    assert requests <= set(seen)
    assert len(seen) == 2 * len(requests)  # tshark's have the responses too
