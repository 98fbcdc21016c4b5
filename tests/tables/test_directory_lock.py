from __future__ import annotations

import os
import signal
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from kdissect.errors import OutputError
from kdissect.tables.table_files import LOCK, locked

if TYPE_CHECKING:
    from pathlib import Path

HOLD = """
import sys
from pathlib import Path
from kdissect.tables.table_files import locked
with locked(Path(sys.argv[1])):
    print("has it", flush=True)
    sys.stdin.read()
"""


def test_a_directory_is_created_and_otherwise_left_alone(tmp_path: Path) -> None:
    with locked(tmp_path / "a" / "b"):
        assert [path.name for path in (tmp_path / "a" / "b").iterdir()] == [LOCK]
    assert not (tmp_path / "a" / "b").exists()
    with locked(tmp_path):
        pass
    with locked(tmp_path / "kept"):
        (tmp_path / "kept" / "x").write_text("")
    assert [path.name for path in (tmp_path / "kept").iterdir()] == ["x"]


def test_one_at_a_time(tmp_path: Path) -> None:
    message = rf"is in use by another kdissect \(process {os.getpid()}\); use a new directory"
    with locked(tmp_path), pytest.raises(OutputError, match=message), locked(tmp_path):
        pass
    with locked(tmp_path):
        pass


def test_the_lock_of_a_killed_program_does_no_harm(tmp_path: Path) -> None:
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert holder.stdin is not None
    assert holder.stdout is not None
    assert holder.stdout.readline() == b"has it\n"
    with pytest.raises(OutputError, match=f"process {holder.pid}"), locked(tmp_path):
        pass
    holder.send_signal(signal.SIGKILL)
    holder.wait()
    holder.stdin.close()
    holder.stdout.close()
    assert (tmp_path / LOCK).exists()
    with locked(tmp_path):
        pass
    assert not (tmp_path / LOCK).exists()


def test_a_lock_that_was_removed_is_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Between open and flock the previous holder ended and removed the file."""
    import fcntl

    flock, times = fcntl.flock, []

    def late(number: int, how: int) -> None:
        times.append(number)
        if len(times) == 1:
            (tmp_path / LOCK).unlink()
        flock(number, how)

    monkeypatch.setattr("kdissect.tables.table_files.fcntl.flock", late)
    with locked(tmp_path):
        assert len(times) == 2
        assert (tmp_path / LOCK).exists()


def test_a_directory_that_cannot_be_created(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(OutputError, match=r"cannot write .*/file/x"), locked(tmp_path / "file" / "x"):
        pass
