"""Key and value of a record in one of Kafka's own topics -> what the broker wrote there. Holds nothing.

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

A null value deletes what its key names, and stays null. FetchSnapshot carries ``__cluster_metadata`` too.
Credentials are replaced as they are in bodies, and so are bytes of ``__cluster_metadata`` that nobody could
decode.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kdissect.kafka import secrets
from kdissect.kafka.internal import prefix
from kdissect.kafka.internal.payloads import Context, open_body
from kdissect.model import Embedded, Withheld

if TYPE_CHECKING:
    from kdissect.kafka.internal.prefix import Opened
    from kdissect.kafka.schema import Message

Payload = bytes | Embedded | Withheld | None
"""A key or value: as it was where it is not known what it says."""

CLUSTER_METADATA = "__cluster_metadata"
CLUSTER_METADATA_ID = "AAAAAAAAAAAAAAAAAAAAAQ"  # KIP-516 reserves it

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
_SECRETIVE = (CLUSTER_METADATA, CLUSTER_METADATA_ID)

_LEGACY_OFFSET, _OFFSET = 0, 1


def is_internal(topic: str | None) -> bool:
    """Whether ``open_record`` knows what a topic's records say."""
    return topic in _COORDINATORS or topic in _FRAMED


def open_record(
    topic: str | None, key: bytes | None, value: bytes | None, *, show_secrets: bool = False
) -> tuple[Payload, Payload]:
    """Decode key and value of a record that is no control record.

    Args:
        topic: its name; of ``__cluster_metadata`` the id does as well.
        key: uncompressed, None: null.
        value: likewise.
        show_secrets: leave credentials in.

    Returns:
        Key and value, each as it was where it says nothing that is known.
    """
    if topic in _COORDINATORS:
        family = _COORDINATORS[topic]
        opened_key = None if key is None else prefix.read_key(family, key)
        opened = None if key is None or value is None else _read_value(family, key, value)
        message = opened.message if opened is not None else _value_message(family, key)
        shown = _shown(opened, message, value, show_secrets=show_secrets)
        return _shown(opened_key, None, key, show_secrets=show_secrets), shown
    if topic in _FRAMED:
        opened = None if value is None else prefix.read_frame(_FRAMED[topic], value)
        if opened is None and topic in _SECRETIVE and not show_secrets:
            return _withheld(key), _withheld(value)
        return key, _shown(opened, None, value, show_secrets=show_secrets)
    return key, value


def _read_value(family: str, key: bytes, value: bytes) -> Opened | None:
    message = _value_message(family, key)
    if message is None:
        return None
    opened = prefix.read_versioned(message, value)
    if opened is None and prefix.record_type(key) == _LEGACY_OFFSET:
        # The type is that of the key alone: brokers wrote newer values behind old keys.
        newer = prefix.value_message(family, _OFFSET)
        opened = None if newer is None else prefix.read_versioned(newer, value)
    if opened is not None:
        open_body(opened.message, opened.body, Context(), "")
    return opened


def _value_message(family: str, key: bytes | None) -> Message | None:
    return None if key is None else prefix.value_message(family, prefix.record_type(key))


def _shown(
    opened: Opened | None, message: Message | None, data: bytes | None, *, show_secrets: bool
) -> Payload:
    """What a reader sees; ``message``: what the bytes should be, where they could not be read."""
    if data is None:
        return None
    expected = opened.message if opened is not None else message
    if show_secrets or expected is None or not secrets.carries_secrets(expected):
        return data if opened is None else Embedded(data, opened.body)
    if opened is None:
        return _withheld(data)
    secrets.withhold(opened.message, opened.body)
    if "_left_over" in opened.body:
        opened.body["_left_over"] = Withheld(len(opened.body["_left_over"]))
    return Embedded(Withheld(len(data)), opened.body)


def _withheld(data: bytes | None) -> Withheld | None:
    return None if data is None else Withheld(len(data))
