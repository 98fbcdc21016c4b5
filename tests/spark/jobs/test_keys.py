from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from kdissect.errors import UsageError
from kdissect.spark.jobs import keys

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_keys_are_what_the_summary_calls_rows(spark: SparkSession) -> None:
    frame = spark.sql(
        "select cast(null as string) api, 99S api_key, 'answered' kind, 1 correlation_id, '' client_id, "
        "'::1' client_ip, '::1' broker_ip, 9092 broker_port, 'librdkafka' client_software_name, "
        "cast(null as string) client_software_version"
    )
    result, names = keys.keyed(frame, ["api", "client", "broker", "software"], None, keys.OF_EXCHANGE)
    (row,) = result.select(*names).collect()
    assert tuple(row) == ("api 99", "::1", "[::1]:9092", "librdkafka")


def test_what_has_no_api_key_is_called_as_the_summary_calls_it(spark: SparkSession) -> None:
    frame = spark.sql(
        "select cast(null as string) api, cast(null as smallint) api_key, kind, id correlation_id "
        "from values ('orphan', 7), ('orphan', null), ('answered', null) as t(kind, id)"
    )
    result, names = keys.keyed(frame, ["api"], None, keys.OF_EXCHANGE)
    assert [row.api for row in result.select(*names).collect()] == ["unknown", "SASL token", "SASL token"]


def test_a_window_begins_at_a_multiple_of_its_length(spark: SparkSession) -> None:
    frame = spark.sql("select explode(array(-1, 0, 999999, 1000000, 1799999999)) us").selectExpr(
        "timestamp_micros(us) time"
    )
    result, names = keys.keyed(frame, [], "1s", {})
    assert names == ["start"]
    starts = result.selectExpr("unix_micros(start) us").collect()
    assert [row.us for row in starts] == [-1_000_000, 0, 0, 1_000_000, 1_799_000_000]


@pytest.mark.parametrize(("by", "window", "message"), [
    (["cleint"], None, 'cannot group by "cleint"; did you mean "client"'),
    ([], "10", 'invalid duration "10"'),
    ([], "10ns", "is too short"),
])  # fmt: skip
def test_invalid_arguments_are_reported(
    spark: SparkSession, by: list[str], window: str | None, message: str
) -> None:
    with pytest.raises(UsageError, match=message):
        keys.keyed(spark.sql("select now() time"), by, window, keys.OF_EXCHANGE)
