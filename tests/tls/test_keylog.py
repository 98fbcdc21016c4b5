from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING

import pytest

from kdissect.errors import CaptureError
from kdissect.tls.keylog import MASTER, TRAFFIC, KeyLog, follow_key_logs, read_key_logs

if TYPE_CHECKING:
    from pathlib import Path

RANDOM, SECRET, OTHER = "ab" * 32, "cd" * 48, "ef" * 48


def log_of(text: str) -> KeyLog:
    log = KeyLog()
    log.add(text.encode())
    return log


@pytest.mark.parametrize("end", ["\n", "\r\n", "", " \n"])
@pytest.mark.parametrize("upper", [True, False])
def test_spellings(end: str, upper: bool) -> None:
    digits = (RANDOM.upper(), SECRET.upper()) if upper else (RANDOM, SECRET)
    log = log_of(f"# a comment\nCLIENT_RANDOM {digits[0]} {digits[1]}{end}")
    assert log.labelled(bytes.fromhex(RANDOM), MASTER) == [bytes.fromhex(SECRET)]


def test_all_kinds() -> None:
    log = log_of(
        f"RSA Session-ID:0102 Master-Key:{SECRET}\nRSA 0102030405060708 {SECRET}\n"
        f"CLIENT_TRAFFIC_SECRET_0 {RANDOM} {SECRET}\nCLIENT_TRAFFIC_SECRET_1 {RANDOM} {OTHER}\n"
        f"SERVER_TRAFFIC_SECRET_0 {RANDOM} {OTHER}\n"
    )
    assert log.of_session(b"\1\2") == [bytes.fromhex(SECRET)]
    assert log.of_encrypted(bytes(range(1, 9))) == [bytes.fromhex(SECRET)]
    assert log.labelled(bytes.fromhex(RANDOM), TRAFFIC[0]) == [bytes.fromhex(SECRET)]
    assert list(log.traffic_secrets(1)) == [(bytes.fromhex(RANDOM), bytes.fromhex(OTHER))]


def test_contradictions_are_all_kept_the_latest_first() -> None:
    log = log_of(f"CLIENT_RANDOM {RANDOM} {SECRET}\n" * 3 + f"CLIENT_RANDOM {RANDOM} {OTHER}\n")
    assert log.labelled(bytes.fromhex(RANDOM), MASTER) == [bytes.fromhex(OTHER), bytes.fromhex(SECRET)]


@pytest.mark.parametrize(
    "line",
    [
        f"CLIENT_RANDOM {RANDOM} {SECRET[:-1]}x",
        f"CLIENT_RANDOM {RANDOM[:-2]} {SECRET}",
        f"CLIENT_RANDOM {RANDOM} {SECRET}a",  # an odd number of digits
        f"RSA Session-ID:{RANDOM[:-1]} Master-Key:{SECRET}",
        "RSA x y",
        "\0\n\xff",
    ],
)
def test_foreign_lines_are_ignored(line: str) -> None:
    assert not len(log_of(line + "\n"))


def test_no_secret_in_a_repr() -> None:
    assert SECRET not in repr(log_of(f"CLIENT_RANDOM {RANDOM} {SECRET}\n"))


def test_a_file_that_does_not_exist() -> None:
    with pytest.raises(CaptureError, match="no-such-file: No such file"):
        read_key_logs(["no-such-file"])


LINES = (
    f"CLIENT_RANDOM {RANDOM} {SECRET}\nRSA Session-ID:{RANDOM} Master-Key:{SECRET}\n"
    f"RSA {RANDOM[:16]} {SECRET}\nCLIENT_TRAFFIC_SECRET_0 {RANDOM} {OTHER}\r\n"
    f"# comment\nSERVER_HANDSHAKE_TRAFFIC_SECRET {RANDOM} {OTHER}\n"
)


@pytest.mark.parametrize("seeds", [range(500), pytest.param(range(500, 50_000), marks=pytest.mark.deep)])
def test_garbage(seeds: range) -> None:
    for seed in seeds:
        random = Random(seed)
        text = bytearray(LINES.encode())
        for _ in range(random.randrange(1, 8)):
            place = random.randrange(len(text))
            if random.random() < 0.5:
                text[place] = random.choice(b"\n\r \t0aZ:\0\xff")
            else:
                del text[place : place + random.randrange(1, 100)]
            text += random.randbytes(random.randrange(20))
        log = KeyLog()
        log.add(bytes(text))
        assert len(log) <= 6


def test_lines_of_a_session() -> None:
    """What is written can be read."""
    log = log_of(LINES)
    again = KeyLog()
    again.add(log.lines(bytes.fromhex(RANDOM)))
    assert again.lines(bytes.fromhex(RANDOM)) == log.lines(bytes.fromhex(RANDOM))
    assert len(again) == 1


def test_a_file_that_grows_and_is_truncated(tmp_path: Path) -> None:
    path = tmp_path / "keys.log"
    first, second = (f"CLIENT_RANDOM {number * 32} {SECRET}\n" for number in ("01", "02"))
    path.write_text(first[:40])
    log = follow_key_logs([str(path)])
    assert not len(log)
    path.write_text(first)
    assert log.poll()
    assert not log.poll()
    path.write_text(second[:-30])  # shorter: another program has begun anew
    assert not log.poll()
    path.write_text(second)
    assert log.poll()
    assert len(log) == 2
    log.close()
    assert not log.can_grow
