"""Causes in groups, transactions and replicas, one capture each in troubles/. on_troubles.py says what the
recordings need. What clients and brokers say is in ``messages``.
"""

from __future__ import annotations

import signal
import threading
import time
from typing import TYPE_CHECKING

from apache_kafka import CONTROLLER, PLAIN
from confluent_kafka import KafkaException
from on_causes import listener, logged_by
from on_troubles import assigned, consumer, make_topic, polled, producer, recorded, running, write

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


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
            thread = threading.Thread(target=polled, args=(slow,), kwargs={"seconds": 18})
            thread.start()
            quick = consumer(cluster.bootstrap, "quick", **new, **listener(truth["messages"]))
            quick.subscribe(["jobs"])
            polled(quick, seconds=17)
            thread.join()
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


SCENARIOS: dict[str, Callable[[Path], None]] = {
    f"trouble-{scenario.__name__.replace('_', '-')}": scenario
    for scenario in (two_applications, revocation_held, open_transaction, follower_stopped)
}
