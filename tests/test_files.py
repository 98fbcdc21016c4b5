from __future__ import annotations

import os
import threading
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from kdissect.files import create, make_directory, replacing
from tests.cli.commands import run, spawn

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

ROOT = Path(__file__).resolve().parent.parent
CAPTURE = str(ROOT / "samples" / "quickstart.pcap")


@pytest.fixture(autouse=True)
def umask(request: pytest.FixtureRequest) -> Iterator[None]:
    """The usual one, or another that a test asks for."""
    before = os.umask(getattr(request, "param", 0o022))
    yield
    os.umask(before)


STRICT = pytest.mark.parametrize("umask", [0o077], indirect=True, ids=["strict"])


def mode(path: Path) -> int:
    return path.stat().st_mode & 0o777


def modes(directory: Path) -> tuple[set[int], set[int]]:
    """Of all files in a directory, and of all directories."""
    below = [directory, *directory.rglob("*")]
    return {mode(path) for path in below if path.is_file()}, {mode(path) for path in below if path.is_dir()}


def write(path: Path, data: bytes = b"new") -> None:
    with create(path) as file:
        file.write(data)


def replace(path: Path, data: bytes = b"new") -> None:
    with replacing(path) as file:
        file.write(data)


BOTH = pytest.mark.parametrize("writes", [write, replace])


@BOTH
def test_a_file_is_its_owners_and_new(writes: Callable[[Path], None], tmp_path: Path) -> None:
    """Who has the old one open, or may read it, gets nothing."""
    path = tmp_path / "file"
    path.write_bytes(b"old")
    path.chmod(0o666)
    with path.open("rb") as old:
        writes(path)
        assert old.read() == b"old"
    assert (path.read_bytes(), mode(path), list(tmp_path.iterdir())) == (b"new", 0o600, [path])


@BOTH
@pytest.mark.parametrize("is_there", [True, False])
def test_a_link_is_not_followed(writes: Callable[[Path], None], is_there: bool, tmp_path: Path) -> None:
    target, path = tmp_path / "target", tmp_path / "link"
    if is_there:
        target.write_bytes(b"precious")
    path.symlink_to(target)
    with pytest.raises(OSError, match="link is a symbolic link, which is not followed"):
        writes(path)
    assert path.is_symlink()
    assert (target.read_bytes() if is_there else target.exists()) == (b"precious" if is_there else False)


@BOTH
def test_what_is_no_file_is_written_to(writes: Callable[[Path], None], tmp_path: Path) -> None:
    """Named pipes, and the links that a shell makes of ``>(command)``."""
    os.mkfifo(tmp_path / "pipe")
    came: list[bytes] = []
    reader = threading.Thread(target=lambda: came.append((tmp_path / "pipe").read_bytes()))
    reader.start()
    writes(tmp_path / "pipe")
    reader.join()
    out, into = os.pipe()
    writes(Path(f"/dev/fd/{into}"))
    assert (came, os.read(out, 10)) == ([b"new"], b"new")
    os.close(out)
    os.close(into)
    with pytest.raises(IsADirectoryError):
        writes(tmp_path)


def test_what_stands_there_stays_unless_something_is_written(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"old")
    with replacing(path):
        pass
    with pytest.raises(TypeError), replacing(path) as file:
        file.writelines([b"half", None])  # type: ignore[list-item]
    assert (path.read_bytes(), list(tmp_path.iterdir())) == (b"old", [path])


@STRICT
@pytest.mark.parametrize(
    ("files", "directories"), [(0o600, 0o700), (0o640, 0o750), (0o644, 0o755), (0o664, 0o775)]
)
def test_who_may_read_the_files_may_open_the_directories(
    files: int, directories: int, tmp_path: Path
) -> None:
    make_directory(tmp_path / "a" / "b", files)
    make_directory(tmp_path / "a" / "b", 0o666)  # which is there, and stays as it is
    assert [mode(tmp_path / "a"), mode(tmp_path / "a" / "b")] == [directories, directories]


def test_directories_are_not_reached_by_links(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "named").symlink_to(tmp_path / "elsewhere")
    make_directory(tmp_path / "named" / "a", below=tmp_path / "named")
    (tmp_path / "elsewhere" / "planted").symlink_to(tmp_path)
    with pytest.raises(OSError, match="planted is a symbolic link, which is not followed"):
        make_directory(tmp_path / "named" / "planted" / "b", below=tmp_path / "named")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["elsewhere", "named"]


# --- the commands -------------------------------------------------------------------------------------------


def live(*arguments: str) -> tuple[int, str]:
    """Read the capture as what comes live."""
    with Path(CAPTURE).open("rb") as file, spawn("live", "-", "-q", *arguments, stdin=file) as process:
        _, output = process.communicate(timeout=60)
        return process.returncode, output.decode()


WRITING = [
    ["read", CAPTURE, "-w", "{}/capture.pcapng"],
    ["records", CAPTURE, "-o", "{}/records"],
    ["export", CAPTURE, "--records", "--partition-by", "date", "-o", "{}/tables"],
    ["export", CAPTURE, "-j", "2", "-o", "{}/tables"],
    ["live", "-w", "{}/capture.pcapng", "-b", "filesize:10kB"],
    ["live", "-o", "{}/tables"],
]


@pytest.mark.parametrize(
    ("options", "umask", "files", "directories"),
    [([], 0o022, 0o600, 0o700), (["--mode", "0640"], 0o077, 0o640, 0o750)],
    indirect=["umask"],
    ids=["private", "shared"],
)
@pytest.mark.parametrize("command", WRITING, ids=lambda command: command[0])
def test_nobody_else_reads_what_is_written(
    command: list[str],
    options: list[str],
    files: int,
    directories: int,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    directory = tmp_path / "new"
    if command[-1] != "{}/tables" and "-o" not in command:
        make_directory(directory, files)
    arguments = [each.format(directory) for each in (*command, *options)]
    status = live(*arguments[1:])[0] if command[0] == "live" else run(capsys, *arguments).status
    assert status == 0
    assert modes(directory) == ({files}, {directories})


@pytest.mark.parametrize(
    ("command", "link"),
    [
        (["read", CAPTURE, "-w", "{}/x.pcapng"], "x.pcapng"),
        (["live", "-w", "{}/x.pcapng"], "x.pcapng"),
        (["export", CAPTURE, "-o", "{}"], "exchanges"),
        (["export", CAPTURE, "-o", "{}"], "exchanges/_kdissect"),
        (["export", CAPTURE, "-o", "{}"], ".kdissect.lock"),
        (["live", "-o", "{}"], "anomalies"),
    ],
)
def test_planted_links_are_not_followed(
    command: list[str], link: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    directory, target = tmp_path / "out", tmp_path / "target"
    (directory / link).parent.mkdir(parents=True)
    if "." in Path(link).name:
        target.write_text("precious")
    else:
        target.mkdir()
    (directory / link).symlink_to(target)
    arguments = [each.format(directory) for each in command]
    if command[0] == "live":
        status, output = live(*arguments[1:])
    else:
        status, _, output = run(capsys, *arguments)
    assert (status, "symbolic link" in output, len(output.splitlines())) == (3, True, 1), output
    assert (target.read_text() if target.is_file() else list(target.iterdir())) in ("precious", [])


def test_a_mode_needs_files(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    for command, goes_with in (
        (["read", CAPTURE], "-w FILE"),
        (["records", CAPTURE], "-o DIR"),
        (["live", "-i", "lo"], "-w FILE or -o DIR"),
    ):
        done = run(capsys, *command, "--mode", "640")
        assert (done.status, done.err.split(" (")[0]) == (2, f"kdissect: --mode needs {goes_with}")
    for wrong in ("0", "400", "755", "1644", "6400", "rw", ""):
        done = run(capsys, "read", CAPTURE, "-w", str(tmp_path / "x"), "--mode", wrong)
        assert (done.status, f'invalid mode "{wrong}": ' in done.err) == (2, True)
