from __future__ import annotations

import gzip
from typing import TYPE_CHECKING

import pytest

from kdissect.capture.inputs import candidates, captures, local
from kdissect.capture.reader import open_capture
from kdissect.errors import CaptureError, UsageError
from tests.cli.commands import capture_bytes, talk

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    data = capture_bytes(talk())
    (tmp_path / "b").mkdir()
    (tmp_path / ".git").mkdir()
    (tmp_path / "out" / "_kdissect").mkdir(parents=True)
    (tmp_path / "2.pcap").write_bytes(data)
    (tmp_path / "1").write_bytes(data)
    (tmp_path / "b" / "3.pcap.gz").write_bytes(gzip.compress(data))
    (tmp_path / "b" / "log.gz").write_bytes(gzip.compress(b"no capture"))
    (tmp_path / "b" / "broken.gz").write_bytes(b"\x1f\x8b\x08 and no more")
    (tmp_path / ".git" / "4.pcap").write_bytes(data)
    (tmp_path / ".hidden.pcap").write_bytes(data)
    (tmp_path / "out" / "5.pcap").write_bytes(data)
    (tmp_path / "readme.txt").write_text("text")
    return tmp_path


def test_a_directory_is_all_captures_in_it(directory: Path) -> None:
    expected = [str(directory / name) for name in ("1", "2.pcap", "b/3.pcap.gz")]
    assert list(captures([str(directory)], exclude=directory / "out")) == expected
    assert list(captures([str(directory)])) == [*expected, str(directory / "out" / "5.pcap")]


def test_patterns_that_the_shell_did_not_expand(directory: Path) -> None:
    assert list(captures([f"{directory}/*.pcap"])) == [str(directory / "2.pcap")]
    assert list(captures([f"{directory}/**/*.gz"])) == [
        str(directory / "b" / name) for name in ("3.pcap.gz", "broken.gz", "log.gz")
    ]
    assert list(captures([f"{directory}/[b]"])) == [str(directory / "b" / "3.pcap.gz")]
    with pytest.raises(UsageError, match=r"no file matches .*nothing"):
        captures([f"{directory}/nothing-*"])


def test_braces_stand_for_several_patterns(directory: Path) -> None:
    assert list(captures([f"{directory}/{{2,b/3}}.{{pcap,pcap.gz}}"])) == [
        str(directory / "2.pcap"), str(directory / "b" / "3.pcap.gz")
    ]  # fmt: skip
    odd = directory / "{x}.pcap"
    odd.write_bytes(b"")
    assert captures([str(odd)]) == (str(odd),)


def test_a_file_whose_name_looks_like_a_pattern(directory: Path) -> None:
    odd = directory / "odd[1].pcap"
    odd.write_bytes(b"")
    assert captures([str(odd)]) == (str(odd),)


def test_names_stay_as_they_are_and_come_once(directory: Path) -> None:
    names = ["-", str(directory / "readme.txt"), "missing.pcap", str(directory / "readme.txt")]
    assert captures(names) == ("-", str(directory / "readme.txt"), "missing.pcap")


def test_files_keep_the_order_of_their_names(directory: Path) -> None:
    names = [
        str(directory / "b"),
        str(directory / "2.pcap"),
        f"{directory}/*.pcap",
        str(directory / "b" / "3.pcap.gz"),
    ]
    assert list(captures(names)) == [names[3], names[1]]
    assert [name for name, each in candidates(names).items() if each.begins_as_capture(name)] == [
        names[3],
        names[1],
    ]


def test_a_directory_without_captures(directory: Path) -> None:
    empty = directory / "empty"
    empty.mkdir()
    with pytest.raises(CaptureError, match="no capture files in this directory or its subdirectories"):
        captures([str(empty)])


def test_an_empty_file_in_a_directory_is_reported(directory: Path) -> None:
    (directory / "b" / "lost.pcap").touch()
    for name in (".hidden", "_SUCCESS"):
        (directory / "b" / name).touch()
    names = captures([str(directory / "b")])
    assert names == (str(directory / "b" / "3.pcap.gz"), str(directory / "b" / "lost.pcap"))
    with open_capture(*names) as capture:
        assert list(capture)
        assert capture.warnings == [f"{names[1]}: neither pcap nor pcapng; it is empty"]


def test_a_url_is_no_path() -> None:
    for name in ("captures/", "/data/x", "-", "C:x", "a:b/c", "file:x"):
        assert local(name) == name
    for name in ("file:/data/x", "file:///data/x", "FILE://///data/x"):
        assert local(name) == "/data/x"
    for name in ("https://host/x", "dbfs:/x", "odd://"):
        with pytest.raises(UsageError, match=f"{name} is a URL, which is not supported; use a local or "):
            captures([name])
