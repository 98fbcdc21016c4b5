"""``live`` leaves lines to the native core where it can. That they are the same is tested in tests/ways."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from kdissect.pipeline import Dissection
from tests.cli.commands import run
from tests.core import needs_core

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kdissect.sinks.plan import Plan
    from kdissect.sinks.sink import Sink

BY_CORE = [(), ("--json",), ("--csv",), ("-q",), ("--topic", "*")]


@needs_core
@pytest.mark.parametrize("output", [*BY_CORE, ("-V",), ("--summary",)], ids=" ".join)
def test_the_core_writes_lines(
    output: tuple[str, ...], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    plans: list[Plan | None] = []
    into = Dissection.into

    def noted(dissection: Dissection, sink: Sink, *arguments: Any, **options: Any) -> Iterator[None]:
        plans.append(sink.plan)
        return into(dissection, sink, *arguments, **options)

    monkeypatch.setattr(Dissection, "into", noted)
    run(capsys, "live", "--follow", "samples/kafka-4-basics.pcap", "-a", "packets:200", *output)
    assert [plan is not None for plan in plans] == [output in BY_CORE]
