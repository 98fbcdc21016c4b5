from __future__ import annotations

import pytest

from kdissect.stats.pulse import FailureSnapshot, LoadSnapshot
from kdissect.stats.traffic import Failure
from kdissect.text.dashboard_panes import EVENTS, PANES, amount, clock, latency, rate
from tests.exchange_factory import START_NS
from tests.pulses import busy


@pytest.mark.parametrize(
    ("per_second", "text"),
    [(0, "-"), (0.01, "0.1"), (0.44, "0.4"), (9.94, "9.9"), (9.96, "10"), (1234.5, "1,234"), (-1, "-")],
)
def test_rates(per_second: float, text: str) -> None:
    assert rate(per_second) == text


def test_amounts_times_and_the_clock() -> None:
    assert (amount(0.4), amount(999), amount(1_234_567)) == ("-", "999 B", "1.2 MB")
    assert (latency(None), latency(1234)) == ("-", "1.23ms")
    assert clock(START_NS) == "14:13:20"
    assert clock(1 << 62)  # a damaged timestamp


@pytest.mark.parametrize(
    ("software", "text"),
    [
        ("", "-"),
        ("apache-kafka-java 4.4.0", "apache-kafka-java 4.4.0"),
        ("confluent-kafka-python 2.15.0-rdkafka-2.15.0", "confluent-kafka… 2.15.0"),
        ("x" * 100, "x" * 100),
        ("name " + "9" * 100, "… " + "9" * 100),
    ],
)
def test_the_name_of_a_library_is_cut_before_its_version(software: str, text: str) -> None:
    (column,) = [column for column in PANES[2].columns if column.heading == "LIBRARY"]
    row = busy().now().clients[0]._replace(software=software)
    assert column.cell(row) == text


def test_an_empty_group_with_lag_is_not_idle() -> None:
    now = busy().now()
    (group,) = now.groups
    assert not PANES[3].is_idle(group._replace(state="empty"), now)
    assert PANES[3].is_idle(group._replace(state="empty", lag=0), now)


def names(pane: int, sort: int, *, is_reversed: bool = False) -> list[str]:
    return [row.name for row in PANES[pane].ordered(busy().now(), sort, is_reversed=is_reversed)]


def test_numbers_are_sorted_the_largest_first_and_names_by_the_alphabet() -> None:
    assert names(0, 0) == sorted(names(0, 0))
    assert names(0, 0, is_reversed=True) == names(0, 0)[::-1]
    assert names(0, 1)[0] == "Heartbeat"
    assert names(0, 5)[0] == "Heartbeat"  # p99
    assert names(1, 2) == ["orders", "refunds"]
    assert names(1, 2, is_reversed=True) == ["refunds", "orders"]


def test_unknown_values_are_last_in_both_orders() -> None:
    now = busy().now()
    unknown = now.apis[0]._replace(name="Nothing", p50_us=None)
    now = now._replace(apis=[unknown, *now.apis])
    for is_reversed in (False, True):
        assert PANES[0].ordered(now, 3, is_reversed=is_reversed)[-1].p50_us is None


def test_every_cell_of_every_pane_is_text() -> None:
    now = busy().now()
    for pane in PANES:
        rows = pane.ordered(now, pane.sort, is_reversed=False)
        assert rows
        for row in rows:
            for column in pane.columns:
                assert isinstance(column.cell(row), str)
                assert isinstance(column.style(row), str)
            assert not pane.is_idle(row, now)


def test_news_are_errors_and_rebalances_the_latest_first() -> None:
    now = busy().now()
    cells = [
        [column.cell(row) for column in PANES[EVENTS].columns]
        for row in PANES[EVENTS].ordered(now, 0, is_reversed=False)
    ]
    assert [row[1:] for row in cells] == [
        ["NOT_LEADER_OR_FOLLOWER", "1", "Produce from shop, topic refunds"],
        ["rebalance gen ? -> 1", "-", "g, 1 member, not captured"],
    ]


def test_idle_rows_are_dimmed() -> None:
    now = busy().now()
    old = FailureSnapshot(Failure("X", "Fetch", None, "c"), 1, (now.now_ns or 0) - 61_000_000_000)
    assert PANES[EVENTS].is_idle(old, now)
    idle = LoadSnapshot("c", 0, None, None, None, 0, 0, 0, 0, 0, 0, 0, 0, 0)
    assert PANES[2].is_idle(idle, now)
    assert not PANES[2].is_idle(idle._replace(overdue=1), now)
