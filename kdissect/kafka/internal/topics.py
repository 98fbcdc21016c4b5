"""Key and value of a record in one of Kafka's own topics -> decoded key and value. Holds nothing.

======================  ======  ===============================================================
topic                   framed  written by
======================  ======  ===============================================================
__consumer_offsets      keys    the coordinator of groups: offsets, members, assignments
__transaction_state     type16, the coordinator of transactions
__share_group_state     values  the coordinator of share groups
                        v16
__cluster_metadata      frame   the controller: topics, partitions, configs, credentials; no keys
__remote_log_metadata   frame   tiered storage; no keys
======================  ======  ===============================================================

A null value is a tombstone, and stays null. FetchSnapshot carries ``__cluster_metadata`` too. Credentials are
redacted as in bodies, and so are bytes of ``__cluster_metadata`` that cannot be decoded.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from kdissect.kafka import codes, schema, secrets
from kdissect.kafka.internal import payloads
from kdissect.kafka.internal.payloads import Context, open_body, read_self_versioned, read_versioned
from kdissect.model import Embedded, Redacted

if TYPE_CHECKING:
    from kdissect.kafka.internal.payloads import DecodedPayload
    from kdissect.kafka.schema import Message


Payload = bytes | Embedded | Redacted | None
"""A key or value: unchanged bytes if its content is unknown."""

CLUSTER_METADATA = "__cluster_metadata"
CLUSTER_METADATA_ID = "AAAAAAAAAAAAAAAAAAAAAQ"  # reserved by KIP-516

_COORDINATORS = {
    "__consumer_offsets": "group_coordinator",
    "__transaction_state": "txn_coordinator",
    "__share_group_state": "share_coordinator",
}
_FRAMED = {
    CLUSTER_METADATA: "metadata_record",
    CLUSTER_METADATA_ID: "metadata_record",
    "__remote_log_metadata": "remote_log_metadata",
}
_WITH_CREDENTIALS = (CLUSTER_METADATA, CLUSTER_METADATA_ID)

_LEGACY_OFFSET, _OFFSET = 0, 1


def is_internal(topic: str | None) -> bool:
    """Whether ``open_record`` can decode a topic's records."""
    return topic in _COORDINATORS or topic in _FRAMED


def open_record(
    topic: str | None, key: bytes | None, value: bytes | None, *, show_secrets: bool = False
) -> tuple[Payload, Payload]:
    """Decode key and value of a record that is not a control record.

    Args:
        topic: its name. For ``__cluster_metadata`` the ID works as well.
        key: uncompressed. None: null.
        value: likewise.
        show_secrets: do not redact credentials.

    Returns:
        Key and value, each unchanged if its content is unknown.
    """
    if topic in _COORDINATORS:
        family = _COORDINATORS[topic]
        decoded_key = None if key is None else payloads.read_key(family, key)
        decoded = None if key is None or value is None else _read_value(family, key, value)
        message = decoded.message if decoded is not None else _value_message(family, key)
        shown = _shown(decoded, message, value, show_secrets=show_secrets)
        return _shown(decoded_key, None, key, show_secrets=show_secrets), shown
    if topic in _FRAMED:
        decoded = None if value is None else payloads.read_frame(_FRAMED[topic], value)
        if decoded is None and topic in _WITH_CREDENTIALS and not show_secrets:
            return _redacted(key), _redacted(value)
        return key, _shown(decoded, None, value, show_secrets=show_secrets)
    return key, value


def _read_value(family: str, key: bytes, value: bytes) -> DecodedPayload | None:
    message = _value_message(family, key)
    if message is None:
        return None
    decoded = payloads.read_versioned(message, value)
    if decoded is None and payloads.record_type(key) == _LEGACY_OFFSET:
        # The type is only that of the key: brokers wrote newer values with old keys.
        newer = payloads.value_message(family, _OFFSET)
        decoded = None if newer is None else payloads.read_versioned(newer, value)
    if decoded is not None:
        open_body(decoded.message, decoded.body, Context(), "")
    return decoded


def _value_message(family: str, key: bytes | None) -> Message | None:
    return None if key is None else payloads.value_message(family, payloads.record_type(key))


def _shown(
    decoded: DecodedPayload | None, message: Message | None, data: bytes | None, *, show_secrets: bool
) -> Payload:
    """The redacted output. ``message``: the expected content of bytes that could not be decoded."""
    if data is None:
        return None
    expected = decoded.message if decoded is not None else message
    if show_secrets or expected is None or not secrets.carries_secrets(expected):
        return data if decoded is None else Embedded(data, decoded.body)
    if decoded is None:
        return _redacted(data)
    secrets.redact(decoded.message, decoded.body)
    if "_trailing" in decoded.body:
        decoded.body["_trailing"] = Redacted(len(decoded.body["_trailing"]))
    return Embedded(Redacted(len(data)), decoded.body)


def _redacted(data: bytes | None) -> Redacted | None:
    return None if data is None else Redacted(len(data))


# ------------------------------------------------------------------------------------------------------------
# Key and value of a control record -> its type and decoded content. Holds nothing.
#
# The key contains the type. The markers that end transactions are framed as v16 like the key (KIP-98). Those
# of KRaft begin with their version (KIP-595, KIP-630, KIP-853).
# ------------------------------------------------------------------------------------------------------------


_MARKERS = {0: "EndTxnMarker", 1: "EndTxnMarker"}
_KRAFT_MESSAGES = {
    2: "LeaderChangeMessage",
    3: "SnapshotHeaderRecord",
    4: "SnapshotFooterRecord",
    5: "KRaftVersionRecord",
    6: "VotersRecord",
}


class Control(NamedTuple):
    """A control record.

    Attributes:
        type: ``COMMIT``, ``ABORT``, ``LEADER_CHANGE`` and so on. The number of an unknown type. None if the
            key has none.
        key, value: decoded if they match the type.
    """

    type: str | None
    key: bytes | Embedded | None
    value: bytes | Embedded | None

    @property
    def is_malformed(self) -> bool:
        """Whether key or value is not what it must be."""
        return self.type is None or not isinstance(self.value, Embedded | None)


def open_control_record(key: bytes | None, value: bytes | None) -> Control:
    """Decode a record of a control batch."""
    read_key = None if key is None else read_versioned(schema.embedded("ControlRecordTypeSchema"), key)
    if key is None or read_key is None:
        return Control(None, key, value)
    number: int = read_key.body["type"]
    name = codes.enum_name("ControlRecordTypeSchema", "type", number) or str(number)
    decoded = None if value is None else _read_control_value(number, value)
    shown = value if value is None or decoded is None else Embedded(value, decoded.body)
    return Control(name, Embedded(key, read_key.body), shown)


def _read_control_value(number: int, value: bytes) -> DecodedPayload | None:
    if number in _MARKERS:
        return read_versioned(schema.embedded(_MARKERS[number]), value)
    if number in _KRAFT_MESSAGES:
        return read_self_versioned(schema.embedded(_KRAFT_MESSAGES[number]), value)
    return None
