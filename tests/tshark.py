"""tshark's view of a capture: its pdml, an XML of every field with its place, -> one ``Message`` each.

Kept is what kdissect can be held against: where each field lies and what it says, the record batches, and
whether tshark itself found anything wrong. Holds the XML of one packet at a time.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import xml.etree.ElementTree as ET
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

SIZE_BYTES = 4
NO_REQUEST = "Request missing"
_EXPERT = "_ws.expert.message"  # text of an expert info; those of the Kafka dissector are all about faults
# In an ApiVersions response: a fault below is that this tshark does not know the API, not that the message is
# ill.
_LISTED_API = "API Version "
_NUMBER = re.compile(r"-?(\d+|0x[0-9a-f]+)")


class Shown(NamedTuple):
    """One field.

    Attributes:
        name: tshark's, ``kafka.offset``: one name for many fields.
        text: as shown to filters; of a time its date, of bytes hex with colons.
        raw: the bytes themselves; only the bits of a bit field.
        label: as shown to people.
        pos, size: its bytes in the frame behind the size field, with a string's length.
    """

    name: str
    text: str
    raw: bytes
    label: str
    pos: int
    size: int

    @property
    def number(self) -> int:
        """Its number, for a time that of the wire."""
        if _NUMBER.fullmatch(self.text):
            return int(self.text, 0)
        return int.from_bytes(self.raw, signed=True)

    @property
    def nullable(self) -> bytes | None:
        """The bytes of a record's key or value."""
        return None if self.label.endswith("<NULL>") else self.raw


class Batch(NamedTuple):
    """A record batch, or a message of magic 0 or 1.

    Attributes:
        head: what stands in front of the records, by tshark's names without ``kafka.``.
        records: key and value, of magic 2 offset and headers too; None where tshark cannot decompress them.
    """

    head: dict[str, int]
    records: list[tuple[object, ...]] | None


@dataclass(slots=True)
class Message:
    """One Kafka message.

    Attributes:
        packet: number of the packet in which it ends.
        size: as its size field says.
        is_request: None where tshark does not tell.
        api_key, api_version: None where tshark knows no request to a response.
        correlation_id: None in what is not long enough for one.
        fields: those with bytes in the message, but not what is inside records.
        batches: those in its records. No fields and no batches where there are complaints.
        complaints: what tshark found wrong, in its words.
    """

    packet: int
    size: int
    is_request: bool | None
    api_key: int | None
    api_version: int | None
    correlation_id: int | None
    fields: list[Shown] = field(default_factory=list)
    batches: list[Batch] = field(default_factory=list)
    complaints: list[str] = field(default_factory=list)


def program() -> str:
    path = shutil.which("tshark")
    if path is None:
        pytest.skip("tshark is not installed")
    return path


def version() -> tuple[int, int]:
    """Of this machine's tshark."""
    text = subprocess.run([program(), "--version"], capture_output=True, check=True, text=True).stdout
    match = re.search(r"(\d+)\.(\d+)", text)
    assert match is not None
    return int(match[1]), int(match[2])


def messages_of_tshark(capture: Path, ports: Iterable[int]) -> list[Message]:
    """All messages on connections with these ports, in tshark's order."""
    kafka = [word for port in ports for word in ("-d", f"tcp.port=={port},kafka")]
    command = [program(), "-n", "-r", str(capture), *kafka, "-Y", "kafka", "-J", "kafka", "-T", "pdml"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as process:
        messages = list(_messages(process))
    assert process.returncode == 0
    return messages


def _messages(process: subprocess.Popen[bytes]) -> Iterator[Message]:
    assert process.stdout is not None
    for _, packet in ET.iterparse(process.stdout):
        if packet.tag != "packet":
            continue
        (number,) = (each for each in packet.iter("field") if each.get("name") == "num")
        message = None
        for protocol in packet.findall("proto"):
            name = protocol.get("name", "")
            if name == "kafka":
                if message is not None:
                    yield message
                message = _message(int(number.get("show", "")), protocol)
            elif name.startswith("_ws.") and message is not None:
                # An exception of the dissector ends a message early and stands behind it.
                message.complaints.append(name)
        if message is not None:
            yield message
        packet.clear()


def _message(packet: int, protocol: ET.Element) -> Message:
    attributes = {each.get("name"): each.get("show", "") for each in protocol.findall("field")}
    faults = list(_faults(protocol))
    is_request = "kafka.request_key" in attributes
    is_response = "kafka.response_key" in attributes or NO_REQUEST in faults
    version = attributes.get("kafka.request.version", attributes.get("kafka.response.version"))
    message = Message(
        packet,
        int(attributes["kafka.len"]),
        is_request if is_request or is_response else None,
        int(attributes["kafka.api_key"]) if "kafka.api_key" in attributes else None,
        None if version is None else int(version),
        int(attributes["kafka.correlation_id"]) if "kafka.correlation_id" in attributes else None,
        complaints=faults,
    )
    if not faults:
        _read(protocol, int(protocol.get("pos", "")) + SIZE_BYTES, message)
    return message


def _faults(element: ET.Element) -> Iterator[str]:
    for inner in element.findall("field"):
        name = inner.get("name", "")
        if name == _EXPERT:
            yield inner.get("show", "")
        elif name or not inner.get("show", "").startswith(_LISTED_API):
            yield from _faults(inner)


def _shown(element: ET.Element, start: int) -> Shown:
    value = element.get("value", "")
    is_bits = "unmaskedvalue" in element.attrib
    return Shown(
        element.get("name", ""),
        element.get("show", ""),
        b"" if is_bits else bytes.fromhex(value),
        element.get("showname", ""),
        int(element.get("pos", "")) - start,
        int(element.get("size", "")),
    )


def _read(element: ET.Element, start: int, message: Message) -> None:
    """Fields and batches below an element; tshark's own remarks have no bytes, its groupings no name."""
    for inner in element.findall("field"):
        name, label = inner.get("name", ""), inner.get("show", "")
        if not name and label == "Message Set":
            message.batches += [
                _batch(each, start) for each in inner.findall("field") if not each.get("name")
            ]
        elif not name:
            _read(inner, start, message)
        elif name.startswith("kafka.") and inner.get("size") != "0" and not inner.get("hide"):
            shown = _shown(inner, start)
            if shown.pos >= 0:  # the size field is in front
                message.fields.append(shown)


def _batch(element: ET.Element, start: int) -> Batch:
    plain = [
        _shown(each, start) for each in element.findall("field") if each.get("name", "").startswith("kafka.")
    ]
    payload = ("kafka.message_key", "kafka.message_value")
    head = {
        each.name.removeprefix("kafka."): each.number
        for each in plain
        if each.name not in (*payload, "kafka.message_compression_reduction")
    }
    inside = [each for each in element.findall("field") if not each.get("name")]
    if "Cannot decompress" in element.get("show", ""):
        return Batch(head, None)
    if head.get("message_magic") == 2:
        return Batch(head, [_record(each, start) for each in inside if each.get("show") == "Record"])
    return Batch(head, [tuple(each.nullable for each in plain if each.name in payload)])


def _record(element: ET.Element, start: int) -> tuple[object, ...]:
    attributes = {
        each.get("name"): _shown(each, start) for each in element.findall("field") if each.get("name")
    }
    headers = [
        tuple(_shown(each, start) for each in header.findall("field"))
        for group in element.findall("field")
        if group.get("show") == "Headers"
        for header in group.findall("field")
    ]
    return (
        attributes["kafka.offset"].number,
        attributes["kafka.message_key"].nullable,
        attributes["kafka.message_value"].nullable,
        tuple((key.text, value.nullable) for key, value in headers),
    )
