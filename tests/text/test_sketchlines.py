from __future__ import annotations

import json

from kdissect.limits import DEFAULT
from kdissect.stats.quantiles import Quantiles, bucket_of
from kdissect.stats.summarizer import Summarizer
from kdissect.text.summary_page import lines
from tests.exchange_factory import START_NS, exchange

SECOND_NS = 1_000_000_000


def summarized(*numbers: int, interval_ns: int = 0) -> Summarizer:
    summarizer = Summarizer(DEFAULT, by=frozenset({"client"}), interval_ns=interval_ns)
    for number in numbers:
        summarizer.feed(
            exchange(
                client_id="billing",
                request={},
                response={},
                latency_ns=number * 1000,
                time_ns=START_NS + number * SECOND_NS,
            )
        )
    return summarizer


def test_each_row_has_a_line() -> None:
    rows = [json.loads(line) for line in lines(summarized(1, 2, 3), "client")]
    assert [(row["by"], row["key"]) for row in rows] == [
        (None, None),
        ("api", "Metadata"),
        ("broker", "10.0.0.1:9092"),
        ("client", "billing"),
    ]
    assert {(row["start"], row["quantity"], row["count"], row["total"]) for row in rows} == {
        (None, "service_us", 3, 6)
    }


def test_pieces_of_time_have_theirs() -> None:
    rows = [json.loads(line) for line in lines(summarized(1, 2, 3, interval_ns=2 * SECOND_NS), "client")]
    in_time = [(row["start"], row["by"], row["key"], row["count"]) for row in rows if row["start"]]
    assert in_time == [
        ("2026-09-21T14:13:20.000000Z", None, None, 1),
        ("2026-09-21T14:13:20.000000Z", "client", "billing", 1),
        ("2026-09-21T14:13:22.000000Z", None, None, 2),
        ("2026-09-21T14:13:22.000000Z", "client", "billing", 2),
    ]


def test_lines_of_two_captures_merge() -> None:
    merged = Quantiles()
    for summarizer in (summarized(*range(1, 300)), summarized(*range(300, 601))):
        row = json.loads(next(iter(lines(summarizer, None))))
        buckets = [(bucket_of(bucket["middle"]), bucket["count"]) for bucket in row["buckets"]]
        merged.merge(Quantiles.of(row["total"], row["min"], row["max"], [], buckets))
    assert (merged.count, merged.total, merged.min, merged.max) == (600, 600 * 601 // 2, 1, 600)
    (median,) = merged.at((0.5,))
    assert median is not None
    assert abs(median - 300) <= 3
