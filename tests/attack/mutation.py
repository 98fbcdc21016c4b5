"""Bytes -> other bytes, as an attacker who knows the format would change them: lengths, counts and varints at
their places, record batches under a correct checksum, and anything anywhere.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from kdissect.kafka import schema
from kdissect.kafka.headers import read_request_header, response_header_version
from kdissect.kafka.records import RecordData
from kdissect.kafka.walker import walk
from tests.frames import request_payload
from tests.kafka.encoder import encoder
from tests.kafka.random_bodies import cases, random_body, rpc_messages
from tests.record_batches import CODECS, COMPRESS, Item, batch, message_set, record

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from random import Random

    from kdissect.kafka.schema import Message
    from kdissect.kafka.walker import Span

MARKS = (
    b"\xff\xff\xff\xff", b"\x7f\xff\xff\xff", b"\x00\x10\x00\x00", b"\x80\x00\x00\x00",
    b"\xff" * 8, b"\x80" * 9 + b"\x01", b"\xff\xff\xff\xff\x0f", b"\xff\xff\xff\xff\x07",
)  # fmt: skip
"""Sizes that are negative, enormous, or varints of more bytes than they need."""


def mutated(payload: bytes, random: Random, keep: int) -> bytes:
    """Some bytes changed, some cut out or put in; the first ``keep`` stay."""
    out = bytearray(payload)
    for _ in range(random.randint(1, 6)):
        place = random.randint(keep, len(out))
        what = random.randrange(4)
        if what == 0 and place < len(out):
            out[place] = random.choice((0, 1, 0x7F, 0x80, 0xFF, random.randrange(256)))
        elif what == 1:
            out[place : place + random.randrange(9)] = b""
        elif what == 2:
            out[place:place] = random.randbytes(random.randrange(9))
        else:
            out[place : place + 4] = random.choice(MARKS[:3])
    return bytes(out)


def mutated_fields(payload: bytes, spans: Sequence[Span], random: Random, keep: int) -> bytes:
    """Some fields changed, from the last to the first, so that the places of the others stay right."""
    out = bytearray(payload)
    chosen = random.sample(spans, min(len(spans), random.randint(1, 3)))
    for span in sorted(chosen, key=lambda each: -each.pos):
        place, end = span.pos, span.pos + span.length
        field = bytes(out[place:end])
        match random.randrange(6):
            case 0:  # its length, count or number
                out[place : place + random.choice((1, 2, 4, 8))] = random.choice(MARKS)
            case 1:  # one more or less
                out[place : place + 1] = (
                    bytes([(out[place] + random.choice((1, -1))) % 256]) if field else b""
                )
            case 2:
                out[place:end] = b""
            case 3:
                out[place:end] = field * random.choice((2, 3, 50))
            case 4:
                out[place:end] = random.randbytes(len(field))
            case _:  # another field in its place
                other = random.choice(spans)
                out[place:end] = payload[other.pos : other.pos + other.length]
    return bytes(out[:keep].ljust(keep, b"\0") + out[keep:])


class Original(NamedTuple):
    """A message before its damage.

    Attributes:
        payload: with its header, without its size.
        spans: the fields of its body, except those without bytes.
        keep: bytes of the header that make it recognizable.
    """

    payload: bytes
    spans: list[Span]
    keep: int

    def damaged(self, random: Random) -> bytes:
        """The message with fields changed, or any bytes."""
        if self.spans and random.random() < 0.7:
            return mutated_fields(self.payload, self.spans, random, self.keep)
        return mutated(self.payload, random, self.keep)

    def shortened(self, random: Random) -> bytes:
        """The message without its last fields, or with a zero first in some: a compact field is null then."""
        if not self.spans or random.random() < 0.5:
            return self.payload[: random.choice(self.spans).pos] if self.spans else self.payload
        out = bytearray(self.payload)
        for span in random.sample(self.spans, min(3, len(self.spans))):
            out[span.pos] = 0
        return bytes(out)


class Pair(NamedTuple):
    """A request and its response."""

    api_key: int
    version: int
    request: Original
    response: Original


def pairs(random: Random) -> Iterator[Pair]:
    """Random messages of every layout in turn."""
    by_key: dict[tuple[int | None, int], dict[str, bytes]] = {}
    for case in cases(rpc_messages()):
        if case.draft is None:
            body = _with_records(random_body(case.layout, random), random)
            by_key.setdefault((case.message.api_key, case.version), {})[case.message.kind] = encoder(
                case.message, case.version
            )(body)
    for (key, version), bodies in by_key.items():
        assert key is not None
        complete = request_payload(key, version)
        pos = read_request_header(complete).body_pos
        header = b"\0\0\0\1" + b"\0" * response_header_version(key, version)
        yield Pair(
            key,
            version,
            _original(schema.request(key), version, complete[:pos] + bodies["request"], pos, 8),
            _original(schema.response(key), version, header + bodies["response"], len(header), 4),
        )


def _original(message: Message | None, version: int, payload: bytes, pos: int, keep: int) -> Original:
    assert message is not None
    return Original(
        payload, [span for span in walk(message, version, payload, pos).spans if span.length], keep
    )


def _with_records(value: Any, random: Random) -> Any:
    """The same with batches in the place of random bytes."""
    if isinstance(value, dict):
        return {name: _with_records(each, random) for name, each in value.items()}
    if isinstance(value, list):
        return [_with_records(each, random) for each in value]
    if isinstance(value, RecordData):
        data = records(random)
        return RecordData(data, 0, len(data))
    return value


def records(random: Random) -> bytes:
    """Batches and message sets, most of them damaged somewhere: inside the compressed data under a correct
    checksum, in the header, or anywhere.
    """
    items = [
        Item(random.randbytes(3), random.randbytes(random.choice((0, 9, 400))), ((b"h", None),))
        for _ in range(random.randint(1, 4))
    ]
    codec = random.choice([*CODECS.values()])
    ways: tuple[Callable[[], bytes], ...] = (
        lambda: batch(items, codec=codec),
        lambda: batch(items, codec=codec, compress=lambda plain: COMPRESS[codec](mutated(plain, random, 0))),
        lambda: batch(items, codec=codec, compress=lambda plain: mutated(COMPRESS[codec](plain), random, 0)),
        lambda: batch(
            items,
            codec=random.randrange(8),
            compress=bytes,
            flags=random.choice((0x08, 0x10, 0x20, 0x30, 0x40)),
        ),
        lambda: batch(
            items, count=random.choice((-1, 0, 1 << 30, 2)), last_offset_delta=random.choice((-1, 9))
        ),
        lambda: batch(payload=record(items[0], 0, length=random.choice((-1, 0, 1 << 30))), codec=0),
        lambda: batch(items, length=random.choice((-1, 0, 48, 49, 1 << 30))),
        lambda: message_set(random.randrange(2), items, codec=random.choice((0, 1, 2))),
        lambda: mutated(message_set(1, items, codec=1), random, 0),
        lambda: mutated(batch(items, codec=codec), random, 0),
    )
    return b"".join(random.choice(ways)() for _ in range(random.randint(1, 3)))
