from __future__ import annotations

from functools import partial
from math import ceil
from random import Random
from typing import TYPE_CHECKING, Any

import pytest

from kdissect.errors import UsageError
from kdissect.spark.jobs import keys
from kdissect.spark.tables import rows
from kdissect.stats.quantiles import EXACT, Quantiles, middle_of
from kdissect.tables import duck
from tests.row_assertions import as_json

if TYPE_CHECKING:
    from collections.abc import Callable

    Frames = Callable[[str], Any]
    Grouping = Callable[..., list[list[Any]]]


@pytest.fixture(params=["spark", "database"])
def frame(request: pytest.FixtureRequest) -> Frames:
    """The rows of a query, on each engine."""
    engine = request.getfixturevalue(request.param)
    return engine.sql if request.param == "spark" else partial(duck.sql, engine)  # type: ignore[no-any-return]


@pytest.fixture
def group(frame: Frames) -> Grouping:
    """Group the rows of a query."""

    def run(text: str, by: list[str], window: str | None = None) -> list[list[Any]]:
        grouped = keys.aggregate("rows", by, window, keys.OF_EXCHANGE, {"n": "count(*)"}, "order by all")
        return [row[:-1] for row in rows(keys.query(grouped, rows=frame(text)))]

    return run


def test_keys_are_what_the_summary_calls_rows(group: Grouping) -> None:
    text = (
        "select cast(null as string) api, cast(99 as smallint) api_key, 'answered' kind, 1 correlation_id, "
        "'' client_id, '::1' client_ip, '::1' broker_ip, 9092 broker_port, "
        "'librdkafka' client_software_name, "
        "cast(null as string) client_software_version"
    )
    assert group(text, ["api", "client", "broker", "software"]) == [
        ["api 99", "::1", "[::1]:9092", "librdkafka"]
    ]


def test_what_has_no_api_key_is_called_as_the_summary_calls_it(group: Grouping) -> None:
    text = (
        "select cast(null as string) api, cast(null as smallint) api_key, kind, id correlation_id "
        "from (values ('orphan', 7), ('orphan', null), ('answered', null)) as t(kind, id)"
    )
    assert group(text, ["api"]) == [["SASL token"], ["unknown"]]


def test_a_window_begins_at_a_multiple_of_its_length(group: Grouping) -> None:
    text = (
        "select timestamp_micros(us) as time "
        "from (values (-1), (0), (999999), (1000000), (1799999999)) as t(us)"
    )
    assert group(text, [], "1s") == [
        ["1969-12-31T23:59:59.000000Z"],
        ["1970-01-01T00:00:00.000000Z"],
        ["1970-01-01T00:00:01.000000Z"],
        ["1970-01-01T00:29:59.000000Z"],
    ]


def test_quantiles_and_buckets_are_those_of_a_summary(frame: Frames) -> None:
    random = Random(1)
    numbers = {
        api: [random.getrandbits(random.randint(1, 53)) for _ in range(count)]
        for api, count in {"Fetch": EXACT, "Heartbeat": EXACT + 1, "Produce": 4 * EXACT}.items()
    }
    numbers["Fetch"][:9] = numbers["Produce"][:9] = [-1000, -1, 0, 127, 128, 129, 255, 256, 257]
    values = ", ".join(f"('{api}', {number})" for api in numbers for number in [*numbers[api], "null"])
    of_rows: Any = ("rows", ["api"], None, {"api": "api"})
    text = keys.with_buckets(keys.aggregate(*of_rows, keys.quantiles("us", "us")), "us", *of_rows)
    source = f"select api, cast(us as bigint) as us from (values {values}) as t(api, us)"
    for row in as_json(keys.query(text, rows=frame(source))):
        given = numbers.pop(row["api"])
        ordered, summary = sorted(max(0, number) for number in given), Quantiles()
        for number in given:
            summary.add(number)
        assert (row["min_us"], row["max_us"]) == (ordered[0], ordered[-1])
        assert row["buckets"] == [
            {"middle": middle_of(bucket), "count": count} for bucket, count in summary.buckets().items()
        ]
        for name, rank in (("p50", 0.5), ("p95", 0.95), ("p99", 0.99)):
            exact = ordered[ceil(rank * len(ordered)) - 1]
            assert abs(row[f"{name}_us"] - exact) * 128 <= (0 if len(ordered) <= EXACT else exact)
            assert [row[f"{name}_us"]] == summary.at((rank,))
    assert not numbers


@pytest.mark.parametrize(("by", "window", "message"), [
    (["cleint"], None, 'cannot group by "cleint"; did you mean "client"'),
    ([], "10", 'invalid duration "10"'),
    ([], "10ns", "is too short"),
])  # fmt: skip
def test_invalid_arguments_are_reported(by: list[str], window: str | None, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        keys.aggregate("rows", by, window, keys.OF_EXCHANGE, {})
