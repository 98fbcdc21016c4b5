"""API versions that a broker supports -> its release of Apache Kafka. Caches the versions of each release.

Releases, and the versions each added and removed, are listed in kafka/apis.tsv.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

from kdissect.kafka import apis

if TYPE_CHECKING:
    from collections.abc import Mapping

_API_VERSIONS = 18
_MAX_MISMATCHES = 0.1  # of the APIs: a patch release or a setting may differ in some


def order(release: str) -> tuple[int, ...]:
    """Sort key of a release: ``3.10`` is later than ``3.9``, and ``4.0.0`` is ``4.0``."""
    numbers = tuple(map(int, release.split(".")))
    return numbers if numbers[0] == 0 else numbers[:2]


def removed_in(api_key: int, version: int) -> str | None:
    """The first release that rejects this version; None if current releases accept it."""
    api = apis.by_key(api_key)
    if api is None or version in api.restored:
        return None
    return api.removed.get(version)


def guess(offered: Mapping[int, tuple[int, int]]) -> str | None:
    """The release, or the first and last possible one: ``4.1``, ``3.7 to 3.8``.

    Args:
        offered: API key -> first and last version, from the ApiVersions response.

    Returns:
        None if no release matches: not Apache Kafka, or a newer release.
    """
    offered = {key: versions for key, versions in offered.items() if apis.by_key(key) is not None}
    if not offered:
        return None
    mismatches = {
        release: sum(1 for key, (_, last) in offered.items() if latest.get(key) != last)
        for release, latest in _latest().items()
        if _API_VERSIONS in latest  # earlier ones have no ApiVersions
    }
    fewest = min(mismatches.values())
    if fewest > _MAX_MISMATCHES * len(offered):
        return None
    nearest = [release for release, count in mismatches.items() if count == fewest]
    return nearest[0] if len(nearest) == 1 else f"{nearest[0]} to {nearest[-1]}"


@cache
def _latest() -> dict[str, dict[int, int]]:
    """Each release in order -> the last version of each API."""
    named = {release for api in apis.all_apis() for release in api.introduced.values()}
    releases = sorted({".".join(map(str, order(release))) for release in named}, key=order)
    return {release: _versions_in(release) for release in releases}


def _versions_in(release: str) -> dict[int, int]:
    offered: dict[int, int] = {}
    for api in apis.all_apis():
        versions = [
            version
            for version, since in api.introduced.items()
            if order(since) <= order(release) and not _is_removed(api, version, release)
        ]
        if versions:
            offered[api.key] = max(versions)
    return offered


def _is_removed(api: apis.Api, version: int, release: str) -> bool:
    removed = api.removed.get(version)
    return removed is not None and version not in api.restored and order(removed) <= order(release)
