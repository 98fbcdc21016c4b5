"""The samples were recorded with brokers of known releases."""

from __future__ import annotations

from pathlib import Path

import pytest

from kdissect import dissect, open_capture
from kdissect.stats.releases import guess, order, removed_in

RELEASES = {
    "kafka-0.10.2": "0.10.2",
    "kafka-0.11": "0.11.0",
    "kafka-1.1": "1.1",
    "kafka-2.8": "2.8",
    "kafka-3.9-zookeeper": "3.9",
    "kafka-4-basics": "4.4",
    "kafka-4-kraft": "4.4",
    "mock-librdkafka": None,  # no release of Kafka at all
}


@pytest.mark.parametrize(("sample", "release"), RELEASES.items())
def test_brokers_are_what_they_are(sample: str, release: str | None) -> None:
    (path,) = [
        path for suffix in ("pcap", "pcap.gz") if (path := Path(f"samples/{sample}.{suffix}")).exists()
    ]
    guesses: set[str | None] = set()
    with open_capture(path) as packets:
        for exchange in dissect(packets):
            if exchange.api == "ApiVersions" and exchange.response and exchange.response.get("api_keys"):
                offered = exchange.response["api_keys"]
                guesses.add(
                    guess({each["api_key"]: (each["min_version"], each["max_version"]) for each in offered})
                )
    assert guesses == {release}


def test_releases_have_an_order() -> None:
    names = ["0.8.2", "0.10.0", "0.10.2", "0.11.0", "1.0", "2.8", "3.9", "3.10", "4.0", "4.1.0"]
    shuffled = [names[place] for place in (3, 9, 0, 7, 5, 1, 8, 2, 6, 4)]
    assert sorted(shuffled, key=order) == names
    assert order("4.0.0") == order("4.0")


@pytest.mark.parametrize(
    ("api_key", "version", "release"),
    [
        (0, 2, "4.0.0"),
        (0, 3, None),
        (1, 3, "4.0.0"),
        (11, 0, None),  # JoinGroup 0 and 1 came back in 4.0.1
        (4, 0, "4.0.0"),  # LeaderAndIsr, with ZooKeeper
        (999, 0, None),
    ],
)
def test_what_newer_brokers_refuse(api_key: int, version: int, release: str | None) -> None:
    assert removed_in(api_key, version) == release


def test_nothing_offered_is_no_release() -> None:
    assert guess({}) is None
    assert guess({9999: (0, 1)}) is None
