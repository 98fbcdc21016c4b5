"""Captures of samples/ -> docs/top.svg: what the dashboard shows when the last of their packets has come.

python docs/screenshot.py
"""

from __future__ import annotations

import re
import sys
from functools import cache
from io import StringIO
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from rich.console import Console

from kdissect import dissect, open_capture
from kdissect.stats.facts import Facts
from kdissect.stats.pulse import Pulse, PulseSnapshot
from kdissect.text.dashboard import StatusBar, UiState, draw

DIRECTORY = Path(__file__).parent
SAMPLES = ("kafka-4-cluster", "kafka-4-storm", "kafka-4-lag", "kafka-4-habits")
COLUMNS, LINES = 164, 42
_FONTS = re.compile(r"@font-face \{.*?\}\s*", re.DOTALL)  # a picture should not ask another server for them


@cache
def dashboard_of(samples: tuple[str, ...]) -> PulseSnapshot:
    """The statistics after the last packet of some samples, all of which end at the same time."""
    packets = []
    for name in samples:
        with open_capture(DIRECTORY.parent / "samples" / f"{name}.pcap.gz") as capture:
            of_sample = list(capture)
        packets += [(packet.time_ns - of_sample[-1].time_ns, packet) for packet in of_sample]
    packets.sort(key=lambda timed: timed[0])
    end_ns = packets[-1][1].time_ns
    pulse = Pulse()
    for exchange in dissect(packet._replace(time_ns=end_ns + before_ns) for before_ns, packet in packets):
        pulse.feed(Facts(exchange))
        pulse.tick(exchange.time_ns, pulse.exchanges * 3)
    pulse.tick(end_ns, len(packets))
    return pulse.now()


def main() -> None:
    """Draw it."""
    console = Console(record=True, width=COLUMNS, height=LINES, file=StringIO(), legacy_windows=False)
    status = StatusBar("eth0", memory_bytes=61_400_000)
    for line in draw(dashboard_of(SAMPLES), UiState(), status, COLUMNS, LINES):
        console.print(line, end="\n", soft_wrap=True)
    title = "kdissect live -i eth0 --top"
    (DIRECTORY / "top.svg").write_text(_FONTS.sub("", console.export_svg(title=title)), encoding="utf-8")


if __name__ == "__main__":
    main()
