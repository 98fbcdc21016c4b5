"""Record data written by seven releases of Apache Kafka in every format they have: we read what they read."""

from __future__ import annotations

import lzma
from functools import cache
from itertools import groupby
from typing import TYPE_CHECKING, Any

import lz4.frame
import orjson
import pytest

from kdissect.kafka import schema
from kdissect.kafka.batches import check_crcs
from kdissect.kafka.recordbatch import Record
from kdissect.kafka.records import RecordData
from kdissect.model import Embedded
from tests.kafka.decoded_batches import decoded_batches
from tests.vectors.messages import FILE as MESSAGES
from tests.vectors.messages import Place, struct

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from kdissect.kafka.batches import Batch
    from kdissect.kafka.internal.topics import Control

FILE = MESSAGES.with_name("records.jsonl.xz")
COUNTS = {
    "0.8.2.2": 12,
    "0.9.0.1": 12,
    "0.10.2.2": 36,
    "0.11.0.3": 70,
    "1.0.2": 70,
    "3.9.1": 87,
    "4.4.0": 79,
}
"""Kafka 0.8.2 and 0.9 knew magic 0, 0.10 magic 1, 0.11 magic 2, KRaft and zstd are later."""

LZ4_MAGIC = b"\x04\x22\x4d\x18"
MARKERS = {
    "COMMIT": "EndTxnMarker",
    "ABORT": "EndTxnMarker",
    "LEADER_CHANGE": "LeaderChangeMessage",
    "SNAPSHOT_HEADER": "SnapshotHeaderRecord",
    "SNAPSHOT_FOOTER": "SnapshotFooterRecord",
    "KRAFT_VERSION": "KRaftVersionRecord",
    "KRAFT_VOTERS": "VotersRecord",
}

EVERY_RELEASE = pytest.mark.parametrize("release", COUNTS)


@cache
def vectors() -> dict[str, list[dict[str, Any]]]:
    """By release."""
    entries: dict[str, list[dict[str, Any]]] = {}
    for line in lzma.decompress(FILE.read_bytes()).splitlines():
        entry = orjson.loads(line)
        entry["bytes"] = bytes.fromhex(entry["bytes"])
        entries.setdefault(entry["release"], []).append(entry)
    return entries


def test_how_many_there_are(report: Callable[[str], None]) -> None:
    assert {release: len(entries) for release, entries in vectors().items()} == COUNTS
    sizes = [len(entry["bytes"]) for entries in vectors().values() for entry in entries]
    report(f"Kafka {', '.join(COUNTS)}: {len(sizes)} vectors of record data, {sum(sizes)} bytes")


@EVERY_RELEASE
def test_we_read_what_kafka_reads(release: str) -> None:
    for entry in vectors()[release]:
        entries = decoded_batches(entry["bytes"])
        assert [each.anomalies for each in entries] == [[]] * len(entries), entry["name"]
        if "batches" in entry:
            theirs = [their_batch(group) for group in joined(entry["batches"])]
            assert [our_batch(each) for each in entries] == theirs, entry["name"]
        else:  # the reader of that release tells records only
            theirs = [their_record(each) for each in entry["records"]]
            assert [record for each in entries for record in each.records] == theirs, entry["name"]


@EVERY_RELEASE
def test_headers_are_what_kafka_reads(release: str) -> None:
    for entry in vectors()[release]:
        data = RecordData(entry["bytes"], 0, len(entry["bytes"]))
        assert check_crcs(data) == []
        if "batches" not in entry:
            continue
        for ours, theirs in zip(data.batches(), entry["batches"], strict=True):
            size = ours["batch_length" if ours["magic"] == 2 else "message_size"]
            assert (ours["crc"], 12 + size) == (theirs["checksum"], theirs["sizeInBytes"]), entry["name"]
            if ours["magic"] == 2:
                assert ours["max_timestamp"] == theirs["maxTimestamp"]
                assert ours["records_count"] == theirs["countOrNull"]


@EVERY_RELEASE
def test_checksum_of_the_lz4_header_is_wrong_in_magic_0_and_nowhere_else(release: str) -> None:
    """KAFKA-3160: what wrote magic 0 before it was found out, and whatever still writes magic 0."""
    right = {0: 0, 1: 0, 2: 0}
    wrong = {0: 0, 1: 0, 2: 0}
    for entry in vectors()[release]:
        if "lz4" in entry["name"]:
            data = entry["bytes"]
            counts = right if has_right_header(data[data.index(LZ4_MAGIC) :]) else wrong
            counts[data[16]] += 1
    assert right[0] == wrong[1] == wrong[2] == 0
    assert wrong[0] > 0


def has_right_header(frame: bytes) -> bool:
    try:
        lz4.frame.get_frame_info(frame)
    except RuntimeError as error:
        return "headerChecksum" not in str(error)
    return True


# --- one shape for both -------------------------------------------------------------------------------------


def joined(batches: Iterable[dict[str, Any]]) -> list[list[dict[str, Any]]]:
    """To Kafka each message of magic 0 and 1 is a batch, to us those of one kind that stand together."""

    def kind(each: dict[str, Any]) -> tuple[Any, ...]:
        alone = each["magic"] == 2 or each["compressionType"] != "none"
        return each["magic"], each["timestampType"], each["baseOffset"] if alone else None

    return [list(group) for _, group in groupby(batches, kind)]


def their_batch(group: list[dict[str, Any]]) -> dict[str, Any]:
    first, last = group[0], group[-1]
    records = [record for each in group for record in each["records"]]
    is_new = first["magic"] == 2
    return {
        "magic": first["magic"],
        "size": sum(each["sizeInBytes"] for each in group),
        "offsets": (first["baseOffset"], last["lastOffset"]),
        "compression": first["compressionType"],
        "timestamp_type": first["timestampType"] if first["magic"] else None,
        "producer": (first["producerId"], first["producerEpoch"], first["baseSequence"]) if is_new else None,
        "leader_epoch": first["partitionLeaderEpoch"] if is_new else None,
        "flags": (first["isTransactional"], first["isControlBatch"]),
        "delete_horizon_ms": first.get("deleteHorizonMs"),
        "records": [their_record(each, first["magic"]) for each in records],
        "sequences": [each["sequence"] for each in records],
        "controls": [their_control(each) for each in records if "control" in each],
    }


def our_batch(batch: Batch) -> dict[str, Any]:
    is_new = batch.magic == 2
    sequences = [batch.sequence(record) for record in batch.records]
    return {
        "magic": batch.magic,
        "size": batch.size,
        "offsets": (batch.base_offset, batch.last_offset),
        "compression": batch.compression,
        "timestamp_type": batch.timestamp_type,
        "producer": (batch.producer_id, batch.producer_epoch, batch.base_sequence) if is_new else None,
        "leader_epoch": batch.leader_epoch,
        "flags": (batch.transactional, batch.control),
        "delete_horizon_ms": batch.delete_horizon_ms,
        "records": batch.records,
        "sequences": [-1 if number is None else number for number in sequences],
        "controls": [our_control(each) for each in batch.controls],
    }


def their_record(entry: dict[str, Any], magic: int | None = None) -> Record:
    return Record(
        entry["offset"],
        None if magic == 0 else entry["timestamp"],  # newer readers say -1
        raw(entry["key"]),
        raw(entry["value"]),
        tuple((key, raw(value)) for key, value in entry.get("headers", ())),
    )


def their_control(entry: dict[str, Any]) -> tuple[str, bytes | None, dict[str, Any]]:
    place = Place(schema.embedded(MARKERS[entry["control"]]), 0, None)
    return entry["control"], raw(entry["value"]), struct(entry["marker"], place.layout.fields, place)


def our_control(control: Control) -> tuple[str | None, bytes | None, dict[str, Any]]:
    assert isinstance(control.value, Embedded)
    assert isinstance(control.value.data, bytes)
    decoded = control.value.decoded.items()
    return control.type, control.value.data, {name: value for name, value in decoded if name[0] != "_"}


def raw(text: str | None) -> bytes | None:
    return None if text is None else bytes.fromhex(text)
