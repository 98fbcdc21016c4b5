"""Exchanges -> the API versions that each client uses, and which of them newer brokers reject."""

from __future__ import annotations

from typing import TYPE_CHECKING

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
    values = {
        "api_key": "api_key",
        "version": "api_version",
        "addresses": "sort_array(array_agg(distinct client_ip))",
        "count": "count(*)",
        "first": "min(time)",
        "last": "max(time)",
        "example": keys.EXAMPLE,
    }
    requests = "api_key is not null and api_version is not null and request_bytes is not null"
    counts = keys.aggregate(
        keys.exchanges((), requests), ("client", "software", "api"), None, keys.OF_EXCHANGE, values
    )
    known = ",\n  ".join(
        f"({api.key}, {version}, {_text(api.introduced.get(version))}, "
        f"{_text(releases.removed_in(api.key, version))})"
        for api in apis.all_apis()
        for version in range(api.versions.first, api.versions.last + 1)
    )
    text = f"""with counts as (
{counts}),
known(api_key, version, since, removed) as (values
  {known}
)
select client, software, addresses, api, api_key, version, since, removed,
  counts.count, counts.first, counts.last, example
from counts left join known using (api_key, version)
order by removed is null, client, coalesce(software, ''), api_key, version
"""
    return keys.query(text, exchanges=exchanges)


def _text(value: str | None) -> str:
    return "null" if value is None else f"'{value}'"
