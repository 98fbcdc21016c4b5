from __future__ import annotations

from dataclasses import replace
from functools import cache
from io import StringIO

import pytest

from kdissect import Summary, dissect, open_capture, summarize
from kdissect.phrases import TopicId, absent
from kdissect.stats.views import ordered, viewed
from kdissect.text.page import PageSection, write
from kdissect.text.style import PLAIN
from kdissect.text.summary_page import _TCP, rate, sections, us


@cache
def summary(sample: str = "kafka-4-basics") -> Summary:
    with open_capture(f"samples/{sample}.pcap") as packets:
        return summarize(dissect(packets), by=("partition", "group", "connection"), interval_s=1)


def test_every_table_has_its_section() -> None:
    page = list(sections(summary(), limit=3))
    assert [section.title for section in page] == [
        *("Capture", "APIs", "Brokers", "Clients", "Topics", "Partitions", "Groups", "Connections"),
        *("Over time", "Errors", "Slowest exchanges", "Waits and delays", "Expected errors"),
    ]
    for section in page[1:]:
        assert 1 <= len(section.rows) <= 3
        assert all(len(row) == len(section.views) for row in section.rows)


def test_the_cells_of_a_row() -> None:
    apis = next(section for section in sections(summary(), limit=None) if section.title == "APIs")
    names = [view.heading for view in apis.views]
    row = dict(zip(names, next(row for row in apis.rows if row[0] == "Fetch"), strict=True))
    assert (row["VERSIONS"], row["EXCHANGES"], row["N"], row["ERRORS"]) == ("12,16,18", "10", "1", "-")


def test_waits_say_what_for_and_how_long() -> None:
    waits = next(
        section for section in sections(summary(), limit=None) if section.title == "Waits and delays"
    )
    names = [view.heading for view in waits.views]
    rows = {row[0]: dict(zip(names, row, strict=True)) for row in waits.rows}
    assert rows.keys() == {"Fetch", "JoinGroup", "SyncGroup", "previous response"}  # a quota is only unknown
    assert (rows["Fetch"]["N"], rows["Fetch"]["UNKNOWN"]) == ("5", "4")


def test_notes_are_about_columns_that_are_shown() -> None:
    rows = [column for column in _TCP if column.note]
    assert rows
    cells = [["1"] * len(_TCP)]
    shown = {}
    for width in (None, 80):
        out = StringIO()
        write(out, [PageSection("", _TCP, cells)], width=width, style=PLAIN)
        shown[width] = [line.split(":")[0] for line in out.getvalue().splitlines() if ": " in line]
    assert shown == {None: ["RTT", "ZERO WINDOW"], 80: []}


def test_goodput_is_shown_if_it_differs() -> None:
    for sample, has_goodput in {"troubles/sent-again": True, "troubles/recompressed": False}.items():
        with open_capture(f"samples/{sample}.pcap.gz") as packets:
            page = sections(summarize(dissect(packets)), limit=None)
        out = StringIO()
        write(out, [section for section in page if section.title == "Topics"], width=80, style=PLAIN)
        assert ("GOODPUT/s" in out.getvalue()) == has_goodput


@pytest.mark.parametrize(
    ("title", "order", "heading"),
    [
        ("APIs", None, "EXCHANGES"),
        ("APIs", "bytes", "BYTES"),
        ("APIs", "service", "P95"),
        ("Clients", "errors", "ERRORS"),
        ("Clients", "throttle", "THROTTLED"),
        ("Clients", "name", "EXCHANGES"),
        ("Topics", None, "BYTES"),
        ("Topics", "count", "RECORDS"),
        ("Topics", "service", "P95"),
        ("Partitions", "service", "BYTES"),
        ("Partitions", "errors", "ERRORS"),
    ],
)
def test_the_number_that_ranks_is_shown_with_shares(title: str, order: str | None, heading: str) -> None:
    page = sections(ordered(summary(), order), limit=None, order=order)
    table = next(section for section in page if section.title == title)
    headings = [view.heading for view in table.views]
    place = headings.index("SHARE")
    assert headings[place - 1] == heading
    assert headings.count(heading) == 1
    shares = [float(row[place].rstrip("%")) for row in table.rows]
    assert sum(shares) == pytest.approx(100, abs=0.05 * len(shares))


def test_bars_show_how_service_times_are_distributed() -> None:
    page = list(sections(viewed(summary(), ["api"]), limit=None, has_histogram=True))
    bars = next(section for section in page if section.title == "Distribution of service times")
    rows = {row[0]: row[1:] for row in bars.rows}
    apis = {row.api: row for row in summary().apis or () if row.service_us.count}
    assert rows.keys() == apis.keys()
    for api, (count, *cells) in rows.items():
        assert count == f"{apis[api].service_us.count:,}"
        assert [bool(cell) for cell in cells] == [bool(number) for number in apis[api].service_histogram]
        assert sum(apis[api].service_histogram) == apis[api].service_us.count


def test_a_topic_without_a_name_is_shown_as_its_id() -> None:
    with open_capture("samples/midstream.pcap") as packets:
        document = summarize(dissect(packets))
    unnamed = [row.topic for row in document.topics or () if isinstance(row.topic, TopicId)]
    assert len(unnamed) == 1
    topics = next(section for section in sections(document, limit=None) if section.title == "Topics")
    assert [row[0] for row in topics.rows if "id" in row[0]] == [f"<id {unnamed[0]}>"]


def test_rows_that_are_left_out_are_counted() -> None:
    apis = list(sections(summary(), limit=3))[1]
    assert apis.left_out == len(summary().apis or ()) - 3


def test_loss_anomalies_and_folding_are_shown() -> None:
    document = summary()
    lossy = replace(document.capture, gaps=2, lost_bytes=2896, anomalies={"gap": 3})
    page = list(sections(replace(document, capture=lossy, other={"topics": 12}), limit=1))
    assert "2.9 KB missing in 2 gaps" in page[0].notes[-2]
    assert "3 gap" in page[0].notes[-1]
    assert "12 of topics" in page[-1].notes[0]


def test_an_empty_summary_is_a_page() -> None:
    (only,) = sections(summarize([]), limit=10)
    assert only.title == "Capture"
    assert "0 exchanges" in only.notes[1]


def test_words() -> None:
    assert (us(None), us(1234), rate(None), rate(3.14159)) == ("-", "1.23ms", "-", "3.1")
    assert (absent(None), absent(""), absent(0)) == ("-", "-", "0")
