from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

from kdissect import dissect, open_capture, summarize
from kdissect.text.summary_page import version_sections as sections

if TYPE_CHECKING:
    from kdissect.stats.document import VersionsPart


@cache
def part(sample: str) -> VersionsPart:
    with open_capture(f"samples/{sample}.pcap") as packets:
        part = summarize(dissect(packets), parts=["versions"]).versions
    assert part is not None
    return part


def test_old_clients() -> None:
    page = list(sections(part("mock-old-versions"), limit=2))
    assert [section.title for section in page] == [
        "Rejected by newer Kafka releases",
        "Other versions in use",
        "Versions advertised by brokers",
    ]
    assert page[0].notes == ("4 clients with versions that Kafka 4.0.0 rejects",)
    assert all(len(row) == len(section.views) for section in page for row in section.rows)
    assert page[0].left_out == part("mock-old-versions").rejected - 2


def test_new_clients() -> None:
    first = next(sections(part("kafka-4-basics"), limit=5))
    assert (first.notes, first.rows) == (
        ("no client uses an API version that newer Kafka releases reject",),
        [],
    )
