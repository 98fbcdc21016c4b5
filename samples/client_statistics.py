"""librdkafka's statistics (`statistics.interval.ms`) -> those numbers that the wire shows too."""

from __future__ import annotations

import json
import time
from collections import Counter
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from confluent_kafka import Consumer, Producer
    from truth import Truth

EVERY_MS = 250
TOTALS = ("tx", "tx_bytes", "rx", "rx_bytes", "txmsgs", "txmsg_bytes", "rxmsgs", "rxmsg_bytes")
OF_A_PARTITION = ("txmsgs", "txbytes", "rxmsgs", "rxbytes", "committed_offset", "hi_offset", "consumer_lag")


class Statistics:
    """The latest that each client said."""

    def __init__(self, truth: Truth) -> None:
        self.latest: dict[str, dict[str, Any]] = truth.facts.setdefault("statistics", {})
        self.times: dict[str, int] = {}
        self.batches: dict[str, Counter[str]] = {}

    def of(self, client_id: str) -> dict[str, Any]:
        """What to add to the settings of a client."""

        def take(text: str) -> None:
            self.times[client_id] = self.times.get(client_id, 0) + 1
            statistics = json.loads(text)
            batches = self.batches.setdefault(client_id, Counter())
            for topic in statistics["topics"].values():  # each time those since the last time
                batches["batches"] += topic["batchcnt"]["cnt"]
                batches["records"] += topic["batchcnt"]["sum"]
                batches["bytes"] += topic["batchsize"]["sum"]
            self.latest[client_id] = {**chosen(statistics), "batches": dict(batches)}

        return {"statistics.interval.ms": EVERY_MS, "stats_cb": take}

    def last(self, **clients: Consumer | Producer) -> None:
        """Serve clients that have nothing more to do, until all have said so. Consumers are paused."""
        before = {name: self.times.get(name, 0) for name in clients}
        until = time.monotonic() + 10
        # The first to come may have been made before the last answer was read.
        while any(self.times.get(name, 0) < count + 2 for name, count in before.items()):
            if time.monotonic() > until:
                raise RuntimeError(f"no statistics: {before}, {self.times}")
            for client in clients.values():
                client.poll(0.1)


def chosen(statistics: dict[str, Any]) -> dict[str, Any]:
    """Totals, requests by api, and what there is of each partition."""
    partitions = {
        f"{topic}-{number}": {name: partition[name] for name in OF_A_PARTITION}
        for topic, each in statistics["topics"].items()
        for number, partition in each["partitions"].items()
        if number != "-1"
    }
    requests: dict[str, int] = {}
    for broker in statistics["brokers"].values():
        for api, count in broker["req"].items():
            if count:
                requests[api] = requests.get(api, 0) + count
    totals = {name: statistics[name] for name in TOTALS}
    return {**totals, "requests": requests, "partitions": partitions}
