from __future__ import annotations

import pytest

from kdissect.errors import Unsupported
from kdissect.kafka import schema
from kdissect.kafka.walker import walk
from tests.kafka.encoder import EncodeError, encoder, fill
from tests.kafka.random_bodies import all_messages, cases


def test_a_few_fields_make_a_body() -> None:
    produce = schema.request(0)
    assert produce is not None
    partial = {"acks": -1, "topic_data": [{"name": "orders", "partition_data": [{"records": b"x"}, {}]}]}
    assert fill(produce, 9, partial) == {
        "transactional_id": None,
        "acks": -1,
        "timeout_ms": 0,
        "topic_data": [
            {
                "name": "orders",
                "partition_data": [{"index": 0, "records": b"x"}, {"index": 0, "records": None}],
            }
        ],
    }


def test_tagged_fields_are_filled_where_started() -> None:
    fetch = schema.request(1)
    assert fetch is not None
    body = fill(fetch, 15, {"replica_state": {"replica_id": 4}, "_tags": {99: b""}})
    assert body["replica_state"] == {"replica_id": 4, "replica_epoch": 0}
    assert "cluster_id" not in body
    assert list(body)[-1] == "_tags"


def test_misspelled_fields_are_named() -> None:
    produce = schema.request(0)
    assert produce is not None
    with pytest.raises(
        EncodeError,
        match=r"^ProduceRequest v9: topic_data.partition_data.indx is no field; there are _tags, index",
    ):
        fill(produce, 9, {"topic_data": [{"partition_data": [{"indx": 1}]}]})
    with pytest.raises(EncodeError, match=r"^ProduceRequest v2: transactional_id is no field"):
        fill(produce, 2, {"transactional_id": "t"})
    with pytest.raises(Unsupported):
        fill(produce, 99, {})


@pytest.mark.parametrize("message", all_messages(), ids=lambda message: message.name)
def test_nothing_makes_a_body_of_every_layout(message: schema.Message) -> None:
    for case in cases([message]):
        body = fill(message, case.version, {}, case.draft)
        walked = walk(message, case.version, encoder(message, case.version, case.draft)(body), 0, case.draft)
        assert walked.error is None
        assert walked.value == body
