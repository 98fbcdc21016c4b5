"""Help texts and pages at 80 and 200 columns are as they were reviewed, and fit a terminal."""

from __future__ import annotations

import re

import pytest

from kdissect.phrases import columns_of
from samples.pages import COMMANDS, REFRESH, WIDTHS, golden, names, page

NAMES = names()
UNWRAPPED = ("read-e", "error-", "story-record-mermaid")
"""Values of ``-e`` are not wrapped: they can be of any length. Errors point to columns. Lines of
Mermaid's language are statements."""
ZONED_TIME = re.compile(r"^[\d:T.-]+Z", re.MULTILINE)


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("name", NAMES)
def test_page(name: str, width: int) -> None:
    text = page(name, width)
    path = golden(name, width)
    assert path.exists(), f"new page: {REFRESH}"
    assert text.splitlines() == path.read_text().splitlines(), f"{REFRESH}; then review the difference"
    if name.startswith(UNWRAPPED):
        return
    assert [line for line in text.splitlines() if columns_of(line) > width] == []
    assert [line for line in text.splitlines() if line.endswith(" ")] == []
    if name in COMMANDS:
        assert not ZONED_TIME.search(text), "a heading or the first lines say UTC, once"
        assert len(re.findall(r"\bUTC\b", text)) <= 1 + text.count(
            " packets, "
        )  # check: each file has its times


def test_no_golden_page_is_left_over() -> None:
    known = {golden(name, width) for name in NAMES for width in WIDTHS}
    assert set(golden(NAMES[0], 80).parent.iterdir()) == known
