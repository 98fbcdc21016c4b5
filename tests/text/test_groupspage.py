from __future__ import annotations

from io import StringIO

import pytest

from kdissect.limits import Limits
from kdissect.stats.document import CauseRow
from kdissect.stats.groups import histories
from kdissect.stats.summarizer import summarize
from kdissect.text import page
from kdissect.text.groups_page import _assigned, cause, sections
from kdissect.text.style import PLAIN
from tests.exchange_factory import exchange
from tests.groups import commit, counted, heartbeat, history, join, leave, sync


def group_sections(limit: int | None = None, **limits: int) -> list[page.PageSection]:
    events = [
        join("reader-1", 0, 1, members=["reader-1"], request_member_id="", until=3),
        sync("reader-1", 3, 1, {"t": [0, 1, 2, 3, 4], "u": [7, 9]}),
        commit("reader-1", 4, {0: 1_000, 1: 5}),
        *(
            join("reader-1", at, at, members=["reader-1"], reason="enforced", until=at + 0.5)
            for at in range(5, 12)
        ),
        heartbeat("reader-1", 13, 11, 25),
        commit("reader-1", 14, {0: 2_000}),
        leave("reader-1", 15),
    ]
    return list(sections(histories(counted(events, Limits(**limits))), limit=limit))


def test_sections() -> None:
    groups, members, rebalances, committed = group_sections()
    assert groups.rows[0] == [
        *(
            "g",
            "empty",
            "classic",
            "consumer, range",
            "1",
            "8",
            "3.00s",
            "1",
            "2",
            "3",
            "1 UNKNOWN_MEMBER_ID",
        ),
    ]
    assert members.title == "g: 1 member ID seen"
    assert members.rows[0][-1] == "t (5), u-7,9"
    assert rebalances.title == "g: 8 rebalances"
    assert rebalances.rows[0] == [
        *("14:13:20.123", "3.00s", "? -> 1", "0 -> 1", "1", "range", "of-reader-1/1"),
        "reader-1 joined as the first member",
    ]
    assert rebalances.rows[1][-1] == 'leader reader-1 rejoined after topics changed, "enforced"'
    assert rebalances.notes[0].startswith("storm: 7 rebalances from 14:13:25.123 to 14:13:31.123 (")
    assert committed.rows[0] == [
        *("t-0", "2", "-", "1,000", "14:13:24.123", "2,000", "14:13:34.123", "100.0"),
    ]


def test_rows_left_out_are_counted() -> None:
    _, _, rebalances, committed = group_sections(limit=1)
    assert rebalances.left_out == 7
    assert committed.left_out == 1
    assert "dropped because of a limit" in group_sections(summary_group_events=12)[2].notes[-1]


def test_no_groups() -> None:
    (section,) = sections([], limit=None)
    assert "no group joins, leaves or commits" in section.notes[0]


@pytest.mark.parametrize("width", [80, 200])
def test_the_page_fits(width: int) -> None:
    long = "a-group-with-a-name-that-goes-on-and-on-" * 2
    rows = histories(counted([commit("c", 0, {0: 1}, group=long)]))
    rows += [
        history(join("a" * 60, 0, 1, members=["a" * 60], request_member_id="", reason="why " * 30, until=2))
    ]
    out = StringIO()
    page.write(out, sections(rows, limit=10), width=width, style=PLAIN)
    lines = out.getvalue().splitlines()
    assert max(map(len, lines)) <= width
    for text in ("GROUP", "STATE", "REBALANCES", "CAUSE", "JOINED"):
        assert any(text in line for line in lines), text


@pytest.mark.parametrize(
    ("row", "text"),
    [
        (("timeout", "b", "b-1", None), "b timed out"),
        (("leave", None, "b-1", "closed"), 'b-1 left, "closed"'),
        (("metadata", "a", "a-1", None), "leader a rejoined after topics changed"),
        (("unknown", None, None, None), "not captured"),
    ],
)
def test_causes(row: tuple[str, str | None, str | None, str | None], text: str) -> None:
    name, client, member_id, reason = row
    assert cause(CauseRow(cause=name, time=None, member_id=member_id, client=client, reason=reason)) == text


def test_an_assigned_topic_without_a_name_is_shown_by_its_id() -> None:
    topic = {"topic_id": "bszCrAwKQTKvoijoHlrRoA", "partitions": [0, 1]}
    request = {"group_id": "g", "member_id": "a", "member_epoch": 1}
    response = {
        "error_code": 0,
        "member_id": "a",
        "member_epoch": 2,
        "assignment": {"topic_partitions": [topic]},
    }
    summary = summarize([exchange("ConsumerGroupHeartbeat", 0, request, response)], parts=["group_history"])
    (row,) = (summary.group_history or ())[0].members
    assert _assigned(row.assignment) == "<id bszCrAwKQTKvoijoHlrRoA>-0,1"
