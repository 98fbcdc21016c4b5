from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from kdissect import dissect, open_capture, summarize
from kdissect.names import kept
from samples.golden import captures, name_of
from tests.exchange_factory import connection, exchange

if TYPE_CHECKING:
    from kdissect.stats.document import VersionsPart

UNLIKE = {"tls", "midstream", "http-on-9092"}


def truth(path: Path) -> list[dict[str, Any]]:
    rows = json.loads(Path(f"samples/{name_of(path)}.truth.json").read_text())["requests"]
    return [row for row in rows if row["client_id"] and row["api"] and not row["api"].isdecimal()]


TELLING = [path for path in captures() if name_of(path) not in UNLIKE and truth(path)]


def versions(*exchanges: Any) -> VersionsPart:
    versions = summarize(exchanges, parts=["versions"]).versions
    assert versions is not None
    return versions


@pytest.mark.parametrize("path", TELLING, ids=name_of)
def test_versions_are_those_that_the_clients_used(path: Path) -> None:
    with open_capture(path) as packets:
        part = versions(*dissect(packets))
    logged = Counter((kept(row["client_id"]), row["api"], row["version"]) for row in truth(path))
    telling = {client for client, _, _ in logged}
    seen: Counter[tuple[str, str, int]] = Counter()
    for row in part.used:
        if row.client in telling and not row.api.startswith("api "):
            seen[row.client, row.api, row.version] += row.count
    assert seen == logged


def test_what_breaks_stands_first() -> None:
    old = exchange("Produce", 2, {"acks": 1, "topic_data": []}, {"responses": []}, client_id="zebra")
    new = exchange("Produce", 9, {"acks": 1, "topic_data": []}, {"responses": []}, client_id="aardvark")
    part = versions(new, old)
    assert part.rejected == 1
    assert [(row.client, row.version, row.since, row.removed) for row in part.used] == [
        ("zebra", 2, "0.10.0", "4.0.0"),
        ("aardvark", 9, "2.8", None),
    ]


def test_what_a_broker_offers_never_decides() -> None:
    # KAFKA-18659: 4.0 offers Produce 0 and refuses it.
    offered = {"error_code": 0, "api_keys": [{"api_key": 0, "min_version": 0, "max_version": 12}]}
    part = versions(
        exchange("ApiVersions", 2, {}, offered),
        exchange("Produce", 0, {"acks": 1, "topic_data": []}, {"responses": []}),
    )
    assert part.rejected == 1
    (offer,) = part.advertised
    assert (offer.api, offer.min_version, offer.max_version, offer.used) == ("Produce", 0, 12, [0])


def test_unused_versions_are_listed_by_broker() -> None:
    offered = {"error_code": 0, "api_keys": [{"api_key": 12, "min_version": 0, "max_version": 4}]}
    other = connection("beef", broker="10.0.0.2")
    part = versions(
        exchange("ApiVersions", 2, {}, offered),
        exchange("Heartbeat", 3, {"group_id": "g"}, {"error_code": 0}, connection=other),
    )
    (offer,) = part.advertised
    assert (offer.broker, offer.used) == ("10.0.0.1:9092", [])


def test_software_distinguishes_clients_of_one_name() -> None:
    exchanges = [
        exchange(
            "Heartbeat", 3, {"group_id": "g"}, {"error_code": 0}, client_id="app", client_software_name=name
        )
        for name in ("librdkafka", "apache-kafka-java")
    ]
    assert [row.software for row in versions(*exchanges).used] == ["apache-kafka-java", "librdkafka"]
