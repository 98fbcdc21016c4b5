"""Key and value of a control record -> what it marks. Holds nothing.

The key tells the type. The markers that end transactions are framed as v16 like the key (KIP-98); those of
KRaft begin with their version (KIP-595, KIP-630, KIP-853).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from kdissect.kafka import codes, schema
from kdissect.kafka.internal.prefix import read_self_versioned, read_versioned
from kdissect.model import Embedded

if TYPE_CHECKING:
    from kdissect.kafka.internal.prefix import Opened

_MARKERS = {0: "EndTxnMarker", 1: "EndTxnMarker"}
_OF_KRAFT = {
    2: "LeaderChangeMessage",
    3: "SnapshotHeaderRecord",
    4: "SnapshotFooterRecord",
    5: "KRaftVersionRecord",
    6: "VotersRecord",
}


class Control(NamedTuple):
    """A control record.

    Attributes:
        type: ``COMMIT``, ``ABORT``, ``LEADER_CHANGE`` ...; of a type that is not known its number; None: the
            key does not tell.
        key, value: decoded where they are what the type says.
    """

    type: str | None
    key: bytes | Embedded | None
    value: bytes | Embedded | None


def open_control_record(key: bytes | None, value: bytes | None) -> Control:
    """Decode a record of a control batch."""
    read_key = None if key is None else read_versioned(schema.embedded("ControlRecordTypeSchema"), key)
    if key is None or read_key is None:
        return Control(None, key, value)
    number: int = read_key.body["type"]
    name = codes.enum_name("ControlRecordTypeSchema", "type", number) or str(number)
    opened = None if value is None else _read_value(number, value)
    shown = value if value is None or opened is None else Embedded(value, opened.body)
    return Control(name, Embedded(key, read_key.body), shown)


def _read_value(number: int, value: bytes) -> Opened | None:
    if number in _MARKERS:
        return read_versioned(schema.embedded(_MARKERS[number]), value)
    if number in _OF_KRAFT:
        return read_self_versioned(schema.embedded(_OF_KRAFT[number]), value)
    return None
