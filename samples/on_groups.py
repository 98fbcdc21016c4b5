"""Causes in groups, consumers, producers and replicas, one capture each in troubles/; healthy controls.
on_troubles.py says what the recordings need. What clients and brokers say is in ``messages``.
"""

from __future__ import annotations

import signal
import threading
import time
from collections import Counter
from contextlib import contextmanager
from typing import TYPE_CHECKING

from apache_kafka import CONTROLLER, PLAIN
from confluent_kafka import KafkaException, TopicPartition
from kafka import KafkaConsumer
from on_causes import PYTHON_CLIENT, listener, logged_by
from on_troubles import (
    assigned,
    consumer,
    make_topic,
    meanwhile,
    paused,
    polled,
    producer,
    recorded,
    running,
    write,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from confluent_kafka import Consumer, KafkaError, Message


def two_applications(directory: Path) -> None:
    what = (
        "Three applications have one group.id. The member of the first reads orders with the range assignor. "
        "The one of the second has only the cooperative-sticky assignor: it cannot join. The one of the "
        "third joins, but reads clicks."
    )
    with running() as cluster:
        make_topic(cluster.bootstrap, "clicks", [1])
        before = cluster.positions()
        with recorded(directory, cluster, "two-applications", what, ["mixed-group"]) as truth:
            truth["messages"] = []

            def application(name: str, assignor: str, topic: str) -> None:
                with_it = consumer(
                    cluster.bootstrap,
                    name,
                    heartbeat_interval_ms=500,
                    partition_assignment_strategy=assignor,
                    **listener(truth["messages"]),
                )
                with_it.subscribe([topic])
                members.append(with_it)

            members: list[object] = []
            write(producer(cluster.bootstrap, "writer"), 3)
            application("billing", "range", "orders")
            polled(*members, seconds=3)
            application("search", "cooperative-sticky", "clicks")
            polled(*members, seconds=4)
            members.pop().close()
            application("audit", "range", "clicks")
            polled(*members, seconds=4)
            truth["messages"] += logged_by(cluster, before, "InconsistentGroupProtocol", "protocol")
            for each in members:
                each.close()


def revocation_held(directory: Path) -> None:
    what = (
        "A member of a group of the new protocol (KIP-848) has two partitions. A second one joins. The first "
        "takes 12 s to give back a partition, because its callback finishes work first. The second waits."
    )
    settings = {
        "group_consumer_min_heartbeat_interval_ms": "1000",
        "group_consumer_heartbeat_interval_ms": "1000",
    }
    with running(**settings) as cluster:
        make_topic(cluster.bootstrap, "jobs", [1], [1])
        with recorded(directory, cluster, "revocation-held", what, ["revocation-held"]) as truth:
            truth["messages"] = []
            new = {"group_protocol": "consumer"}
            slow = consumer(cluster.bootstrap, "slow", **new, **listener(truth["messages"]))
            slow.subscribe(["jobs"], on_revoke=lambda *_: time.sleep(12))
            polled(slow, seconds=4)
            with meanwhile(polled, slow, seconds=18):
                quick = consumer(cluster.bootstrap, "quick", **new, **listener(truth["messages"]))
                quick.subscribe(["jobs"])
                polled(quick, seconds=17)
            quick.close()


def open_transaction(directory: Path) -> None:
    what = (
        "A producer opens a transaction, writes a record, and does nothing for 14 s; its transaction timeout "
        "is 10 s. A consumer with read_committed waits, although another producer writes. Then the "
        "coordinator aborts the transaction, and the producer cannot commit it."
    )
    settings = {"transaction_abort_timed_out_transaction_cleanup_interval_ms": "1000"}
    findings = ["readers-blocked", "fenced-producers"]
    with (
        running(**settings) as cluster,
        recorded(directory, cluster, "open-transaction", what, findings) as truth,
    ):
        truth["messages"] = []
        reader = assigned(cluster.bootstrap, "reader", isolation_level="read_committed")
        forgetful = producer(
            cluster.bootstrap,
            "forgetful",
            transactional_id="payments-1",
            transaction_timeout_ms=10000,
            **listener(truth["messages"]),
        )
        forgetful.init_transactions(20)
        polled(reader, seconds=2)
        forgetful.begin_transaction()
        write(forgetful, 1)
        other = producer(cluster.bootstrap, "other")
        for _ in range(7):
            write(other, 1)
            polled(reader, seconds=2)
        try:
            forgetful.commit_transaction(10)
        except KafkaException as error:
            truth["messages"].append(f"librdkafka: {error.args[0].str()}")
        truth["read"] = polled(reader, seconds=3)


def follower_stopped(directory: Path) -> None:
    what = (
        "One of three brokers stops for 9 s (SIGSTOP). A producer with acks=all waits for it, until the "
        "leader removes it from the in-sync replicas, 5 s after its last fetch. Controllers are captured too."
    )
    settings = {"replica_lag_time_max_ms": "5000", "replica_fetch_wait_max_ms": "500"}
    with running(3, **settings) as cluster:
        leader = cluster.leader().number
        stopped = next(node for node in cluster.nodes if node.number != leader)
        make_topic(cluster.bootstrap, "safe", [leader, stopped.number])
        time.sleep(3)
        before = cluster.positions()
        controllers = (node.port(CONTROLLER) for node in cluster.nodes)
        findings = ["replica-out-of-sync", "broker-silent"]  # the latter: as a controller
        with recorded(directory, cluster, "follower-stopped", what, findings, *controllers) as truth:
            truth["stopped"] = stopped.number
            truth["leader"] = cluster.nodes[leader - 1].port(PLAIN)
            one = producer(cluster.bootstrap, "careful", acks="all")
            write(one, 3, "safe")
            assert stopped.process is not None
            stopped.process.send_signal(signal.SIGSTOP)
            try:
                write(one, 2, "safe")
                time.sleep(2)
            finally:
                stopped.process.send_signal(signal.SIGCONT)
            time.sleep(3)
            write(one, 2, "safe")
            truth["messages"] = logged_by(cluster, before, "Shrinking ISR", "Expanding ISR", "ISR updated")


@contextmanager
def written_meanwhile(where: str, a_second: int) -> Iterator[None]:
    """A producer that writes records of 100 bytes to ``orders`` while the block runs."""
    done, writer = threading.Event(), producer(where, "writer", linger_ms=100)

    def go_on() -> None:
        while not done.wait(0.1):
            for number in range(a_second // 10):
                writer.produce("orders", bytes(100), str(number))
            writer.poll(0)

    with meanwhile(go_on):
        try:
            yield
        finally:
            done.set()
    writer.flush(20)


def python_member(where: str, client_id: str, seconds: float, poll_seconds: float, **more: int) -> int:
    """A member of a group of its own (kafka-python) that spends so long on what each poll returns; how many
    records it got.
    """
    one = KafkaConsumer(
        "orders",
        bootstrap_servers=where,
        client_id=client_id,
        group_id=client_id,
        auto_offset_reset="earliest",
        **more,
    )
    got, end = 0, time.monotonic() + seconds
    while time.monotonic() < end:
        got += sum(map(len, one.poll(200, max_records=100).values()))
        time.sleep(poll_seconds)
    one.close()
    return got


def one_by_one(one: Consumer, seconds: float, record_seconds: float) -> int:
    """Let a consumer spend so long on each record; how many it got."""
    got, end = 0, time.monotonic() + seconds
    while time.monotonic() < end:
        if one.poll(0.1) is not None:
            got += 1
            time.sleep(record_seconds)
    return got


def slow_poll(directory: Path) -> None:
    what = (
        "A producer writes 400 records/s. A consumer that takes a second for each poll() reads fewer "
        "(kafka-python; its fetches return up to 8 kB), and so does one with room for 8 kB in its queue "
        "(librdkafka, 12 ms a record). Another one needs as long for each record, but fetches ahead into a "
        "queue of the usual size. A fourth keeps up."
    )
    small = {"queued_max_messages_kbytes": 8, "fetch_message_max_bytes": 8192, "queued_min_messages": 50}
    with running() as cluster:
        where = cluster.bootstrap
        with recorded(directory, cluster, "slow-poll", what, ["slow-poll"]) as truth:
            truth["clients"] = [truth["clients"], PYTHON_CLIENT]
            full, ahead, quick = (
                assigned(where, name, **more)
                for name, more in (("full-queue", small), ("fetches-ahead", {}), ("keeps-up", {}))
            )
            got = truth["read"] = {}
            work = (
                ("slow", lambda: python_member(where, "slow", 16, 1, max_partition_fetch_bytes=8192)),
                ("full-queue", lambda: one_by_one(full, 16, 0.012)),
                ("fetches-ahead", lambda: one_by_one(ahead, 16, 0.012)),
                ("keeps-up", lambda: polled(quick, seconds=16)),
            )

            def note(name: str, run: Callable[[], int]) -> None:
                got[name] = run()

            threads = [threading.Thread(target=note, args=each) for each in work]
            with written_meanwhile(where, 400):
                for each in threads:
                    each.start()
                for each in threads:
                    each.join()


def busy_consumer(directory: Path) -> None:
    what = (
        "A producer writes 100 records/s. A consumer that takes 0.7 s for each poll() keeps up "
        "(kafka-python). Nothing is to be found."
    )
    with running() as cluster, recorded(directory, cluster, "busy-consumer", what, []) as truth:
        truth["clients"] = [truth["clients"], PYTHON_CLIENT]
        with written_meanwhile(cluster.bootstrap, 100):
            truth["read"] = python_member(cluster.bootstrap, "busy", 14, 0.7)


def sent_again(directory: Path) -> None:
    what = (
        "The broker's process is stopped (SIGSTOP) for 5 s, twice. Two producers give up on their requests "
        "after 2 s and send the batches again, one of them with idempotence: the broker stores the batches "
        "of the other one more than once."
    )
    hasty = {"request_timeout_ms": 2000, "socket_timeout_ms": 2000, "compression_type": "lz4"}
    with running() as cluster:
        make_topic(cluster.bootstrap, "clicks", [1])
        with recorded(directory, cluster, "sent-again", what, ["broker-silent"]) as truth:
            truth["messages"] = []
            reports = listener(truth["messages"])
            acknowledged: Counter[str] = Counter()

            def delivered(error: KafkaError | None, message: Message) -> None:
                acknowledged[message.topic()] += error is None

            kinds = {"orders": False, "clicks": True}
            writers = {
                topic: producer(
                    cluster.bootstrap,
                    "idempotent" if is_idempotent else "careless",
                    enable_idempotence=is_idempotent,
                    on_delivery=delivered,
                    **hasty,
                    **reports,
                )
                for topic, is_idempotent in kinds.items()
            }
            for _ in range(2):
                for topic, one in writers.items():
                    write(one, 5, topic, size=2000)
                with paused(cluster):
                    for topic, one in writers.items():
                        one.produce(topic, bytes(2000), "late")
                        one.poll(0)
                    time.sleep(5)
                for one in writers.values():
                    one.flush(20)
            truth["stored"] = {topic: assigned_end(cluster.bootstrap, topic) for topic in kinds}
            truth["acknowledged"] = acknowledged


def assigned_end(where: str, topic: str) -> int:
    """The end of the only partition of a topic."""
    return consumer(where, "counter").get_watermark_offsets(TopicPartition(topic, 0), 20)[1]


def recompressed(directory: Path) -> None:
    what = (
        "A topic has compression.type=gzip, but its producer compresses with lz4: the broker compresses each "
        "batch anew. What goes to the other topic is stored as it came. A consumer reads both. Nothing is to "
        "be found."
    )
    with running() as cluster:
        make_topic(cluster.bootstrap, "anew", [1], compression_type="gzip")
        with recorded(directory, cluster, "recompressed", what, []) as truth:
            one = producer(cluster.bootstrap, "writer", compression_type="lz4", linger_ms=20)
            both = consumer(cluster.bootstrap, "reader")
            both.assign([TopicPartition(topic, 0, 0) for topic in ("orders", "anew")])
            read = polled(both, seconds=2)
            for _ in range(20):
                for number in range(50):
                    for topic in ("orders", "anew"):
                        one.produce(topic, b"%d: the same words again" % number, str(number))
                one.flush(20)
                read += polled(both, seconds=0.1)
            truth["read"] = read + polled(both, seconds=2)


SCENARIOS: dict[str, Callable[[Path], None]] = {
    f"trouble-{scenario.__name__.replace('_', '-')}": scenario
    for scenario in (
        *(two_applications, revocation_held, open_transaction, follower_stopped),
        *(slow_poll, busy_consumer, sent_again, recompressed),
    )
}
