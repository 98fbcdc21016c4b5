from __future__ import annotations

from kdissect.stats.findings.producers import Acks
from tests.findings import findings_of, metadata, produce


def test_records_that_nobody_confirms() -> None:
    (row,) = findings_of(Acks, [produce(1, acks=0), metadata(2, replicas=3)])
    assert (row.subject, row.severity) == ("topic orders", "warning")
    assert row.message.startswith(
        "1 Produce request with acks=0 by payments, to 3 replicas: records are not acknowledged"
    )


def test_records_that_the_leader_alone_confirms() -> None:
    clients = [produce(number, acks=1, client=f"p{number}") for number in range(5)]
    (row,) = findings_of(Acks, [metadata(0, replicas=2), *clients])
    assert row.severity == "note"
    assert "by p0, p1, p2 and 2 more, to 2 replicas" in row.message


def test_topics_without_replicas_or_without_an_answer_about_them() -> None:
    assert findings_of(Acks, [metadata(0, replicas=1), produce(1, acks=0)]) == []
    assert findings_of(Acks, [produce(1, acks=0)]) == []


def test_producers_that_wait() -> None:
    assert findings_of(Acks, [metadata(0, replicas=3), produce(1, acks=-1)]) == []
