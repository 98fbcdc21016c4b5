"""Exchanges that came live -> a short page on stderr when it is over: what there was, how fast, and what an
expert would point at. Holds what a summary holds, which is bounded.

It costs a quarter of what dissecting an exchange costs. So it is there for somebody who sits before a
terminal, and elsewhere when asked for.
"""

from __future__ import annotations

import sys
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING

from kdissect.cli.terminal import wants_colour, width

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from kdissect.limits import Limits
    from kdissect.pipeline import Dissection
    from kdissect.sinks.page import Section

ROWS = 8  # of each table
FINDINGS = "findings"


def is_wanted(asked: bool | None, *, quiet: bool) -> bool:
    """Whether there shall be one, by what ``--summary`` says if anything."""
    if asked is not None:
        return asked
    return not quiet and sys.stderr is not None and sys.stderr.isatty()


class Recap:
    """Counts exchanges."""

    def __init__(self, limits: Limits) -> None:
        from kdissect.analysis.summary.summarizer import Summarizer

        self._summarizer = Summarizer(limits, parts=frozenset((FINDINGS,)), slowest=1)
        self.feed = self._summarizer.feed

    def write(self, names: Sequence[str], dissection: Dissection, colour: str) -> None:
        """Write the page."""
        from kdissect.sinks import page

        if sys.stderr is None:  # closed by whoever started us
            return
        sections = self._sections(names, dissection.counts, dissection.skipped)
        with suppress(OSError):  # the terminal is gone
            page.write(sys.stderr, sections, width=width(sys.stderr), colour=wants_colour(sys.stderr, colour))

    def _sections(
        self, names: Sequence[str], counts: Mapping[str, int], skipped: Mapping[str, int]
    ) -> Iterator[Section]:
        from kdissect.sinks import summarypage
        from kdissect.sinks.page import Section

        document = self._summarizer.close(names, counts, skipped)
        findings = document.findings or []
        shown = replace(document, brokers=[], clients=[], slowest=[], findings=None)
        for section in summarypage.sections(shown, limit=ROWS, narrow=True):
            if section.left_out:
                more = f"{section.title} (the first {ROWS} of {ROWS + section.left_out:,})"
                yield section._replace(title=more, left_out=0)
            else:
                yield section
        if findings:
            lines = [f"{row.severity}: {row.about}: {row.sentence}" for row in findings[:ROWS]]
            if len(findings) > ROWS:
                lines.append(f"and {len(findings) - ROWS:,} more")
            yield Section("Findings", notes=tuple(lines))
