"""Records from the native core are those that Python reads, and their lines are those that Python writes."""

from __future__ import annotations

import io
from random import Random
from typing import TYPE_CHECKING

import pytest

from kdissect import core
from kdissect.kafka.recordbatch import Record, native_records, read_any_batch, read_batch
from kdissect.limits import DEFAULT, Limits
from kdissect.tables.lines import RecordLines
from kdissect.text.style import PLAIN, Style, Times
from kdissect.text.table import RecordTable
from tests.core import NEEDS_CORE, without_core
from tests.depth import IS_DEEP
from tests.record_batches import BASE_MS, CODECS, COMMIT_KEY, CONTROL, LOG_APPEND, Item, batch, record
from tests.record_exchanges import batches_of, fetch, long_batch, produce

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from kdissect.exchanges.partition_records import DecodedBatch
    from kdissect.model import Exchange

pytestmark = NEEDS_CORE

TIMES = 20_000 if IS_DEEP else 500
TEXTS = (
    *(None, b"", b"\0", b"NULL", b"10.0.0.1", b'""', b"\\", b'{"a": "b\\n"}', b"\xff", b" ", b"v" * 200),
    *("é".encode(), "\u2028".encode(), b"\xed\xa0\x80", b"\x7f", b"a\tb\r\n\x0c\x08\x1f", b"\0\0\0\0\7avro"),
)


def random_item(random: Random, *, usual: bool = False) -> Item:
    names = [b"h", "ü".encode(), b"", b"n" * 63, b"n" * 64] + ([] if usual else [b"\xff"])
    headers = [(random.choice(names), random.choice(TEXTS)) for _ in range(random.choice((0, 0, 0, 1, 3)))]
    late_ms = random.choice((0, -1, 1, 63, 64, 5000, -5000, 1 << 20, -(1 << 40), -BASE_MS - 1, -BASE_MS))
    return Item(random.choice(TEXTS), random.choice(TEXTS), tuple(headers), BASE_MS + late_ms)


def random_records(random: Random, *, usual: bool = False) -> bytes:
    deltas = (
        random.choice((0, 1, 63, 64, 8191, 8192, -1, (1 << 31) - 1)) for _ in range(random.randrange(6))
    )
    return b"".join(record(random_item(random, usual=usual), delta) for delta in deltas)


def mutated(raw: bytes, random: Random) -> bytes:
    out = bytearray(raw)
    for _ in range(random.choice((1, 1, 2, 5))):
        place = random.randrange(len(out) + 1)
        end = place + random.randrange(3)
        out[place:end] = random.choice((b"", b"\x01", b"\x80", b"\xff", random.randbytes(end - place)))
    return bytes(out)


def same_records(raw: bytes, random: Random) -> bool:
    """Whether the core takes them; then they are the same."""
    data = random.randbytes(3) + raw + random.choice((b"", b"\0\0\0"))
    base = random.choice((0, 7, -1, (1 << 63) - 1, -(1 << 63)))
    base_ms = random.choice((BASE_MS, BASE_MS, 0, (1 << 63) - 1))
    limits = Limits(batch_items=random.choice((3, 5, 1000)), record_headers=random.choice((2, 1000)))
    place = 3, 3 + len(raw)
    records, fault = read_batch(data, *place, base, base_ms, limits)
    expected = read_any_batch(data, *place, base, base_ms, limits)
    assert (list(records), repr(fault)) == (expected[0], repr(expected[1]))
    taken = native_records(records) is not None
    assert not (taken and fault)
    assert not taken or all(type(each) is Record for each in records)
    return taken


def test_the_core_takes_all_usual_records() -> None:
    random = Random(1)
    for _ in range(TIMES):
        raw = random_records(random, usual=True)
        records, _ = read_batch(raw, 0, len(raw), 7, BASE_MS, DEFAULT)
        assert native_records(records) is not None
        assert repr(records) == repr(read_any_batch(raw, 0, len(raw), 7, BASE_MS, DEFAULT)[0])


def test_records_are_the_same_whatever_the_bytes() -> None:
    random = Random(2)
    taken = 0
    for _ in range(TIMES):
        raw = random_records(random)
        taken += same_records(raw, random)
        for _ in range(9):
            taken += same_records(mutated(raw, random), random)
    assert TIMES < taken < 8 * TIMES


def test_they_are_a_sequence_like_a_list() -> None:
    raw = b"".join(record(Item(b"%d" % place), place) for place in range(5))
    records, _ = read_batch(raw, 0, len(raw), 0, 0, DEFAULT)
    expected, _ = read_any_batch(raw, 0, len(raw), 0, 0, DEFAULT)
    assert native_records(records) is records
    assert (records, len(records), records != expected[:4]) == (expected, 5, True)
    for index in (0, 4, -1, -5):
        assert records[index] == expected[index]
    for index in (5, -6, 1 << 62, -(1 << 62)):
        with pytest.raises(IndexError):
            records[index]
    for part in (slice(None), slice(1, 3), slice(3, 99), slice(4, 1), slice(None, None, -2), slice(-2, None)):
        assert records[part] == expected[part]
    with pytest.raises(TypeError):
        records["0"]  # type: ignore[call-overload]


def test_what_is_no_bytes_is_left_to_python() -> None:
    assert core.is_used
    assert core.native.read_records(bytearray(2), (0, 2), 0, 0, (1, 1, 1), tuple) is None
    for place in ((1, 0), (0, 3)):
        assert core.native.read_records(bytes(2), place, 0, 0, (1, 1, 1), tuple) is None


# Lines


STYLES = (PLAIN, Style(hosts={"10.0.0.1": "h"}))


def written(batches: Sequence[DecodedBatch]) -> list[str | bytes]:
    """JSON lines, and lines of text in several styles."""
    json: list[bytes] = []
    lines = RecordLines(json.append)
    tables = []
    for name, width, style in (
        ("ud", None, PLAIN),
        ("d", None, PLAIN),
        ("ud", 80, PLAIN),
        ("e", None, STYLES[1]),
    ):
        out = io.StringIO()
        tables.append((out, RecordTable(out, Times(name), width=width, style=style)))
    for each in batches:
        lines.feed_batch(each)
        for _, table in tables:
            table.feed_batch(each)
    lines.close()
    return [b"".join(json), *(out.getvalue() for out, _ in tables)]


def check_lines(exchanges: Sequence[Exchange], monkeypatch: pytest.MonkeyPatch) -> int:
    """Compare with and without the core. Returns how many batches the core holds."""
    batches = batches_of(*exchanges)
    lines = written(batches)
    with without_core():
        expected = written(batches_of(*exchanges))
    for one, other in zip(lines, expected, strict=True):
        assert one == other
    return sum(native_records(each.batch.records) is not None for each in batches)


def exchanges_of(raw: bytes) -> Iterator[Exchange]:
    yield fetch(raw)
    yield fetch(raw, topic="__consumer_offsets")
    for answer in (None, {}, {"base_offset": 41}, {"error_code": 7}):
        yield produce(raw, answer)
    yield produce(raw, {"base_offset": 41, "log_append_time_ms": BASE_MS + 2}, topic="ünï")


def test_any_records_have_the_same_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    random = Random(3)
    held = 0
    for _ in range(TIMES // 10):
        items = [random_item(random) for _ in range(random.choice((1, 2, 3, 9)))]
        codec, flags = random.choice(list(CODECS.values())), random.choice((0, 0, LOG_APPEND, 0x10))
        raw = batch(items, codec=codec, flags=flags, base_offset=random.choice((0, 99, -9)))
        raw += batch([Item(COMMIT_KEY, b"\0\0\0\0\0\7")], flags=CONTROL)
        held += check_lines(list(exchanges_of(raw)), monkeypatch)
        held += check_lines(list(exchanges_of(mutated(raw, random))), monkeypatch)
    assert held > TIMES // 10


def test_batches_in_pieces_have_the_same_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    large = batch([Item(b"%d" % place, b"%d" % place * 250) for place in range(3000)])
    for raw in (*(long_batch(odd) for odd in ((), (0,), (63, 64), range(150))), large):
        assert check_lines([fetch(raw), produce(raw)], monkeypatch)


def test_an_exception_is_met_in_python(monkeypatch: pytest.MonkeyPatch) -> None:
    """The core gives up, and Python raises what it raises without the core."""
    (records,) = batches_of(fetch(long_batch((2,))))

    def fail(*_: object) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(type(records), "plain", fail)
    with pytest.raises(ZeroDivisionError):
        RecordLines(lambda _: None).feed_batch(records)
    with pytest.raises(ZeroDivisionError):
        RecordTable(io.StringIO(), Times("ud")).feed_batch(records)
