from __future__ import annotations

from struct import pack
from typing import TYPE_CHECKING

import pytest

from kdissect.kafka import schema
from kdissect.kafka.internal.topics import open_control_record
from kdissect.model import Embedded
from kdissect.tables.values import json_bytes
from tests.attack.mutation import mutated
from tests.kafka.internal.framed import FAMILIES, Framed, every_case, framed, framing_of, shown

if TYPE_CHECKING:
    from tests.kafka.random_bodies import Case

TYPES = {
    "EndTxnMarker": 1,
    "LeaderChangeMessage": 2,
    "SnapshotHeaderRecord": 3,
    "SnapshotFooterRecord": 4,
    "KRaftVersionRecord": 5,
    "VotersRecord": 6,
}
NAMES = [
    "ABORT",
    "COMMIT",
    "LEADER_CHANGE",
    "SNAPSHOT_HEADER",
    "SNAPSHOT_FOOTER",
    "KRAFT_VERSION",
    "KRAFT_VOTERS",
]
CASES = [case for family, case in every_case() if family == "control_record" and case.message.name in TYPES]


def sample(case: Case, salt: str) -> Framed:
    return framed(case, framing_of("control_record", case), case.random(salt))


def key(number: int) -> bytes:
    return pack(">hh", 0, number)


@pytest.mark.parametrize("case", CASES, ids=[str(case.layout) for case in CASES])
def test_every_control_record(case: Case) -> None:
    number = TYPES[case.message.name]
    one = sample(case, "control")
    record = open_control_record(key(number), one.data)
    assert record.type == NAMES[number]
    assert isinstance(record.key, Embedded)
    assert shown(record.key.decoded) == {"type": number}
    assert isinstance(record.value, Embedded)
    assert record.value.data == one.data
    assert shown(record.value.decoded) == one.body


def test_the_marker_of_a_transaction() -> None:
    record = open_control_record(key(0), pack(">hi", 0, 7))
    assert record.type == "ABORT"
    assert isinstance(record.value, Embedded)
    assert record.value.decoded == {"_message": "EndTxnMarker", "_version": 0, "coordinator_epoch": 7}


def test_a_type_of_tomorrow_has_its_number_for_a_name() -> None:
    record = open_control_record(key(99), b"what")
    assert (record.type, record.value) == ("99", b"what")


@pytest.mark.parametrize("raw", [None, b"", b"\0\0\0", b"\0\1\0\1"])
def test_a_key_that_says_nothing(raw: bytes | None) -> None:
    assert open_control_record(raw, b"x") == (None, raw, b"x")


def test_a_value_may_be_null_or_something_else() -> None:
    assert open_control_record(key(1), None).value is None
    assert open_control_record(key(2), b"\0").value == b"\0"


def test_nothing_raises_on_damage() -> None:
    random = CASES[0].random("mutations")
    pieces = [sample(case, "damage") for case in CASES]
    for number in range(1500):
        piece = pieces[number % len(pieces)]
        wire = key(TYPES[piece.case.message.name])
        json_bytes(open_control_record(mutated(wire, random, 2), mutated(piece.data, random, 0)).value)


def test_every_family_that_travels_has_a_framing() -> None:
    files = {name.split("/")[1].removesuffix(".kmsg") for name in schema.file_names() if "/" in name}
    assert files - set(FAMILIES) == {"disk_file"}
