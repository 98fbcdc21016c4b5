"""As root, ``live -i`` gives up its privileges once the interfaces are open: both of its processes."""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from kdissect.capture.privileges import User, _unreadable, check_output, chosen_user
from kdissect.cli.terminal import INTERRUPTED, USAGE
from kdissect.errors import UsageError
from tests.cli.commands import run
from tests.cli.live_process import Live
from tests.frames import PRODUCE, request, response
from tests.loopback import Client, Pair, broker, listens, makes_interfaces
from tests.record_batches import Item, batch
from tests.tls.sessions import TlsSettings, TlsTalk

if TYPE_CHECKING:
    from collections.abc import Iterator

NOBODY = pwd.getpwnam("nobody")
OTHER = User("nobody", NOBODY.pw_uid, NOBODY.pw_gid)
WARNING = "kdissect: warning: still running as root, but without capabilities; use -Z USER to switch users\n"
SETS = ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb")

# Python may be in root's home, which nobody else can read. Then this process and its children get a home with
# nothing but Python in it.
ONLY_PYTHON = """
set -e
old=$(mktemp -d) && mount --bind "$1" "$old" && mount -t tmpfs -o mode=755 tmpfs "$1"
mkdir -p "$1/$2" && mount --bind "$old/$2" "$1/$2" && shift 2 && exec "$@"
"""

as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root has privileges to give up")


@pytest.fixture
def directory() -> Iterator[Path]:
    """A directory that everybody can reach; tmp_path is in one that only root can."""
    path = Path(tempfile.mkdtemp(prefix="kdissect-test-"))
    path.chmod(0o755)
    yield path
    shutil.rmtree(path)


def prefix() -> list[str]:
    """What lets another user read Python."""
    blocked = _unreadable(OTHER)
    if blocked is None:
        return []
    home = Path.home()
    if not Path(blocked).is_relative_to(home) or home.stat().st_mode & 0o001 or not shutil.which("unshare"):
        pytest.skip(f"nobody cannot read {blocked}")
    python = Path(sys.base_prefix).relative_to(home).parts[0]
    return ["unshare", "--mount", "sh", "-c", ONLY_PYTHON, "sh", str(home), python]


def started(*arguments: str, before: tuple[str, ...] | list[str] = (), **variables: str) -> Live:
    command = [*before, sys.executable, "-m", "kdissect", *arguments]
    pipe = subprocess.PIPE
    return Live(subprocess.Popen(command, stdout=pipe, stderr=pipe, env=os.environ | variables))


def as_user(way: str) -> tuple[list[str], tuple[str, ...], dict[str, str], User]:
    """How a command gets to run as a user: what is before it, its options and variables; and the user."""
    if way == "root":
        return [], (), {}, User("root", 0, 0)
    if way == "-Z":
        return prefix(), ("-Z", "nobody"), {}, OTHER
    return prefix(), (), {"SUDO_UID": str(OTHER.uid)}, OTHER


def states(process: int) -> list[dict[str, str]]:
    """``/proc/PID/status`` of a process and its children."""
    children = Path(f"/proc/{process}/task/{process}/children").read_text(encoding="ascii").split()
    assert len(children) == 1
    texts = [Path(f"/proc/{each}/status").read_text(encoding="utf-8") for each in (process, *children)]
    return [dict(line.split(":\t", 1) for line in text.splitlines() if ":\t" in line) for text in texts]


def check_states(process: int, uid: int, gid: int) -> None:
    for state in states(process):
        assert {name: int(state[name], 16) for name in SETS} == dict.fromkeys(SETS, 0)
        assert state["NoNewPrivs"] == "1"
        assert set(state["Uid"].split()) == {str(uid)}
        assert set(state["Gid"].split()) == {str(gid)}


@as_root
@listens
def test_plain_root_keeps_no_capability_and_is_warned(directory: Path) -> None:
    target = directory / "a.pcapng"
    with broker() as port:
        running = started("live", "-i", "lo", "-f", f"tcp port {port}", "-w", str(target))
        try:
            assert running.error_line().startswith("kdissect: listening on lo")
            assert running.error_line() == WARNING
            with Client(port) as client:
                client.beat(1)
                assert "Heartbeat" in running.line()
                check_states(running.process.pid, 0, 0)
            assert running.end()[0] == INTERRUPTED
        finally:
            running.close()
    assert target.stat().st_uid == 0


@as_root
@listens
@pytest.mark.parametrize("way", ["-Z", "sudo", "root"])
def test_the_user_dissects_and_owns_the_files(way: str, directory: Path) -> None:
    before, options, variables, user = as_user(way)
    os.chown(directory, user.uid, user.gid)
    tables, target = directory / "tables", directory / "ring.pcapng"
    outputs = ("-o", str(tables), "-P", "--rotate", "1s", "-w", str(target), "-b", "duration:1s")
    with broker() as port:
        arguments = ("live", "-i", "lo", "-f", f"tcp port {port}", *outputs, *options)
        running = started(*arguments, before=before, **variables)
        try:
            assert running.error_line().startswith("kdissect: listening on lo")
            with Client(port) as client:
                client.beat(1)
                assert "Heartbeat" in running.line()
                check_states(running.process.pid, user.uid, user.gid)
            status, _, stderr = running.end()
        finally:
            running.close()
    assert status == INTERRUPTED, stderr
    written = [*directory.rglob("*")]
    assert any(path.name.startswith("part-") for path in written)
    assert any(path.name.startswith("ring") for path in written)
    assert {path.stat().st_uid for path in written} == {user.uid}


@as_root
@listens
@pytest.mark.parametrize("output", [("-w", "a.pcapng"), ("-o", "tables")])
def test_a_directory_that_the_user_cannot_write_to_is_an_error(
    output: tuple[str, str], directory: Path
) -> None:
    running = started(
        "live", "-i", "lo", "-Z", "nobody", output[0], str(directory / output[1]), before=prefix()
    )
    try:
        status, lines, stderr = running.rest()
    finally:
        running.close()
    assert (status, lines) == (USAGE, [])
    assert f"nobody cannot write to {directory} (Permission denied); use -Z root, or: chown nobody" in stderr
    assert [*directory.iterdir()] == []


@as_root
@makes_interfaces
@pytest.mark.parametrize(("way", "command"), [("root", "live"), ("-Z", "records"), ("sudo", "live")])
def test_a_key_log_that_only_root_can_read_grows(way: str, command: str, directory: Path) -> None:
    settings, keys = TlsSettings(), directory / "keys.log"
    talk = TlsTalk(settings, mss=60_000).opens()
    records = batch([Item(b"key", b"drink-me")])
    body = {"acks": -1, "topic_data": [{"name": "t", "partition_data": [{"index": 0, "records": records}]}]}
    talk.says(0, request(PRODUCE, 9, body)).says(1, response(PRODUCE, 9, {}))
    half = len(settings.key_log) // 2
    keys.write_bytes(b"".join(settings.key_log[:half]))
    keys.chmod(0o600)
    before, options, variables, user = as_user(way)
    with Pair() as pair:
        arguments = (command, "-i", pair.name, "--tls-keylog", str(keys), *options)
        running = started(*arguments, before=before, **variables)
        try:
            assert running.error_line().startswith(f"kdissect: listening on {pair.name}")
            pair.send([packet.data for packet in talk.packets])
            with keys.open("ab") as log:
                log.writelines(settings.key_log[half:])
            assert ("Produce v9" if command == "live" else "drink-me") in running.line()
            check_states(running.process.pid, user.uid, user.gid)
            assert running.end()[0] == INTERRUPTED
        finally:
            running.close()


@as_root
@makes_interfaces
def test_without_privileges_it_waits_for_an_interface_and_resumes(directory: Path) -> None:
    with Pair() as pair:
        running = started("live", "-i", pair.name, "-w", str(directory / "a.pcapng"), "-Z", "root")
        try:
            assert running.error_line().startswith(f"kdissect: listening on {pair.name}")
            pair.remove()
            assert "went down" in running.error_line()
            assert "disappeared" in running.error_line()
            pair.add()
            assert running.error_line() == f"kdissect: {pair.name} is up again\n"
            check_states(running.process.pid, 0, 0)
            pair.send([bytes(12) + b"\x08\x00" + bytes(46)])
            assert running.end()[0] == INTERRUPTED
        finally:
            running.close()


@as_root
@listens
def test_the_warning_says_why_the_user_of_sudo_is_not_used(directory: Path) -> None:
    hidden = directory / "hidden"
    hidden.mkdir(mode=0o700)
    running = started("live", "-i", "lo", PYTHONPATH=str(hidden), SUDO_UID=str(OTHER.uid), before=prefix())
    try:
        assert running.error_line().startswith("kdissect: listening on lo")
        assert running.error_line() == WARNING.replace(
            "root,", f"root (nobody cannot read {hidden}, where kdissect or Python is installed),"
        )
    finally:
        running.close()


def test_an_unknown_user_is_an_error(capsys: pytest.CaptureFixture[str]) -> None:
    done = run(capsys, "live", "-i", "lo", "-Z", "nobody-there")
    text = '-Z: no user "nobody-there"' if os.geteuid() == 0 else "-Z needs root"
    assert (done.status, done.err) == (USAGE, f"kdissect: {text}\n")


def test_z_needs_an_interface(capsys: pytest.CaptureFixture[str]) -> None:
    done = run(capsys, "live", "-", "-Z", "nobody")
    assert done.status == USAGE
    assert "-Z needs -i IFACE" in done.err


@as_root
def test_the_one_who_called_sudo_is_the_default(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SUDO_UID", "0")
    assert chosen_user(None) is None
    assert chosen_user("root") == User("root", 0, 0)
    monkeypatch.setenv("SUDO_UID", str(OTHER.uid))
    assert chosen_user(None) == (OTHER if _unreadable(OTHER) is None else None)


def test_an_output_that_is_no_file_is_not_tried(directory: Path) -> None:
    check_output(Path(os.devnull), None, is_directory=False)
    check_output(directory / "new" / "tables", None, is_directory=True)
    assert [*directory.iterdir()] == []
    with pytest.raises(UsageError, match=r"root without capabilities cannot write to /proc"):
        check_output(Path("/proc/a.pcapng"), None, is_directory=False)
