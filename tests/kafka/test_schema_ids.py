from __future__ import annotations

from struct import pack
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kdissect.kafka.traces import SchemaId, schema_id

GUID = UUID("7e6be6ae-3a1c-4c9c-8f0e-1d3a5b7c9e10")
AVRO = pack(">bi", 0, 100_042) + b"\x0ahello"


def test_an_id_in_front_of_a_value() -> None:
    assert schema_id(AVRO) == SchemaId(100_042, None, 5)
    assert AVRO[5:] == b"\x0ahello"


def test_a_header_goes_first() -> None:
    assert schema_id(b"{}", b"\1" + GUID.bytes) == SchemaId(None, str(GUID), 0)
    assert schema_id(AVRO, b"\1" + GUID.bytes) == SchemaId(None, str(GUID), 0)
    assert schema_id(None, pack(">bi", 0, 7)) == SchemaId(7, None, 0)
    assert schema_id(AVRO, b"other") == SchemaId(100_042, None, 5)


@pytest.mark.parametrize(
    "value",
    [
        None,
        b"",
        b"\0",
        b"\0\0\0\1",
        pack(">q", 42),
        pack(">q", 1_790_000_000_123),
        pack(">q", 1_790_000_000_123_456),
        pack(">bi", 0, 7),
        pack(">bi", 0, 0x01000000) + b"data",
        bytes(range(256)),
        pack(">bi", 0, 0),
        pack(">bi", 0, -1),
        b"\1" + GUID.bytes,
        b"{}",
    ],
)
def test_values_that_name_no_schema(value: bytes | None) -> None:
    assert schema_id(value) is None


@given(st.binary(max_size=30), st.none() | st.binary(max_size=30))
def test_any_bytes(value: bytes, header: bytes | None) -> None:
    result = schema_id(value, header)
    assert result is None or (result.id is None) != (result.guid is None)
