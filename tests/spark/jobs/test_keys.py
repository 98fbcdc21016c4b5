from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from kdissect.errors import UsageError
from kdissect.spark.jobs import keys
from kdissect.spark.tables import rows
from kdissect.tables import duck

if TYPE_CHECKING:
    from collections.abc import Callable

    Grouping = Callable[..., list[list[Any]]]


@pytest.fixture(params=["spark", "database"])
def group(request: pytest.FixtureRequest) -> Grouping:
    """Group the rows of a query, on each engine."""
    engine = request.getfixturevalue(request.param)

    def run(text: str, by: list[str], window: str | None = None) -> list[list[Any]]:
        frame = engine.sql(text) if request.param == "spark" else duck.sql(engine, text)
        grouped = keys.aggregate("rows", by, window, keys.OF_EXCHANGE, {"n": "count(*)"}, "order by all")
        return [row[:-1] for row in rows(keys.query(grouped, rows=frame))]

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


@pytest.mark.parametrize(("by", "window", "message"), [
    (["cleint"], None, 'cannot group by "cleint"; did you mean "client"'),
    ([], "10", 'invalid duration "10"'),
    ([], "10ns", "is too short"),
])  # fmt: skip
def test_invalid_arguments_are_reported(by: list[str], window: str | None, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        keys.aggregate("rows", by, window, keys.OF_EXCHANGE, {})
