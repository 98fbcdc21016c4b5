"""Random captures of clients that produce, fetch, commit and send heartbeats, most of it as usual: for
comparisons of summaries with and without the native core.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kdissect.kafka import schema
from kdissect.kafka.layout import split
from tests.frames import request, response
from tests.record_batches import BASE_MS, GZIP, LZ4, NONE, SNAPPY, Item, batch, message_set
from tests.segments import MILLISECOND, START_NS, Talk

if TYPE_CHECKING:
    from collections.abc import Sequence
    from random import Random

    from kdissect.kafka.schema import Field

PRODUCE, FETCH, LIST_OFFSETS, OFFSET_COMMIT, OFFSET_FETCH, HEARTBEAT = 0, 1, 2, 8, 9, 12
_TOPICS = ("orders", "payments", "refunds")
_NOT_LEADER, _REBALANCING = 6, 27
_CONTROL = 0x20


def usual_traffic(random: Random, exchanges: int, *, is_old: bool = False) -> list[tuple[int, bytes]]:
    """Times and bytes of the packets of a few connections with so many exchanges each.

    ``is_old``: their records are messages of magic 0 and 1.
    """
    packets = []
    for number in range(random.randint(1, 4)):
        step_ns = random.choice((1000, MILLISECOND, 500 * MILLISECOND))
        client = (OldClient if is_old else Client)(random, number, step_ns)
        for _ in range(exchanges):
            client.talks()
        if random.random() < 0.7:
            client.talk.finish()
        packets += [(each.time_ns, each.data) for each in client.talk.packets]
    return sorted(packets, key=lambda each: each[0])


class Client:
    """A connection, and what its client does."""

    def __init__(self, random: Random, number: int, step_ns: int) -> None:
        start_ns = START_NS + random.randrange(20) * MILLISECOND
        self.talk = Talk(("10.0.0.1", 40_000 + number), start_ns=start_ns, step_ns=step_ns).handshake()
        self._random = random
        self._client_id = random.choice((None, "client", f"client-{number}"))
        self._versions = {
            PRODUCE: random.choice((3, 8, 9)),
            FETCH: random.choice((11, 12)),
            HEARTBEAT: random.choice((3, 4)),
            OFFSET_COMMIT: random.choice((7, 8)),
            LIST_OFFSETS: random.choice((2, 7)),
            OFFSET_FETCH: random.choice((3, 7, 8, 9)),
        }
        self._member = {
            "group_id": random.choice(("billing", "shipping")),
            "member_id": f"member-{number}",
            "group_instance_id": random.choice((None, f"instance-{number}")),
        }
        self._producer_id = random.choice((-1, 1000 + number))
        self._sequence = dict.fromkeys(range(9), 0)
        self._session = random.choice((0, 77, 77))
        self._replica_id = random.choice((-1, -1, 3))
        self._offset = 100
        self._generation = 1
        self._number = 0

    def talks(self) -> None:
        """An exchange, perhaps after a pause."""
        random = self._random
        if random.random() < 0.02:
            self.talk.waits(random.choice((0.01, 4.0, 11.0)))
        self._generation += random.random() < 0.02
        error = random.choice((_NOT_LEADER, _REBALANCING)) if random.random() < 0.03 else 0
        most = self._produce, self._fetch, self._heartbeat, self._commit
        work = random.choice((*most, *most, self._list_offsets, self._fetch_offsets))
        api_key, requested, responded = work(error)
        if random.random() < 0.02:
            responded["throttle_time_ms"] = random.choice((1, 30))
        version = self._versions[api_key]
        self._number += 1
        header = {"correlation_id": self._number}
        messages = schema.request(api_key), schema.response(api_key)
        requested, responded = (
            of_version(message.fields, version, body)
            for message, body in zip(messages, (requested, responded), strict=True)
            if message is not None
        )
        self.talk.client_sends(request(api_key, version, requested, client_id=self._client_id, **header))
        if random.random() < 0.1:
            self.talk.waits(random.choice((0.0001, 0.003, 0.6)))
        self.talk.broker_sends(response(api_key, version, responded, **header))

    def _records(self, partition: int, **more: Any) -> bytes:
        random = self._random
        items = [Item(b"key", b"value" * random.randint(1, 30), (), BASE_MS + place) for place in range(3)]
        items = items[: random.randint(1, 3)]
        codec = LZ4 if random.random() < 0.2 else NONE
        if self._producer_id >= 0 and "base_offset" not in more:
            more |= {
                "producer_id": self._producer_id,
                "producer_epoch": 0,
                "base_sequence": self._sequence[partition],
            }
            self._sequence[partition] += len(items) + (random.random() < 0.05)
        return batch(items, codec=codec, **more)

    def _chosen(self) -> dict[str, list[int]]:
        topics = self._random.sample(_TOPICS, self._random.choice((1, 1, 2)))
        return {topic: self._random.sample(range(3), self._random.choice((1, 1, 3))) for topic in topics}

    def _produce(self, error: int) -> tuple[int, dict[str, Any], dict[str, Any]]:
        self._offset += 5
        chosen = self._chosen()
        requested = [
            {
                "name": topic,
                "partition_data": [{"index": each, "records": self._records(each)} for each in partitions],
            }
            for topic, partitions in chosen.items()
        ]
        responded = [
            {
                "name": topic,
                "partition_responses": [
                    {"index": each, "error_code": error, "base_offset": self._offset} for each in partitions
                ],
            }
            for topic, partitions in chosen.items()
        ]
        acks = self._random.choice((-1, -1, 1))
        return PRODUCE, {"acks": acks, "topic_data": requested}, {"responses": responded}

    def _fetch(self, error: int) -> tuple[int, dict[str, Any], dict[str, Any]]:
        random = self._random
        self._offset += 3
        requested, returned, forgotten = self._chosen(), self._chosen(), {}
        if self._replica_id >= 0 and random.random() < 0.2:
            requested = {"__cluster_metadata": [0]}
        session, epoch, assigned = 0, -1, 0
        if self._session:
            session, epoch = random.choice(((0, 0), *[(self._session, 5)] * 9, (self._session, 0), (79, 1)))
            assigned = random.choice((*[self._session] * 9, 0, 78))
            if epoch > 0:
                requested, returned = (random.choice((each, {}, {})) for each in (requested, returned))
                forgotten = self._chosen() if random.random() < 0.1 else {}
            self._session = assigned or random.choice((0, 77))
        if epoch <= 0:
            returned = requested
        request_body = {
            "max_wait_ms": random.choice((0, 500)),
            "min_bytes": random.choice((1, 1, 100)),
            "isolation_level": random.randrange(2),
            "session_id": session,
            "session_epoch": epoch,
            "topics": [
                {
                    "topic": topic,
                    "partitions": [
                        {"partition": each, "fetch_offset": self._offset - 9} for each in partitions
                    ],
                }
                for topic, partitions in requested.items()
            ],
            "forgotten_topics_data": [
                {"topic": topic, "partitions": partitions} for topic, partitions in forgotten.items()
            ],
            "replica_id": random.choice((self._replica_id,) * 30 + (-1, 3)),
        }
        responded = [
            {"topic": topic, "partitions": [self._fetched(each, error) for each in partitions]}
            for topic, partitions in returned.items()
        ]
        return FETCH, request_body, {"session_id": assigned, "responses": responded}

    def _fetched(self, partition: int, error: int) -> dict[str, Any]:
        random = self._random
        flags = _CONTROL if random.random() < 0.05 else 0
        records = self._records(partition, base_offset=self._offset - 9, producer_id=flags - 1, flags=flags)
        high_watermark = self._offset + random.choice((-6, 0, 5))
        return {
            "partition_index": partition,
            "error_code": error,
            "high_watermark": high_watermark,
            "last_stable_offset": random.choice((-1, high_watermark - 2)),
            "log_start_offset": random.choice((-1, 0)),
            "preferred_read_replica": random.choice((-1,) * 9 + (2,)),
            "records": b"" if error or random.random() < 0.3 else records,
        }

    def _heartbeat(self, error: int) -> tuple[int, dict[str, Any], dict[str, Any]]:
        return HEARTBEAT, {**self._member, "generation_id": self._generation}, {"error_code": error}

    def _commit(self, error: int) -> tuple[int, dict[str, Any], dict[str, Any]]:
        chosen = self._chosen()
        requested = [
            {
                "name": topic,
                "partitions": [
                    {
                        "partition_index": each,
                        "committed_offset": self._random.choice((-1, *[self._offset] * 9)),
                    }
                    for each in partitions
                ],
            }
            for topic, partitions in chosen.items()
        ]
        responded = [
            {
                "name": topic,
                "partitions": [{"partition_index": each, "error_code": error} for each in partitions],
            }
            for topic, partitions in chosen.items()
        ]
        commit = {**self._member, "generation_id_or_member_epoch": self._generation, "topics": requested}
        return OFFSET_COMMIT, commit, {"topics": responded}

    def _list_offsets(self, error: int) -> tuple[int, dict[str, Any], dict[str, Any]]:
        chosen, timestamp = self._chosen(), self._random.choice((-1, -1, -2))
        requested = [
            {
                "name": topic,
                "partitions": [{"partition_index": each, "timestamp": timestamp} for each in partitions],
            }
            for topic, partitions in chosen.items()
        ]
        responded = [
            {
                "name": topic,
                "partitions": [
                    {"partition_index": each, "error_code": error, "offset": self._offset + each - 1}
                    for each in partitions
                ],
            }
            for topic, partitions in chosen.items()
        ]
        return LIST_OFFSETS, {"replica_id": -1, "topics": requested}, {"topics": responded}

    def _fetch_offsets(self, error: int) -> tuple[int, dict[str, Any], dict[str, Any]]:
        random, chosen, group = self._random, self._chosen(), self._member["group_id"]
        requested = [{"name": topic, "partition_indexes": partitions} for topic, partitions in chosen.items()]
        responded = [
            {
                "name": topic,
                "partitions": [
                    {
                        "partition_index": each,
                        "committed_offset": random.choice((-1, self._offset - 4, self._offset)),
                        "error_code": error,
                    }
                    for each in partitions
                ],
            }
            for topic, partitions in chosen.items()
        ]
        all_topics = None if random.random() < 0.3 else requested
        if self._versions[OFFSET_FETCH] < 8:
            return OFFSET_FETCH, {"group_id": group, "topics": all_topics}, {"topics": responded}
        groups = [group, "another"] if random.random() < 0.3 else [group]
        return (
            OFFSET_FETCH,
            {"groups": [{"group_id": each, "topics": all_topics} for each in groups]},
            {"groups": [{"group_id": each, "topics": responded} for each in groups]},
        )


def of_version(fields: Sequence[Field], version: int, body: dict[str, Any]) -> dict[str, Any]:
    """Without what a version does not have."""
    known = {field.name: field for part in split(fields, version) for field in part}
    return {
        name: [of_version(known[name].fields, version, each) for each in value]
        if known[name].type == "struct" and value is not None
        else value
        for name, value in body.items()
        if name in known
    }


class OldClient(Client):
    """One that knows no batches."""

    def __init__(self, random: Random, number: int, step_ns: int) -> None:
        super().__init__(random, number, step_ns)
        self._versions[PRODUCE] = random.choice((0, 1, 2))
        self._versions[FETCH] = random.choice((0, 1, 2, 3, 4, 11))

    def _records(self, partition: int, *, base_offset: int = 0, **_: Any) -> bytes:
        random = self._random
        items = [
            Item(random.choice((None, b"key")), b"value" * random.randint(1, 30), (), BASE_MS + place)
            for place in range(random.randint(1, 3))
        ]
        magic = int(self._versions[PRODUCE] == 2)
        if random.random() < 0.05:
            magic = 1 - magic
        codec = random.choice((NONE, NONE, NONE, GZIP, SNAPPY, LZ4))
        data = message_set(magic, items, codec=codec, base_offset=base_offset)
        if random.random() < 0.1:
            data += batch(items, base_offset=base_offset + len(items))
        return data[: -random.randint(1, 20)] if random.random() < 0.1 else data
