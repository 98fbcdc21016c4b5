"""Exchanges that the core finishes, and Python counts one by one: they stay, and the output is the same."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING, Any

import pytest

from kdissect import core
from kdissect.cli.main import main
from kdissect.kafka.codes import error_code
from kdissect.sinks.tallies import Tallies
from tests.captures import pcap
from tests.core import needs_core
from tests.frames import request, response
from tests.record_batches import CONTROL, TRANSACTIONAL, Item, batch
from tests.segments import ACK, FIN, Talk
from tests.test_lending import SEEDS
from tests.usual_traffic import FETCH, PRODUCE

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

PARTS = ("--groups", "--lag", "--versions", "--transactions", "--connections", "--findings")
METADATA = 3
ERRORS = (0, 0, 0, error_code("OFFSET_OUT_OF_RANGE"), error_code("NOT_LEADER_OR_FOLLOWER"), -1)


@pytest.fixture
def left(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], tmp_path: Path) -> Any:
    """Compares outputs with and without the core. Returns how many exchanges left it."""
    taken = [0]
    count = Tallies._count

    def counted(self: Any, exchange: Any) -> None:
        taken[0] += 1
        count(self, exchange)

    monkeypatch.setattr(Tallies, "_count", counted)

    def compare(talk: Talk, *options: str) -> int:
        path = tmp_path / "talk.pcap"
        path.write_bytes(pcap([(each.time_ns, each.data) for each in talk.packets]))
        numbers = []
        for command in (["summary", "-j", "1", "--json", *PARTS], ["check", "--json"]):
            outputs = []
            for is_used in (core.is_used, False):
                monkeypatch.setattr(core, "is_used", is_used)
                taken[0] = 0
                assert main([*command, *options, str(path)]) in (0, 1)
                outputs.append(tuple(capfd.readouterr()))
                numbers.append(taken[0])
            monkeypatch.setattr(core, "is_used", True)
            assert outputs[0] == outputs[1], command
        assert numbers[0] == numbers[2]
        return numbers[0]

    return compare


def fetched(random: Random, partition: int) -> dict[str, Any]:
    """What a response says of a partition: an error, records, markers, or nothing new."""
    base = random.randrange(8)
    flags = random.choice((0, 0, TRANSACTIONAL, TRANSACTIONAL | CONTROL))
    records = batch([Item()], base_offset=base, flags=flags) if random.random() < 0.6 else b""
    return {
        "partition_index": partition,
        "error_code": random.choice(ERRORS),
        "high_watermark": random.choice((-1, 8, 9)),
        "last_stable_offset": random.choice((-1, 7, 8)),
        "log_start_offset": random.choice((-1, 0)),
        "records": records,
    }


def random_fetches(random: Random, talk: Talk, number: int) -> None:
    """Fetch exchanges of a consumer, with and without a session. It requests offsets again, skips some, goes
    back, and forgets partitions; sessions end with an error.
    """
    session, epoch = 0, random.choice((0, -1))
    for correlation_id in range(number):
        named = random.sample(range(4), random.randrange(1 if epoch > 0 else 0, 4))
        forgotten = random.sample(range(4), random.choice((0, 0, 1))) if epoch > 0 else []
        requested = [{"partition": each, "fetch_offset": random.randrange(9)} for each in named]
        is_failed = random.random() < 0.1
        answer_id = session or (77 if epoch == 0 and random.random() < 0.8 else 0)
        talk.client_sends(
            request(
                FETCH,
                12,
                {
                    "replica_id": -1,
                    "max_wait_ms": 500,
                    "min_bytes": 1,
                    "session_id": session,
                    "session_epoch": epoch,
                    "topics": [{"topic": "orders", "partitions": requested}] if requested else [],
                    "forgotten_topics_data": [{"topic": "orders", "partitions": forgotten}]
                    if forgotten
                    else [],
                },
                correlation_id=correlation_id,
            )
        )
        answered = random.sample(range(4), random.randrange(4)) if session else named
        partitions = [] if is_failed else [fetched(random, each) for each in answered]
        body = {
            "error_code": error_code("FETCH_SESSION_ID_NOT_FOUND") if is_failed else 0,
            "session_id": 0 if is_failed else answer_id,
            "responses": [{"topic": "orders", "partitions": partitions}] if partitions else [],
        }
        talk.broker_sends(response(FETCH, 12, body, correlation_id=correlation_id))
        session = 0 if is_failed else answer_id
        epoch = epoch + 1 if session else random.choice((0, -1))
        if session and random.random() < 0.1:
            epoch = random.choice((0, -1))


@needs_core
def test_fetches_with_errors_markers_and_repeated_offsets(left: Callable[..., int]) -> None:
    for seed in range(10 * SEEDS):
        random = Random(seed)
        talk = Talk(("10.0.0.1", 40_000)).handshake()
        random_fetches(random, talk, 60)
        assert left(talk) == 0, seed


@needs_core
@pytest.mark.parametrize(
    "options", [("--error", "*"), ("--partition", "1"), ("--api", "!Fetch")], ids=" ".join
)
def test_selected_fetches(left: Callable[..., int], options: tuple[str, ...]) -> None:
    talk = Talk(("10.0.0.1", 40_000)).handshake()
    random_fetches(Random(1), talk, 60)
    left(talk, *options)


@needs_core
def test_produce_without_acknowledgment(left: Callable[..., int]) -> None:
    talk = Talk(("10.0.0.1", 40_000)).handshake()
    for number in range(20):
        is_last = number % 5 == 4
        partitions = [{"index": 0, "records": batch([Item()])}]
        topics = [{"name": "orders", "partition_data": partitions}]
        body = {"acks": 1 if is_last else 0, "timeout_ms": 30_000, "topic_data": topics}
        talk.client_sends(request(PRODUCE, 8, body, correlation_id=number))
        if is_last:
            answers = [{"index": 0, "base_offset": number}]
            topics = [{"name": "orders", "partition_responses": answers}]
            talk.broker_sends(response(PRODUCE, 8, {"responses": topics}, correlation_id=number))
    assert left(talk) == 0
    left(talk, "--topic", "orders")
    assert left(talk, "--api", "Fetch") == 0


@needs_core
def test_a_broker_that_refuses_a_client(left: Callable[..., int]) -> None:
    """The verdict on the connection depends on the error, and on whether the client uses it further."""
    for name in ("UNSUPPORTED_VERSION", "REBOOTSTRAP_REQUIRED", "NOT_CONTROLLER"):
        talk = Talk(("10.0.0.1", 40_000)).handshake()
        for number in range(30):
            talk.client_sends(request(METADATA, 13, {"topics": []}, correlation_id=number))
            body = {"error_code": error_code(name), "cluster_id": "one"}
            talk.broker_sends(response(METADATA, 13, body, correlation_id=number))
        talk.put(1, FIN | ACK)
        assert left(talk) <= 1, name


@needs_core
def test_throttled_exchanges(left: Callable[..., int]) -> None:
    """The verdict on what a connection waits for depends on throttle times."""
    talk = Talk(("10.0.0.1", 40_000)).handshake()
    for number in range(30):
        topics = [{"name": "orders", "partition_data": [{"index": 0, "records": batch([Item()])}]}]
        talk.client_sends(request(PRODUCE, 8, {"acks": 1, "topic_data": topics}, correlation_id=number))
        answers = [{"name": "orders", "partition_responses": [{"index": 0, "base_offset": number}]}]
        body = {"responses": answers, "throttle_time_ms": number % 3 * 40}
        talk.broker_sends(response(PRODUCE, 8, body, correlation_id=number))
    left(talk)
