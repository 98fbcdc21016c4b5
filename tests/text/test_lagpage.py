from __future__ import annotations

from kdissect import dissect, open_capture, summarize
from kdissect.text.summary_page import lag_sections as sections


def test_a_table_of_readers() -> None:
    with open_capture("samples/quickstart.pcap") as packets:
        rows = summarize(dissect(packets), parts=["lag"]).lag
    assert rows
    (section,) = sections(rows, limit=3)
    assert len(section.rows) == 3
    assert section.left_out == len(rows) - 3
    assert all(len(row) == len(section.views) for row in section.rows)
    assert "0 lagging when last seen" in section.notes[0]


def test_no_readers() -> None:
    (section,) = sections([], limit=3)
    assert section.notes == (
        "0 consumer-partition pairs, 0 lagging when last seen; LAG: records, at the last fetch or commit",
    )
