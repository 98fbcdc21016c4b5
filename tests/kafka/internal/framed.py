"""Embedded messages as they travel: random bodies of every version, with what stands in front of them."""

from __future__ import annotations

from struct import pack
from typing import TYPE_CHECKING, NamedTuple

from kdissect.kafka import schema
from tests.kafka.encoder import encoder, put_uvarint
from tests.kafka.random_bodies import Case, cases, random_body

if TYPE_CHECKING:
    from random import Random

    from kdissect.model import Body

FAMILIES = {
    "consumer_protocol": "v16",
    "connect_protocol": "v16",
    "principal": "v16",
    "sticky_assignor": "none",
    "streams_protocol": "self32",
    "control_record": "self16",
    "group_coordinator": "coordinator",
    "txn_coordinator": "coordinator",
    "share_coordinator": "coordinator",
    "metadata_record": "frame",
    "remote_log_metadata": "frame",
}
V16_CONTROL = ("ControlRecordTypeSchema", "EndTxnMarker")


class Framed(NamedTuple):
    """An embedded message on the wire.

    Attributes:
        body: as the encoder took it.
        data: prefix and body.
    """

    case: Case
    framing: str
    body: Body
    data: bytes


def framed(case: Case, framing: str, random: Random) -> Framed:
    """A random instance of a layout behind its prefix."""
    body = random_body(case.layout, random)
    if framing.startswith("self") and case.draft is None:
        body["version"] = case.version
    return Framed(case, framing, body, prefix(case, framing) + encoded(case, body))


def encoded(case: Case, body: Body) -> bytes:
    return encoder(case.message, case.version, case.draft)(body)


def prefix(case: Case, framing: str) -> bytes:
    kind = case.message.api_key or 0
    if framing == "v16":
        return pack(">h", case.version)
    if framing == "type16":
        return pack(">h", kind)
    if framing == "frame":
        return put_uvarint(1) + put_uvarint(kind) + put_uvarint(case.version)
    return b""


def framing_of(family: str, case: Case) -> str:
    framing = FAMILIES[family]
    if framing == "coordinator":
        return "type16" if case.message.name.endswith("Key") else "v16"
    return "v16" if case.message.name in V16_CONTROL else framing


def every_case() -> list[tuple[str, Case]]:
    """Every layout that travels, with its family; drafts included."""
    return [
        (family, case) for family in FAMILIES for case in cases(schema.family(family)) if _is_declared(case)
    ]


def _is_declared(case: Case) -> bool:
    # A LeaderChangeMessage of 2.7 and 2.8 does not say its version: its leader's id stands in its place.
    return case.message.name != "LeaderChangeMessage" or case.draft is None


def shown(body: Body) -> Body:
    """A body without the keys that tell what it is."""
    return {name: value for name, value in body.items() if name not in ("_message", "_version", "_draft")}
