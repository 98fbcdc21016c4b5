"""Traffic with names of 32 KB, each once. One character in it makes Python take four bytes for each."""

from __future__ import annotations

from itertools import product
from typing import TYPE_CHECKING, Any

from kdissect.kafka.codes import uuid_text
from tests.frames import API_VERSIONS, FETCH, METADATA, PRODUCE, request, response
from tests.record_batches import Item, batch
from tests.segments import Talk

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from kdissect.model import Packet

LENGTH = 32_000
OFFSET_COMMIT, FIND_COORDINATOR, JOIN_GROUP, SYNC_GROUP, INIT_PRODUCER_ID = 8, 10, 11, 14, 22

Exchange = tuple[bytes, bytes]


def name(kind: str, number: int) -> str:
    """A name of ``LENGTH`` bytes, wide from its beginning."""
    beginning = f"{number:06}\U0001f600{kind}"
    return beginning + "n" * (LENGTH - len(beginning.encode()))


def _exchange(
    api: int, version: int, sent: dict[str, Any], answered: dict[str, Any], client_id: str = "c"
) -> Exchange:
    return request(api, version, sent, client_id=client_id), response(api, version, answered)


def client_ids(number: int) -> Iterator[Exchange]:
    member = {"group_id": "g", "generation_id": 1, "member_id": "m"}
    yield _exchange(12, 0, member, {}, name("client", number))


def software(number: int) -> Iterator[Exchange]:
    names = {"client_software_name": name("name", number), "client_software_version": name("v", number)}
    yield _exchange(API_VERSIONS, 3, names, {"api_keys": [{"api_key": 18, "max_version": 4}]})
    yield from client_ids(number)


def topic_ids(number: int) -> Iterator[Exchange]:
    topics = [
        {"name": name("topic", place), "topic_id": uuid_text(place.to_bytes(16, "big"))}
        for place in range(4 * number + 1, 4 * number + 5)
    ]
    yield _exchange(METADATA, 12, {"topics": []}, {"cluster_id": name("cluster", number), "topics": topics})


def hosts(number: int) -> Iterator[Exchange]:
    brokers = [
        {"node_id": place, "host": name("host", place), "port": 9092, "rack": name("rack", place)}
        for place in range(2 * number, 2 * number + 2)
    ]
    yield _exchange(METADATA, 8, {"topics": []}, {"brokers": brokers})


def groups(number: int) -> Iterator[Exchange]:
    group, member = name("group", number), name("member", number)
    subscription = b"\0\0" + _topics([name("topic", number)])
    sent = {
        "group_id": group,
        "member_id": member,
        "protocol_type": "consumer",
        "protocols": [{"name": "range", "metadata": subscription}],
        "group_instance_id": name("instance", number),
        "reason": name("reason", number),
    }
    members = [{"member_id": name("member", place), "metadata": b""} for place in range(number, number + 3)]
    answered = {"generation_id": number, "protocol_name": "range", "leader": member, "member_id": member}
    yield _exchange(JOIN_GROUP, 8, sent, answered | {"members": members})
    synced = {"group_id": group, "member_id": member, "generation_id": number}
    yield _exchange(SYNC_GROUP, 4, synced, {"assignment": b""})


def commits(number: int) -> Iterator[Exchange]:
    topics = [
        {"name": name("topic", place), "partitions": [{"partition_index": 0, "committed_offset": 5}]}
        for place in range(2 * number, 2 * number + 2)
    ]
    answers = [{"name": each["name"], "partitions": [{"partition_index": 0}]} for each in topics]
    yield _exchange(
        OFFSET_COMMIT, 2, {"group_id": name("group", number), "topics": topics}, {"topics": answers}
    )


def fetches(number: int) -> Iterator[Exchange]:
    topics = [name("topic", place) for place in range(2 * number, 2 * number + 2)]
    sent = {
        "session_epoch": 0,
        "topics": [{"topic": each, "partitions": [{"partition": 0, "fetch_offset": 3}]} for each in topics],
    }
    partitions = [{"partition_index": 0, "high_watermark": 9, "last_stable_offset": 9}]
    answered = {
        "session_id": number + 1,
        "responses": [{"topic": each, "partitions": partitions} for each in topics],
    }
    yield _exchange(FETCH, 7, sent, answered)


def batches(number: int) -> Iterator[Exchange]:
    topic, transaction = name("topic", number), name("transaction", number)
    identified = {"transactional_id": transaction, "transaction_timeout_ms": 9}
    yield _exchange(INIT_PRODUCER_ID, 1, identified, {"producer_id": number, "producer_epoch": 0})
    records = batch([Item()], producer_id=number, base_sequence=0)
    data = [{"name": topic, "partition_data": [{"index": 0, "records": records}]}]
    answers = [{"name": topic, "partition_responses": [{"index": 0, "base_offset": 7}]}]
    written = {"transactional_id": transaction, "acks": -1, "topic_data": data}
    yield _exchange(PRODUCE, 7, written, {"responses": answers})


def coordinators(number: int) -> Iterator[Exchange]:
    reply = {"node_id": number, "host": name("host", number), "port": 9092}
    yield _exchange(FIND_COORDINATOR, 1, {"key": name("group", number)}, reply)


KINDS: dict[str, Callable[[int], Iterator[Exchange]]] = {
    kind.__name__: kind
    for kind in (client_ids, software, topic_ids, hosts, groups, commits, fetches, batches, coordinators)
}


def traffic(number: int, *kinds: str) -> list[Packet]:
    """Connections that stay open, so many of each kind (default: all), with names of their own."""
    packets: list[Packet] = []
    for place, (each, kind) in enumerate(product(range(number), kinds or KINDS)):
        talk = Talk(
            ("10.0.0.1", 1024 + place),
            mss=60_000,
            first_number=len(packets) + 1,
            start_ns=packets[-1].time_ns + 1_000 if packets else 1_700_000_000 * 10**9,
            step_ns=1_000,
        ).handshake()
        for correlation_id, (sent, answered) in enumerate(KINDS[kind](each), 1):
            number_bytes = correlation_id.to_bytes(4, "big")
            talk.client_sends(sent[:8] + number_bytes + sent[12:])
            talk.broker_sends(answered[:4] + number_bytes + answered[8:])
        packets += talk.packets
    return packets


def _topics(topics: list[str]) -> bytes:
    """The topics of a subscription, and no user data."""
    texts = b"".join(len(each.encode()).to_bytes(2, "big") + each.encode() for each in topics)
    return len(topics).to_bytes(4, "big") + texts + b"\xff\xff\xff\xff"
