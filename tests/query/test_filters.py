from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from kdissect.errors import UsageError
from kdissect.exchanges.latency import Splitters
from kdissect.limits import DEFAULT
from kdissect.model import ORPHAN, Body
from kdissect.query import filters
from kdissect.query.where import compile_where
from kdissect.sinks.plan import MAX_INT64, MIN_INT64
from kdissect.tables.columns import resolve
from tests.exchange_factory import START_NS, connection, exchange

SECOND_NS = 1_000_000_000

FETCH = exchange(
    "Fetch",
    11,
    {"topics": [{"topic": "orders", "partitions": [{"partition": 3}]}]},
    {
        "error_code": 0,
        "responses": [{"topic": "orders", "partitions": [{"partition_index": 3, "error_code": 6}]}],
    },
    client_id="app-1",
    latency_ns=50_000_000,
)
PRODUCE = exchange(
    "Produce",
    3,
    {"topic_data": [{"name": "payments", "partition_data": [{"index": 0}]}]},
    {"responses": [{"name": "payments", "partition_responses": [{"index": 0, "error_code": 0}]}]},
    client_id="billing",
    request_size=2_000_000,
    latency_ns=2_000_000,
)
HEARTBEAT = exchange("Heartbeat", 4, {"group_id": "orders-group"})
DESCRIBE = exchange("DescribeGroups", 5, {"groups": ["a", "b"]}, {"groups": []})
ORPHANED = exchange(None, response={}, kind=ORPHAN)
ALL = {"fetch": FETCH, "produce": PRODUCE, "heartbeat": HEARTBEAT, "describe": DESCRIBE, "orphan": ORPHANED}


def passed(**criteria: Any) -> str:
    chosen = filters.build(**criteria)
    return " ".join(name for name, item in ALL.items() if chosen.matches(item))


@pytest.mark.parametrize(
    ("criteria", "names"),
    [
        ({}, "fetch produce heartbeat describe orphan"),
        ({"api": ["Fetch"]}, "fetch"),
        ({"api": ["fetch", "12"]}, "fetch heartbeat"),
        ({"api": ["describe-groups"]}, "describe"),
        ({"topic": ["orders"]}, "fetch"),
        ({"topic": ["order"]}, ""),
        ({"topic": ["ord*", "pay?ents"]}, "fetch produce"),
        ({"topic": ["[op]*s"]}, "fetch produce"),
        ({"partition": ["3"]}, "fetch"),
        ({"partition": ["0", "3"]}, "fetch produce"),
        ({"partition": ["orders:3"]}, "fetch"),
        ({"partition": ["orders-3"]}, "fetch"),
        ({"partition": ["orders:0"]}, ""),
        ({"partition": ["*:0"]}, "produce"),
        ({"partition": ["0"], "topic": ["orders"]}, ""),
        ({"partition": ["3"], "topic": ["orders"]}, "fetch"),
        ({"partition": ["payments:0"], "topic": ["orders"]}, ""),
        ({"client": ["app-1"]}, "fetch"),
        ({"client": ["app-*", "billing"]}, "fetch produce"),
        ({"client": ["10.0.0.5"]}, "fetch produce heartbeat describe orphan"),
        ({"client": ["10.0.0.5:41234"]}, "fetch produce heartbeat describe orphan"),
        ({"client": ["10.0.0.5:1"]}, ""),
        ({"group": ["orders-group"]}, "heartbeat"),
        ({"group": ["b"]}, "describe"),
        ({"group": ["orders-*", "a"]}, "heartbeat describe"),
        ({"error": ["NOT_LEADER_OR_FOLLOWER"]}, "fetch"),
        ({"error": ["not-leader-or-follower"]}, "fetch"),
        ({"error": ["6"]}, "fetch"),
        ({"error": ["*"]}, "fetch"),
        ({"error": ["not_leader*"]}, "fetch"),
        ({"error": ["OFFSET_OUT_OF_RANGE", "6"]}, "fetch"),
        ({"error": ["OFFSET_OUT_OF_RANGE"]}, ""),
        ({"kind": ["answered"]}, "fetch produce describe"),
        ({"kind": ["Orphan", "unanswered"]}, "heartbeat orphan"),
        ({"slower_than": ["49ms"]}, "fetch"),
        ({"slower_than": ["50ms"]}, ""),
        ({"slower_than": ["1s", "3ms"]}, "fetch describe"),
        ({"bigger_than": ["1MB"]}, "produce"),
        ({"bigger_than": ["1MB", "150"]}, "fetch produce describe orphan"),
        ({"bigger_than": ["200"]}, "produce"),
        ({"api": ["Fetch"], "client": ["billing"]}, ""),
        ({"api": ["Fetch,Produce"]}, "fetch produce"),
        ({"api": ["*Groups,heart*"]}, "heartbeat describe"),
        ({"api": ["!Fetch"]}, "produce heartbeat describe orphan"),
        ({"api": ["!Fetch,!Produce"]}, "heartbeat describe orphan"),
        ({"api": ["*,!Fetch"]}, "produce heartbeat describe"),
        ({"client": ["!app*"]}, "produce heartbeat describe orphan"),
        ({"client": ["app-1,billing", "!billing"]}, "fetch"),
        ({"client": ["!10.0.0.5"]}, ""),
        ({"topic": ["orders,payments"]}, "fetch produce"),
        ({"topic": ["!orders"]}, "produce heartbeat describe orphan"),
        ({"partition": ["orders:3,payments:0"]}, "fetch produce"),
        ({"partition": ["3"], "topic": ["!orders"]}, ""),
        ({"group": ["!orders-*"]}, "fetch produce describe orphan"),
        ({"group": ["a,b"]}, "describe"),
        ({"error": ["6,OFFSET_OUT_OF_RANGE"]}, "fetch"),
        ({"error": ["*,!6"]}, ""),
        ({"error": ["!*leader*"]}, "produce heartbeat describe orphan"),
        ({"kind": ["orphan,un*"]}, "heartbeat orphan"),
        ({"kind": ["!answered"]}, "heartbeat orphan"),
        ({"api": ["Fetch"], "client": ["app-1"], "error": ["*"], "topic": ["o*"]}, "fetch"),
    ],
    ids=str,
)
def test_criteria(criteria: dict[str, Any], names: str) -> None:
    assert passed(**criteria) == names


@pytest.mark.parametrize(
    ("api", "version", "request_", "response"),
    [
        ("DescribeConfigs", 1, {"resources": [{"resource_type": 2, "resource_name": "orders"}]}, None),
        ("AlterConfigs", 2, {"resources": [{"resource_type": 2, "resource_name": "orders"}]}, None),
        ("IncrementalAlterConfigs", 1, {"resources": [{"resource_type": 2, "resource_name": "orders"}]}, {}),
        ("IncrementalAlterConfigs", 1, {}, {"responses": [{"resource_type": 2, "resource_name": "orders"}]}),
        ("CreateAcls", 3, {"creations": [{"resource_type": 2, "resource_name": "orders"}]}, None),
        ("DescribeAcls", 3, {"resource_type_filter": 2, "resource_name_filter": "orders"}, None),
        ("DescribeAcls", 3, None, {"resources": [{"resource_type": 2, "resource_name": "orders"}]}),
        (
            "DeleteAcls",
            3,
            {"filters": [{"resource_type_filter": 2, "resource_name_filter": "orders"}]},
            {"filter_results": [{"matching_acls": None}]},
        ),
        (
            "DeleteAcls",
            3,
            {"filters": [{"resource_type_filter": 2, "resource_name_filter": None}, {}]},
            {"filter_results": [{"matching_acls": [{"resource_type": 2, "resource_name": "orders"}]}]},
        ),
        (
            "ListConfigResources",
            1,
            {},
            {"config_resources": [{"resource_name": "orders", "resource_type": 2}]},
        ),
    ],
)
def test_a_topic_matches_requests_about_its_configs_or_acls(
    api: str, version: int, request_: Body | None, response: Body | None
) -> None:
    item = exchange(api, version, request_, response, kind="answered")
    assert filters.build(topic=["orders"]).matches(item)
    assert filters.build(topic=["ord*"]).matches(item)
    assert not filters.build(topic=["payments"]).matches(item)


@pytest.mark.parametrize(
    ("text", "matching", "others"),
    [
        ("a,b", ["a", "b", "a,b"], ["c", "a,b,c"]),
        (r"a\,b", ["a,b", r"a\,b"], ["a", "b"]),
        (r"\!a", ["!a"], ["a", "b"]),
        ("!a", ["b", "!a"], ["a"]),
        (r"a\*", ["a*"], ["ab", "a"]),
        (r"a\*,b*", ["a*", "bc"], ["ab"]),
        (r"[ab]\[", ["a["], ["a", "c["]),
        (r"a\\b", [r"a\b"], ["ab"]),
        ("a*,!ab", ["a", "ac"], ["ab", "b"]),
        ("", [""], ["a"]),
        (",", [","], ["a", ""]),
    ],
)
def test_lists_globs_negation_and_escapes(text: str, matching: list[str], others: list[str]) -> None:
    test = filters.NameTest([text])
    assert [name for name in (*matching, *others) if test(name)] == matching


def test_a_list_with_an_unknown_name() -> None:
    with pytest.raises(UsageError, match='unknown API "Fecth"; did you mean "Fetch"'):
        filters.build(api=["Produce,Fecth"])
    with pytest.raises(UsageError, match='no API name matches "x\\*"'):
        filters.build(api=["!x*"])


def test_a_group_with_the_name_of_a_topic_is_no_topic() -> None:
    groups = {"resources": [{"resource_type": 32, "resource_name": "orders"}]}
    assert not filters.build(topic=["orders"]).matches(exchange("DescribeConfigs", 4, groups))


@pytest.mark.parametrize(
    ("criteria", "text"),
    [
        ({"topic": ["order"]}, 'no topic "order"; did you mean "orders"?'),
        ({"topic": ["x", "y*"]}, 'no topic "x", "y*"; kdissect summary --by topic lists topics'),
        ({"client": ["ap-1"]}, 'no client "ap-1"; did you mean "app-1"?'),
        ({"client": ["10.0.0.5:41235"]}, 'no client "10.0.0.5:41235"; did you mean "10.0.0.5:41234"?'),
        ({"group": ["order-group"]}, 'no group "order-group"; did you mean "orders-group"?'),
        ({"topic": ["orders"], "group": ["orders-group"]}, ""),
        (
            {"api": ["Fetch"], "topic": ["zzz"], "group": ["zzz"]},
            (
                'no topic "zzz"; kdissect summary --by topic lists topics; '
                'no group "zzz"; kdissect summary --by group lists groups'
            ),
        ),
        ({"api": ["Metadata"]}, ""),
    ],
    ids=str,
)
def test_missing_names_and_suggestions(criteria: dict[str, Any], text: str) -> None:
    chosen = filters.build(**criteria)
    for item in ALL.values():
        assert not chosen.matches(item)
        chosen.note_unmatched(item)
    assert chosen.unmet() == text


@pytest.mark.parametrize(
    ("since", "until"),
    [
        ("10:16", "10:15"),
        ("10:16", "10:16"),
        ("2026-11-22", "2026-11-21T23:00Z"),
        ("1790000000", "1970-01-02"),
    ],
)
def test_a_time_that_cannot_be(since: str, until: str) -> None:
    with pytest.raises(UsageError, match=f"empty time range: since {since}, until {until}"):
        filters.build(since=[since], until=[until])


def test_since_a_day_until_an_hour_may_be() -> None:
    filters.build(since=["2026-11-21"], until=["10:15"])
    filters.build(since=["10:15", "10:20"], until=["10:17"])


@pytest.mark.parametrize(
    ("text", "inside"),
    [
        ("2026-09-21T14:13:20.123456789Z", True),
        ("2026-09-21T14:13:20.123456790Z", False),
        ("2026-09-21", True),
        ("2026-09-22", False),
        ("14:13", True),
        ("14:14", False),
        ("16:13+02:00", True),
        ("16:14+02:00", False),
        ("1790000000", True),
    ],
)
def test_since(text: str, inside: bool) -> None:
    assert filters.build(since=[text]).matches(FETCH) is inside


@pytest.mark.parametrize(
    ("text", "inside"),
    [
        ("2026-09-21T14:13:20.123456789Z", False),
        ("2026-09-21T14:13:20.123456790Z", True),
        ("14:14", True),
    ],
)
def test_until(text: str, inside: bool) -> None:
    assert filters.build(until=[text]).matches(FETCH) is inside


def test_the_widest_of_several_times_counts() -> None:
    chosen = filters.build(since=["14:14", "14:13"], until=["14:13", "14:14"])
    assert chosen.matches(FETCH)


def test_clock_times_are_of_the_first_exchanges_day() -> None:
    chosen = filters.build(since=["14:00"], until=["15:00"])
    assert chosen.matches(FETCH)
    assert not chosen.matches(exchange(time_ns=START_NS + 24 * 3600 * SECOND_NS))
    later = filters.build(since=["00:00"], kind=["orphan"])
    assert not later.matches(FETCH), "an exchange that another criterion excludes also sets the day"
    assert not later.matches(exchange(None, response={}, time_ns=START_NS - 24 * 3600 * SECOND_NS))


def test_begin_sets_the_day() -> None:
    chosen = filters.build(until=["15:00"])
    chosen.begin(START_NS - 24 * 3600 * SECOND_NS)
    assert not chosen.matches(FETCH)
    filters.build().begin(START_NS)


def test_connection_by_the_beginning_of_its_id() -> None:
    other = exchange(connection=connection("beef"))
    chosen = filters.build(connection=["c0f", "x"])
    assert (chosen.matches(FETCH), chosen.matches(other)) == (True, False)


def test_topic_by_id_or_by_the_name_it_has() -> None:
    sample = exchange("Fetch", 13, {"topics": [{"topic_id": "the-id"}]}, topic_ids={"the-id": "orders"})
    assert filters.build(topic=["the-id"]).matches(sample)
    assert filters.build(topic=["orders"]).matches(sample)


def built(where: str = "", **criteria: Any) -> filters.Filter:
    return filters.build(**criteria, where=compile_where(where, resolve) if where else None)


def test_where_is_one_more_criterion() -> None:
    chosen = built("response != null", api=["Fetch", "Heartbeat"])
    assert [chosen.matches(item) for item in (FETCH, HEARTBEAT, PRODUCE)] == [True, False, False]


@pytest.mark.parametrize(
    ("criteria", "needs_bodies"),
    [
        ({}, False),
        (
            {
                "api": ["Fetch"],
                "client": ["a"],
                "kind": ["orphan"],
                "slower_than": ["1ms"],
                "bigger_than": ["1"],
            },
            False,
        ),
        ({"since": ["10:00"], "until": ["11:00"], "connection": ["a"]}, False),
        ({"topic": ["a"]}, True),
        ({"partition": ["1"]}, True),
        ({"group": ["a"]}, True),
        ({"error": ["*"]}, True),
        ({"where": "response"}, True),
        ({"where": "latency > 1ms"}, False),
    ],
    ids=str,
)
def test_needs_bodies(criteria: dict[str, Any], needs_bodies: bool) -> None:
    assert built(**criteria).needs_bodies is needs_bodies


@pytest.mark.parametrize(
    ("criteria", "is_simple", "is_decidable"),
    [
        ({"api": ["Fetch"], "client": ["a"], "connection": ["1"], "kind": ["answered"]}, True, True),
        ({"since": ["10:00"], "slower_than": ["1ms"], "bigger_than": ["1KB"]}, True, True),
        ({"api": ["Fetch"], "topic": ["a"]}, False, True),
        ({"error": ["!UNKNOWN*"]}, True, True),
        ({"where": "api_version > 3 or latency > 1s"}, True, True),
        ({"where": "request_bytes > response_bytes"}, True, True),
        ({"where": "not request"}, False, False),
        ({"where": "not request.topics"}, False, True),
        ({"where": "len(topics) > 1"}, False, True),
        ({"where": "request.topics and api == 'Fetch'"}, False, True),
    ],
    ids=str,
)
def test_what_the_core_can_decide(criteria: dict[str, Any], is_simple: bool, is_decidable: bool) -> None:
    chosen = built(**criteria)
    assert (chosen.is_simple, chosen.is_decidable) == (is_simple, is_decidable)


CONTEXT: Any = SimpleNamespace(names=SimpleNamespace(name=None), limits=DEFAULT, splitters=Splitters(DEFAULT))


def core_test(text: str) -> Any:
    """What the core gets of an expression, without the functions in it."""

    def shown(test: Any) -> Any:
        if type(test) in (tuple, list):
            return type(test)(map(shown, test))
        return None if callable(test) else test

    conditions = built(text).conditions(CONTEXT)
    (test,) = (*conditions.of_header, *conditions.of_bodies)
    return shown(test)


def values(*sources: tuple[str, Any], ranges: Any = None) -> tuple[Any, ...]:
    return "values", list(sources), ranges, None


def of_body(test: tuple[Any, ...]) -> tuple[Any, ...]:
    """A test of the APIs that have a field; of all others, the client decides."""
    return "or", [("of_client", 0), ("and", [("of_client", 1), test])]


def number(name: str, *ranges: tuple[int, int], if_absent: bool = False) -> tuple[Any, ...]:
    return "number", name, list(ranges), if_absent


@pytest.mark.parametrize(
    ("text", "test"),
    [
        ("latency > 1.5ms", number("latency_us", (1501, MAX_INT64))),
        ("1.5 <= response_bytes", number("response_bytes", (2, MAX_INT64))),
        ("packet < 7.5", number("packet", (MIN_INT64, 7))),
        ("packet == 7.5", number("packet")),
        ("number in (1, 3..5)", number("number", (3, 5), (1, 1))),
        ("number != 3", ("not", number("number", (3, 3), if_absent=True))),
        ("total_us == null", number("total_us", if_absent=True)),
        ("total_us != null", number("total_us", (MIN_INT64, MAX_INT64))),
        ("packet > 1e300", number("packet")),
        (f"packet > {'9' * 400}", number("packet")),
        ("number in (1, null)", values(("number", "number"))),
        ("topic != 10.0.0.1", values(("mention", "topic"))),
        (
            "request_bytes > response_bytes",
            values(("number", "request_bytes"), ("number", "response_bytes")),
        ),
        ("latency_us + 1 > 2", values(("number", "latency_us"))),
        ("all(packet) > 2", values(("number", "packet"))),
        ("service_us > 5", number("service_us", (6, MAX_INT64))),
        ("service_us > api_version", ("left",)),
        ("1 < packet < 3", ("and", [number("packet", (2, MAX_INT64)), number("packet", (MIN_INT64, 2))])),
        ("api == 'Fetch' or client_port > 5", ("of_client", 0)),
        ("not errors", ("errors", True)),
        ("any(errors) =~ 'X'", ("errors", False)),
        ("'a' in topics", ("mentions", "topics", None, (False, False))),
        (
            "topic =~ 'a' and packet == 2",
            ("and", [number("packet", (2, 2)), ("mentions", "topic", None, (False, False))]),
        ),
        ("'a' not in topics", values(("mention", "topics"))),
        ("group_id == null", values(("mention", "group_id"))),
        (
            "len(topics) > 2 or packet == 2",
            ("or", [number("packet", (2, 2)), values(("mention", "topics"))]),
        ),
        (
            "request.max_bytes > 5",
            of_body(values(("field", 0), ranges=[(6, MAX_INT64)])),
        ),
        ("request.group_id == 'a'", of_body(values(("field", 0)))),
        ("request.max_bytes != 5", of_body(values(("field", 0)))),
        ("request._tags", of_body(("left",))),
        ("time in '2026, 2027'", ("left",)),
        ("time contains '2026'", ("left",)),
    ],
)
def test_the_core_gets_the_parts_of_an_expression(text: str, test: Any) -> None:
    assert core_test(text) == test


@pytest.mark.parametrize(
    ("text", "left"),
    [  # Produce, Fetch, Metadata, OffsetFetch of version 8, and an unknown API
        ("request.max_bytes > 5", [1]),
        ("request.topics.partitions.fetch_offset == null", [1, 3, 9]),
        ("request.topics.partitions.fetch_offset > 5", [1]),
        ("request.group_id != 'a'", [9]),
    ],
)
def test_what_lacks_a_field_depends_on_the_client(text: str, left: list[int]) -> None:
    conditions = built(text).conditions(CONTEXT)
    ((_, tests),) = conditions.of_bodies
    _, ((_, place), last) = tests[-1]
    assert last[0] == "values"
    keys = [0, 1, 3, 9, 9999]
    bits = [conditions.of_client(connection(), (None,) * 4, True, key, 8, "app") for key in keys]
    assert [key for key, bit in zip(keys, bits, strict=True) if bit >> place & 1] == left
    has_value = "null" in text
    assert all((bit & 1) == has_value for key, bit in zip(keys, bits, strict=True) if key not in left)


def test_names_are_compared_as_in_lists() -> None:
    for text, name, is_selected in [
        ("'orders' in topics", "orders", True),
        ("'ord' in topics", "orders", False),
        ("'ord' in group_id", "orders", True),
        ("topics contains 'ord'", "orders", True),
        ("group in ('a', 'b')", "b", True),
        ("group_id != 'a'", "a", False),
    ]:
        (test,) = built(text).conditions(CONTEXT).of_bodies
        assert test[2](name, None) == is_selected, text


def test_conditions_are_the_criteria() -> None:
    chosen = filters.build(
        api=["!Produce"],
        client=["app-*"],
        kind=["unacknowledged"],
        slower_than=["2ms", "1ms"],
        bigger_than=["99999999TB"],
        topic=["a*,!ab"],
        since=["00:00:10"],
    )
    day_ns = 86_400 * SECOND_NS
    assert chosen.conditions(CONTEXT).times_ns == (MIN_INT64, MAX_INT64)
    chosen.begin(3 * day_ns + 5)
    conditions = chosen.conditions(CONTEXT)
    assert conditions.times_ns == (3 * day_ns + 10 * SECOND_NS, MAX_INT64)
    assert conditions.of_header == [
        ("of_client", 0),
        number("latency_ns", (1_000_001, MAX_INT64)),
        ("or", [number("request_bytes"), number("response_bytes")]),
    ]
    clients = [(1, "app-1"), (0, "app-1"), (1, "billing"), (9999, "app-2"), (1, None)]
    matching = [
        conditions.of_client(connection(), (None,) * 4, False, key, 3, client) for key, client in clients
    ]
    assert matching == [1, 0, 0, 1, 0]
    assert not conditions.of_client(connection(), (None,) * 4, True, 1, 3, "app-1")
    topics, names = chosen.notes.unmatched
    assert {"app-1", "billing", "app-2"} < names
    ((_, kind, classify, results),) = conditions.of_bodies
    assert (kind, results) == ("topic", (False, True))
    assert [classify(name, None) for name in ("aa", "ab", "b")] == [1, 2, 0]
    conditions.note_name("topic", "abc")
    assert topics == {"abc"}
    conditions.note_ids(["id"])
    assert (chosen.notes.unnamed, chosen.notes.unnamed_ids) == (1, {"id"})


def test_matches_header_needs_no_body() -> None:
    chosen = filters.build(api=["Fetch"], topic=["nothing"])
    assert chosen.matches_header(FETCH)
    assert not chosen.matches(FETCH)
    assert not chosen.matches_header(PRODUCE)


@pytest.mark.parametrize(
    ("criteria", "text"),
    [
        ({"api": ["Fetsh"]}, 'did you mean "Fetch"?'),
        ({"error": ["NOT_LEADER"]}, 'unknown error "NOT_LEADER"; did you mean "NOT_'),
        ({"error": ["QQQ*"]}, 'no error name matches "QQQ*"'),
        ({"kind": ["pending"]}, "pending is an outcome, not a kind; use -Y 'outcome == \"pending\"'"),
        (
            {"kind": ["orphans"]},
            'unknown kind "orphans"; did you mean "orphan"?',
        ),
        ({"partition": ["orders"]}, 'invalid partition "orders": use 3 or orders-3'),
        ({"partition": ["-1"]}, 'invalid partition "-1": use '),
        ({"slower_than": ["50"]}, 'invalid duration "50": use a number and a unit: 50ms'),
        ({"bigger_than": ["big"]}, 'invalid size "big": use '),
        ({"since": ["soon"]}, 'invalid time "soon": use '),
        ({"until": ["26:00"]}, 'invalid time "26:00": hour must be in 0..23'),
    ],
    ids=str,
)
def test_errors_suggest_the_nearest_name(criteria: dict[str, Any], text: str) -> None:
    with pytest.raises(UsageError) as caught:
        filters.build(**criteria)
    assert text in str(caught.value)


def test_serious_errors() -> None:
    expected = exchange("Heartbeat", 3, {}, {"error_code": 27}, expected_errors=("REBALANCE_IN_PROGRESS",))
    serious = exchange("Heartbeat", 3, {}, {"error_code": 25})
    fine = exchange("Heartbeat", 3, {}, {"error_code": 0})
    for texts, matching in (
        (["serious"], [False, True, False]),
        (["*"], [True, True, False]),
        (["Serious", "REBALANCE_IN_PROGRESS"], [True, True, False]),
        (["*,!serious"], [True, False, False]),
    ):
        assert [filters.build(error=texts).matches(each) for each in (expected, serious, fine)] == matching
