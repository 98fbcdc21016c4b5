"""Exchanges -> the API versions that each client uses, and which of them newer brokers reject."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as F  # noqa: N812

from kdissect.kafka import apis
from kdissect.spark.jobs import keys
from kdissect.stats import releases

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pyspark.sql import DataFrame

TABLES = ("exchanges",)
BY: Mapping[str, str] = {}
USUAL: Sequence[str] = ()


def versions(exchanges: DataFrame) -> DataFrame:
    """API versions in use, those that newer brokers reject (KIP-896) first: an audit before an upgrade.

    Counts are those of ``kdissect summary --versions``.

    Args:
        exchanges: the table.

    Returns:
        client string: client ID, or the address of a client without one
        software string: name and version of its library, if its ApiVersions request was captured
        addresses array<string>: addresses of the client
        api string: name of the API
        api_key smallint: API key
        version smallint: API version of the requests
        since string: the release of Apache Kafka that introduced this version
        removed string: the release since which brokers reject it; null if current brokers support it
        count bigint: number of requests
        first timestamp: time of the first
        last timestamp: time of the last
        example string: CONNECTION/NUMBER of the first, for ``read --exchange``
    """
    requests = exchanges.where(
        "api_key is not null and api_version is not null and request_bytes is not null"
    )
    frame, names = keys.keyed(requests, ("client", "software", "api"), None, keys.OF_EXCHANGE)
    counts = frame.groupBy(*names, "api_key", F.col("api_version").alias("version")).agg(
        F.sort_array(F.collect_set("client_ip")).alias("addresses"),
        F.count("*").alias("count"),
        F.min("time").alias("first"),
        F.max("time").alias("last"),
        F.expr(f"min(struct(time_ns, connection, number, {keys.EXAMPLE} as example)).example").alias(
            "example"
        ),
    )
    known = exchanges.sparkSession.createDataFrame(
        [
            (api.key, version, api.introduced.get(version), releases.removed_in(api.key, version))
            for api in apis.all_apis()
            for version in range(api.versions.first, api.versions.last + 1)
        ],
        "api_key smallint, version smallint, since string, removed string",
    )
    rows = counts.join(F.broadcast(known), ["api_key", "version"], "left").select(
        *("client", "software", "addresses", "api", "api_key", "version", "since", "removed"),
        *("count", "first", "last", "example"),
    )
    return rows.orderBy(F.isnull("removed"), "client", F.expr("coalesce(software, '')"), "api_key", "version")
