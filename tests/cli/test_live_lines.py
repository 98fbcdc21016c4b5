"""``live`` leaves lines to the native core where it can. That they are the same is tested in tests/ways."""

from __future__ import annotations

import pytest

from kdissect.pipeline import Dissection
from tests.cli.commands import run
from tests.core import needs_core

BY_CORE = [(), ("--json",), ("--csv",), ("-q",)]


@needs_core
@pytest.mark.parametrize("output", [*BY_CORE, ("--error", "*"), ("--summary",)], ids=" ".join)
def test_the_core_writes_lines(
    output: tuple[str, ...], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    with_lines: list[object] = []
    write_lines = Dissection.write_lines

    def noted(*arguments: object) -> None:
        with_lines.append(arguments)
        write_lines(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(Dissection, "write_lines", noted)
    run(capsys, "live", "--follow", "samples/kafka-4-basics.pcap", "-a", "packets:200", *output)
    assert bool(with_lines) == (output in BY_CORE)
