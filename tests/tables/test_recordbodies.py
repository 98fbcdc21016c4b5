from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from kdissect.tables.columns import EXCHANGE
from kdissect.tables.lines import CsvLines, JsonLines
from kdissect.tables.record_bodies import Opener, with_records
from tests.exchange_factory import exchange
from tests.record_batches import GZIP, Item, batch, message, message_set, messages
from tests.record_exchanges import fetch, produce, snapshot

if TYPE_CHECKING:
    from kdissect.model import Exchange


def row(example: Exchange, *, show_secrets: bool = False) -> dict[str, Any]:
    out: list[bytes] = []
    sink = JsonLines(out.append, columns=with_records(Opener(show_secrets)))
    sink.feed(example)
    sink.close()
    result: dict[str, Any] = json.loads(b"".join(out))
    return result


def batches(example: Exchange, **options: Any) -> list[dict[str, Any]]:
    """The batches in a Fetch's one partition."""
    result: list[dict[str, Any]] = row(example, **options)["response"]["responses"][0]["partitions"][0][
        "records"
    ]
    return result


def test_records_are_in_their_batch() -> None:
    items = [Item(b"k", b"\xff", ((b"h", b"x"),)), Item(None, None)]
    first, second = batches(fetch(batch(items, base_offset=7) + batch([Item()], base_offset=9)))
    assert (first["base_offset"], first["records_count"], len(first["records"])) == (7, 2, 2)
    assert first["records"][0] == {
        "offset": 7,
        "timestamp": "2023-11-14T22:13:20.000000Z",
        "timestamp_type": "CreateTime",
        "key": "k",
        "key_encoding": "utf-8",
        "value": "/w==",
        "value_encoding": "base64",
        "headers": [{"key": "h", "value": "x", "value_encoding": "utf-8"}],
        "control_type": None,
        "aborted": None,
    }
    assert [record["offset"] for record in second["records"]] == [9]
    assert "anomalies" not in first


def test_a_produce_knows_its_offsets_from_the_response() -> None:
    result = row(produce(batch([Item()]), {"error_code": 0, "base_offset": 40}))
    (one,) = result["request"]["topic_data"][0]["partition_data"][0]["records"]
    assert (one["base_offset"], one["records"][0]["offset"]) == (0, 40)


def test_messages_of_magic_0_and_1() -> None:
    plain = messages(1, [Item(b"a"), Item(b"b")], base_offset=3)
    packed = message_set(1, [Item(b"c"), Item(b"d")], codec=GZIP, base_offset=5)
    example = batches(fetch(plain + packed + batch([Item(b"e")], base_offset=7)))
    assert [[record["key"] for record in each["records"]] for each in example] == [
        ["a"],
        ["b"],
        ["c", "d"],
        ["e"],
    ]
    assert [[record["offset"] for record in each["records"]] for each in example] == [[3], [4], [5, 6], [7]]
    assert [each["magic"] for each in example] == [1, 1, 1, 2]


def test_a_wrong_checksum_is_beside_the_message_that_has_it() -> None:
    good, bad = messages(1, [Item(b"a")], base_offset=3), message(1, Item(b"b"), offset=4, crc=1)
    example = batches(fetch(good + bad + messages(1, [Item(b"c")], base_offset=5)))
    assert ["anomalies" in each for each in example] == [False, True, False]
    (anomaly,) = example[1]["anomalies"]
    assert anomaly["detail"].startswith(f"message at byte {len(good)}: CRC32 stored 1, computed ")


def test_anomalies_are_beside_the_records() -> None:
    bad, lost = batches(fetch(batch([Item()], crc=1) + b"\xff" * 61))
    assert [anomaly["kind"] for anomaly in bad["anomalies"]] == ["crc_mismatch"]
    assert len(bad["records"]) == 1
    assert [anomaly["kind"] for anomaly in lost["anomalies"]] == ["malformed_records"]
    assert set(lost) == {"records", "anomalies"}


def test_a_batch_that_is_cut_off_is_none() -> None:
    complete = batch([Item()])
    assert len(batches(fetch(complete + complete[:-1]))) == 1


def test_a_credential_is_redacted() -> None:
    example = fetch(batch([Item(None, b"hunter2")]), topic="__cluster_metadata")
    (one,) = batches(example)
    assert (one["records"][0]["value"], one["records"][0]["value_encoding"]) == (None, "withheld")
    (one,) = batches(example, show_secrets=True)
    assert one["records"][0]["value"] == "hunter2"


def test_later_slices_of_a_snapshot_are_anomalies() -> None:
    result = row(snapshot(b"\2" * 80, 90, 500))
    (one,) = result["response"]["topics"][0]["partitions"][0]["unaligned_records"]
    assert [anomaly["kind"] for anomaly in one["anomalies"]] == ["unaligned_records"]


def test_other_exchanges_and_columns_stay_as_they_are() -> None:
    columns = with_records(Opener())
    assert [(column.name, column.type) for column in columns] == [(c.name, c.type) for c in EXCHANGE]
    example = exchange("Metadata", 9, {"topics": [{"name": "orders"}]}, None)
    assert (row(example)["request"], row(example)["response"]) == ({"topics": [{"name": "orders"}]}, None)


def test_csv() -> None:
    out: list[bytes] = []
    sink = CsvLines(out.append, columns=with_records(Opener()))
    sink.feed(fetch(batch([Item(b"key-of-it")])))
    sink.close()
    assert b'""key"":""key-of-it""' in b"".join(out)
