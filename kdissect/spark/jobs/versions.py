"""Exchanges -> which client speaks which version of which api, and what of that a newer Kafka refuses."""

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
    """Versions in use, what a newer Kafka refuses first (KIP-896): the audit before an upgrade.

    Counts are those of ``kdissect summary --versions``.

    Args:
        exchanges: the table.

    Returns:
        client string: client id, or the address of a client that told none
        software string: name and version of its library, where ApiVersions told it
        addresses array<string>: where from
        api string: the api
        api_key smallint: its key
        version smallint: the version of the requests
        since string: the release of Apache Kafka that brought this version
        removed string: the release from which on brokers refuse it; null where today's take it
        count bigint: how many requests
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
