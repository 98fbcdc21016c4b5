from __future__ import annotations

import struct

import pytest

from kdissect.kafka.records import RecordData, scan


def batch(
    records: int = 3,
    *,
    attributes: int = 0,
    payload: bytes = b"x" * 20,
    length: int | None = None,
    base: int = 100,
) -> bytes:
    """A batch of magic 2 whose records are not looked at."""
    body = (
        struct.pack(
            ">hiqqqhii", attributes, records - 1, 1_700_000_000_000, 1_700_000_000_005, 77, 2, 5, records
        )
        + payload
    )
    rest = struct.pack(">ibI", 9, 2, 0xDEADBEEF) + body
    return struct.pack(">qi", base, len(rest) if length is None else length) + rest


def message(magic: int, *, attributes: int = 0, offset: int = 5, value: bytes = b"value") -> bytes:
    stamp = struct.pack(">q", 1_600_000_000_000) if magic else b""
    rest = (
        struct.pack(">Ibb", 0xCAFEBABE, magic, attributes)
        + stamp
        + struct.pack(">ii", -1, len(value))
        + value
    )
    return struct.pack(">qi", offset, len(rest)) + rest


def test_a_batch_header_is_61_bytes_of_names_and_what_its_attributes_mean() -> None:
    data = batch(attributes=4 | 0x08 | 0x10 | 0x20 | 0x40)
    (header,) = RecordData(data, 0, len(data)).batches()
    assert header == {
        "base_offset": 100,
        "batch_length": len(data) - 12,
        "partition_leader_epoch": 9,
        "magic": 2,
        "crc": 0xDEADBEEF,
        "attributes": 0x7C,
        "last_offset_delta": 2,
        "base_timestamp": 1_700_000_000_000,
        "max_timestamp": 1_700_000_000_005,
        "producer_id": 77,
        "producer_epoch": 2,
        "base_sequence": 5,
        "records_count": 3,
        "compression": "zstd",
        "timestamp_type": "LogAppendTime",
        "transactional": True,
        "control": True,
        "delete_horizon": True,
    }


def test_formats_may_be_mixed_in_one_field() -> None:
    data = message(0) + message(1) + batch(2)
    result = scan(b"!" + data + b"!", 1, 1 + len(data))
    assert [entry["magic"] for entry in result.batches] == [0, 1, 2]
    assert result.batches[1]["timestamp"] == 1_600_000_000_000
    assert "timestamp" not in result.batches[0]
    assert (result.records, result.cut_off, result.fault) == (4, 0, None)


def test_a_compressed_message_set_hides_how_many_records_it_has() -> None:
    assert scan(message(1, attributes=1), 0, len(message(1))).records is None
    assert scan(batch(7, attributes=1), 0, len(batch())).records == 7


@pytest.mark.parametrize("kept", range(1, len(batch())))
def test_a_cut_off_last_entry_is_no_fault(kept: int) -> None:
    data = batch() + batch(base=103)[:kept]
    result = scan(data, 0, len(data))
    assert [entry["base_offset"] for entry in result.batches] == [100]
    assert (result.records, result.cut_off, result.fault) == (3, kept, None)


@pytest.mark.parametrize(
    ("data", "fault"),
    [
        (batch(length=48), "an entry of 48 bytes at byte 0"),
        (batch(length=-1), "an entry of -1 bytes at byte 0"),
        (batch() + batch(length=0), f"an entry of 0 bytes at byte {len(batch())}"),
        (message(1).replace(b"\xca\xfe\xba\xbe\x01", b"\xca\xfe\xba\xbe\x03"), "magic 3 at byte 0"),
        (message(1).replace(b"\xca\xfe\xba\xbe\x01", b"\xca\xfe\xba\xbe\xff"), "magic -1 at byte 0"),
    ],
)
def test_lies_end_the_reading_and_are_reported(data: bytes, fault: str) -> None:
    assert scan(data, 0, len(data)).fault == fault


def test_a_length_that_lies_upwards_allocates_nothing() -> None:
    data = batch(length=2**31 - 1)
    result = scan(data, 0, len(data))
    assert (result.batches, result.cut_off) == ([], len(data))


def test_equality_is_by_bytes_and_an_empty_field_is_not_null() -> None:
    data = batch()
    assert RecordData(b"ab" + data, 2, 2 + len(data)) == RecordData(data, 0, len(data))
    assert RecordData(b"", 0, 0)
    assert len(RecordData(b"", 0, 0)) == 0
    assert RecordData(b"", 0, 0).count() == 0
