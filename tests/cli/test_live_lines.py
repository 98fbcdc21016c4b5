"""What ``live`` writes with the native core, compared with what it writes without."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from kdissect import core
from kdissect.pipeline import Dissection
from tests.cli.commands import run

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kdissect.sinks.sink import Plan, Sink

SAMPLES = Path(__file__).parent.parent.parent / "samples"
CAPTURES = [("kafka-4-basics.pcap", 700), ("mock-rebalance.pcapng", 600)]
OUTPUTS = [(), ("--json",), ("--csv",), ("-q",), ("--error", "*"), ("--summary",)]


@pytest.mark.skipif(not core.is_used, reason="without the core there is nothing to compare")
@pytest.mark.parametrize(("name", "packets"), CAPTURES)
@pytest.mark.parametrize("output", OUTPUTS, ids=lambda output: " ".join(output) or "lines")
def test_the_core_writes_what_python_writes(
    name: str,
    packets: int,
    output: tuple[str, ...],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The capture stops in the middle of a block, and what was captured is recorded."""
    plans: list[Plan | None] = []
    into = Dissection.into

    def noted(dissection: Dissection, sink: Sink, *arguments: Any) -> Iterator[None]:
        plans.append(sink.plan)
        return into(dissection, sink, *arguments)

    monkeypatch.setattr(Dissection, "into", noted)
    recorded = [tmp_path / "core.pcapng", tmp_path / "python.pcapng"]
    command = ("live", "--follow", str(SAMPLES / name), "-a", f"packets:{packets}", *output)
    by_core = run(capsys, *command, "-w", str(recorded[0]))
    assert [plan is not None for plan in plans] == [output in OUTPUTS[:4]]
    monkeypatch.setattr(core, "is_used", False)
    assert run(capsys, *command, "-w", str(recorded[1])) == by_core
    assert recorded[0].read_bytes() == recorded[1].read_bytes()
    assert f"kdissect: {packets} packets, " in by_core.err
