"""tshark side by side: what it says of every sample, field by field and byte by byte, against kdissect.

Both programs tell where in a message each field lies. So nothing has to be known of tshark's names: a field
that it shows must lie where one of ours lies, and say the same; and each of ours must be shown by it. That is
more than api, version, correlation id, topics, offsets and errors: it is all of both headers and both bodies,
of tagged fields however only where they lie, because tshark does not look into them. Record batches are
compared head by head and record by record.

Only messages of which tshark does not complain are compared in that way. A complaint is

* an expert info below Kafka, but not below an entry of an ApiVersions response: an API or a version that this
  tshark does not know, a length that cannot be, a message that ends before or behind its last field, a
  response whose request is missing;
* an item of tshark's own behind the message: its dissector ran out of bytes ("Malformed Packet");
* for the records of a batch: "Cannot decompress records".

Framing, and the header of each request, are compared in all of them. What differs is listed in
``DIFFERENCES``.
"""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from functools import cache
from itertools import zip_longest
from textwrap import wrap
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest

from kdissect import dissect, open_capture
from kdissect.kafka import schema
from kdissect.kafka.batches import read_records
from kdissect.kafka.headers import request_header_version, response_header_version
from kdissect.kafka.layout import is_tagged
from kdissect.kafka.records import COMPRESSION, TIMESTAMP_TYPES, RecordData
from kdissect.kafka.walker import walk
from samples.golden import ROOT, captures, name_of
from tests.tshark import NO_REQUEST, SIZE_BYTES, messages_of_tshark, version

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from kdissect.kafka.batches import Batch as Opened
    from kdissect.kafka.recordbatch import Record
    from kdissect.model import Body, Exchange, Frame
    from tests.tshark import Batch, Message, Shown

pytestmark = pytest.mark.tshark

CAPTURES = captures()
MISSING = object()
CORRELATION_ID_POS = 4  # of a request; of a response 0


class Difference(NamedTuple):
    """Where the two do not agree.

    Attributes:
        what: the fields, by tshark's names; "record": one of a batch, "batch": that there is one.
        messages: in which, with their first and last version.
        right: who is.
        why: and why.
    """

    what: tuple[str, ...]
    messages: dict[str, tuple[int, int]]
    right: str
    why: str

    def describes(self, what: str, message: str, version: int) -> bool:
        first, last = self.messages.get(message, (0, -1))
        return what in self.what and first <= version <= last


LISTED_WITH = (4, 0)  # the tshark in which these are; a later one may have mended some
DIFFERENCES = [
    Difference(
        what=("batch.message_timestamp_type", "batch.message_timestamp", "record", "batch"),
        messages={"Produce request": (0, 2), "Fetch response": (0, 3)},
        right="kdissect",
        why="A message of magic 0 or 1 has one byte of attributes: bits 0 to 2 the codec, bit 3 the kind"
        " of timestamp; its key and its value have a length of four bytes (protocol guide, Message sets)."
        " tshark looks for bit 3 in the byte behind it, reads all that follows one byte too late, so that a"
        " timestamp is 256 times as large, and takes two bytes for each length. Mostly it runs out of bytes"
        " and complains; where enough messages follow, it takes them for the first one's value. Keys and"
        " values as kdissect has them stand in the truth files.",
    ),
]

# Of a batch, by tshark's names: ours, for magic 2 and for magic 0 and 1.
HEAD = {
    "offset": ("base_offset", "offset"),
    "message_size": ("batch_length", "message_size"),
    "leader_epoch": ("partition_leader_epoch",),
    "message_magic": ("magic",),
    "batch_crc": ("crc",),
    "message_crc": ("crc",),
    "batch_codec": ("compression",),
    "message_codec": ("compression",),
    "batch_timestamp_type": ("timestamp_type",),
    "message_timestamp_type": ("timestamp_type",),
    "batch_transactional": ("transactional",),
    "batch_control_batch": ("control",),
    "batch_last_offset_delta": ("last_offset_delta",),
    "batch_first_timestamp": ("base_timestamp",),
    "batch_last_timestamp": ("max_timestamp",),
    "message_timestamp": ("timestamp",),
    "producer_id": ("producer_id",),
    "producer_epoch": ("producer_epoch",),
    "batch_base_sequence": ("base_sequence",),
    "batch_size": ("records_count",),
}


# What it means -> what tshark says; the first that is true of a message. Most of what tshark 4.0 calls
# malformed it misreads: two bytes for the length of bytes, which has four (JoinGroup, SyncGroup,
# SaslAuthenticate, Produce and Fetch with messages of magic 0 and 1); offline replicas in UpdateMetadata
# before v4; a response to the second request with the same correlation id as if it were one to the first.
REASONS = {
    "an API that this tshark does not know": "API key",
    "a version that it does not know": "Unsupported",
    "a response whose request is missing, mostly because it failed at the one before": NO_REQUEST,
    "malformed": "",
}


class Place(NamedTuple):
    """Where a message is in a capture. A segment can hold several: they are compared in their order."""

    packet: int
    size: int
    correlation_id: int | None


class Side(NamedTuple):
    """One message of an exchange."""

    exchange: Exchange
    is_request: bool

    @property
    def frame(self) -> Frame:
        frame = self.exchange.request_frame if self.is_request else self.exchange.response_frame
        assert frame is not None
        return frame

    @property
    def place(self) -> Place:
        """Bytes of a SASL token are read as if they were a header, as tshark does."""
        pos = CORRELATION_ID_POS if self.is_request else 0
        raw = self.frame.data[pos : pos + 4]
        number = int.from_bytes(raw, signed=True) if len(raw) == 4 else None
        return Place(self.frame.packet, self.frame.size, number)

    @property
    def title(self) -> str:
        return f"{self.exchange.api or 'no api'} {'request' if self.is_request else 'response'}"


class Compared(NamedTuple):
    """The result for one capture.

    Attributes:
        counts: of messages, fields and so on.
        complaints: (reason, message, version) -> how often.
        differences: (tshark's field, message, version) -> an example: packet, tshark's, ours.
        ours_alone: messages that tshark does not find.
        theirs_alone: messages that only tshark finds.
        skipped_bytes: what kdissect says that it left out.
        headers: requests whose headers differ.
    """

    counts: Counter[str]
    complaints: Counter[tuple[str, str, int]]
    differences: dict[tuple[str, str, int], tuple[int, Any, Any]]
    only_kdissect: list[Place]
    only_tshark: list[Message]
    skipped_bytes: int
    headers: list[Place]


def known_ports(capture: Path) -> list[int]:
    truth = ROOT / "samples" / f"{name_of(capture)}.truth.json"
    return list(json.loads(truth.read_text())["ports"])


def sides(exchanges: list[Exchange]) -> dict[Place, list[Side]]:
    """By place, in the order of the stream. tshark does not show messages that did not end."""
    whole = [exchange for exchange in exchanges if exchange.announced is None or exchange.is_cut]
    both = [Side(exchange, is_request=True) for exchange in whole if exchange.request_frame is not None]
    both += [
        Side(exchange, is_request=False)
        for exchange in exchanges
        if exchange.response_frame is not None and not exchange.is_cut
    ]
    places: defaultdict[Place, list[Side]] = defaultdict(list)
    for side in sorted(both, key=lambda side: side.frame.start_ns):
        places[side.place].append(side)
    return places


@cache
def compared(capture: Path) -> Compared:
    messages = messages_of_tshark(ROOT / capture, known_ports(capture))
    with open_capture(ROOT / capture) as packets:
        run = dissect(packets, show_secrets=True)
        ours = sides(list(run))
    result = Compared(Counter(), Counter(), {}, [], [], run.counts["kafka_skipped_bytes"], [])
    for message in messages:
        place = Place(message.packet, message.size, message.correlation_id)
        if not ours[place]:
            result.only_tshark.append(message)
            continue
        side = ours[place].pop(0)
        result.counts["messages"] += 1
        compare_headers(message, side, result)
        if message.complaints:
            note_complaint(message, side, result)
        else:
            compare(message, side, result)
    result.only_kdissect.extend(place for place, left in ours.items() for _ in left)
    return result


def compare_headers(message: Message, side: Side, result: Compared) -> None:
    """What tshark calls a request is one, and asks for the same; of a SASL token it knows nothing."""
    exchange = side.exchange
    if side.is_request and exchange.api_key is not None:
        result.counts["request headers"] += 1
        if (message.is_request, message.api_key, message.api_version) != (
            True,
            exchange.api_key,
            exchange.api_version,
        ):
            result.headers.append(side.place)


def note_complaint(message: Message, side: Side, result: Compared) -> None:
    exchange = side.exchange
    reason = next(
        reason for reason, sign in REASONS.items() if any(sign in each for each in message.complaints)
    )
    result.complaints[reason, side.title, -1 if exchange.api_version is None else exchange.api_version] += 1
    where = "request" if side.is_request else "response"
    if exchange.api is not None and not any(
        anomaly.where.startswith(where) for anomaly in exchange.anomalies
    ):
        result.counts["decoded although tshark complains"] += 1


def compare(message: Message, side: Side, result: Compared) -> None:
    exchange = side.exchange
    assert exchange.api_version is not None
    key = (exchange.api_key, exchange.api_version)

    def differ(name: str, tsharks: object, ours: object) -> None:
        result.differences.setdefault((name, side.title, key[1]), (message.packet, tsharks, ours))

    if (message.api_key, message.api_version) != key or message.is_request != side.is_request:
        differ("api", (message.api_key, message.api_version, message.is_request), (*key, side.is_request))
        return
    result.counts["messages compared in full"] += 1
    fields, records = read(side)
    for shown in message.fields:
        result.counts["fields"] += 1
        ours = fields.pop((shown.pos, shown.pos + shown.size), MISSING)
        if ours is MISSING or not agree(shown, ours):
            differ(shown.name, shown, ours)
    for place, ours in fields.items():
        differ("not shown", place, ours)
    compare_batches(message.batches, records, result, differ)


def read(side: Side) -> tuple[dict[tuple[int, int], Any], list[RecordData]]:
    """Header and body: where from and to -> value, of all that has one of its own; and the records."""
    exchange, data = side.exchange, side.frame.data
    assert exchange.api_key is not None
    assert exchange.api_version is not None
    layout = exchange.request_layout if side.is_request else exchange.response_layout
    name = "RequestHeader" if side.is_request else "ResponseHeader"
    version_of = request_header_version if side.is_request else response_header_version
    version = version_of(exchange.api_key, exchange.api_version)
    header = walk(schema.header(name), version, data)
    body = walk(layout.message, layout.version, data, header.end, layout.draft)
    assert (body.error, body.end) == (None, len(data))
    fields: dict[tuple[int, int], Any] = {}
    records = []
    end = 0
    for span in (*header.spans, *body.spans):
        if span.pos < end:
            continue  # inside a tagged field, into which tshark does not look
        if span.type == "tag" or (span.field is not None and is_tagged(span.field, layout.version)):
            end = span.pos + span.length
            fields.update(tag_and_data(data, span.pos, end))
        elif isinstance(span.value, RecordData):
            records.append(span.value)
        elif span.type not in ("struct", "tags") and not span.type.startswith("[]"):
            fields[span.pos, span.pos + span.length] = span.value
    return fields, records


def tag_and_data(data: bytes, start: int, end: int) -> Iterator[tuple[tuple[int, int], Any]]:
    """A tagged field as tshark shows it: its tag, and without its size what it holds."""
    tag, pos = uvarint(data, start)
    yield (start, pos), tag
    size, pos = uvarint(data, pos)
    assert pos + size == end
    if size:
        yield (pos, end), data[pos:end]


def uvarint(data: bytes, pos: int) -> tuple[int, int]:
    shift = value = 0
    while data[pos] & 0x80:
        value |= (data[pos] & 0x7F) << shift
        shift += 7
        pos += 1
    return value | data[pos] << shift, pos + 1


def agree(shown: Shown, value: Any) -> bool:
    if isinstance(value, int):
        return bool(
            (shown.number - value) % (1 << 8 * shown.size) == 0
        )  # sets of bits have no sign in tshark
    if isinstance(value, bytes):
        return shown.text.replace(":", "") == value.hex()
    if isinstance(value, str) and not (value.isprintable() and "\ufffd" not in shown.text):
        # tshark's own escapes have no fixed length, and U+FFFD stands for any byte
        return shown.raw.decode("utf-8", "backslashreplace").endswith(value)
    return bool(shown.text == ("[ Null ]" if value is None else value))


def compare_batches(
    batches: list[Batch], records: list[RecordData], result: Compared, differ: Callable[..., None]
) -> None:
    heads = [head for data in records for head in data.batches()]
    for batch, head in zip_longest(batches, heads):
        if batch is None or head is None:
            differ("batch", batch, head)
            continue
        result.counts["batches"] += 1
        for name, tsharks in batch.head.items():
            if tsharks != head_value(head, name):
                differ(f"batch.{name}", tsharks, head_value(head, name))
    sealed = sum(batch.records is None for batch in batches)
    result.counts["batches that tshark cannot decompress"] += sealed
    if sealed:
        return
    tsharks = [record for batch in batches for record in batch.records or ()]
    ours = [
        as_row(batch, record) for data in records for batch in read_records(data) for record in batch.records
    ]
    result.counts["records"] += len(ours)
    for their, our in zip_longest(tsharks, ours):
        if their != our:
            differ("record", their, our)


def as_row(batch: Opened, record: Record) -> tuple[Any, ...]:
    """Of messages of magic 0 and 1 only the outer ones have an offset in tshark: that stands in the head."""
    if batch.magic < 2:
        return record.key, record.value
    return record.offset, record.key, record.value, record.headers


def head_value(head: Body, name: str) -> int | None:
    ours = [head[key] for key in HEAD[name] if key in head]
    if not ours:
        return None
    value = ours[0]
    if isinstance(value, str):
        return (COMPRESSION if value in COMPRESSION else TIMESTAMP_TYPES).index(value)
    return int(value)


@pytest.mark.parametrize("capture", CAPTURES, ids=name_of)
def test_both_find_the_same_messages(capture: Path) -> None:
    result = compared(capture)
    assert result.only_kdissect == []
    assert result.headers == []
    # Responses to requests before the capture began: nothing is known of them, kdissect counts their
    # bytes.
    assert all(message.complaints == [NO_REQUEST] for message in result.only_tshark)
    assert sum(message.size + SIZE_BYTES for message in result.only_tshark) <= result.skipped_bytes


@pytest.mark.parametrize("capture", CAPTURES, ids=name_of)
def test_where_tshark_does_not_complain_both_say_the_same(capture: Path) -> None:
    unlisted = {
        place: example
        for place, example in compared(capture).differences.items()
        if not any(difference.describes(*place) for difference in DIFFERENCES)
    }
    assert unlisted == {}


def test_the_listed_differences_are_there(report_line: Callable[..., None]) -> None:
    counts: Counter[str] = Counter()
    complaints: Counter[tuple[str, str, int]] = Counter()
    places = set()
    for capture in CAPTURES:
        result = compared(capture)
        counts += result.counts
        complaints += result.complaints
        places |= set(result.differences)
    for line in summary(counts, complaints):
        report_line(line, section="side by side with tshark")
    assert counts["messages compared in full"] > 1000
    if version() == LISTED_WITH:
        for difference in DIFFERENCES:
            assert any(difference.describes(*place) for place in places), difference.why


def summary(counts: Counter[str], complaints: Counter[tuple[str, str, int]]) -> Iterator[str]:
    """Lines for the end of the run: what was compared, and of what tshark complains."""
    yield ", ".join(f"{count} {what}" for what, count in sorted(counts.items()))
    for reason in REASONS:
        versions: defaultdict[str, set[int]] = defaultdict(set)
        for why, message, number in complaints:
            if why == reason:
                versions[message.rpartition(" ")[0]].add(number)
        total = sum(count for (why, _, _), count in complaints.items() if why == reason)
        yield f"tshark complains of {total} messages: {reason}"
        names = (f"{api} {' '.join(map(str, sorted(numbers)))}" for api, numbers in sorted(versions.items()))
        yield from wrap(", ".join(names), 110, initial_indent="  ", subsequent_indent="  ")
