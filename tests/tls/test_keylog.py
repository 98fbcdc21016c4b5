from __future__ import annotations

import pytest

from kdissect.errors import CaptureError
from kdissect.tls.keylog import MASTER, TRAFFIC, KeyLog, read_key_logs

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
