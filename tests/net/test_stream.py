from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kdissect.model import Data, Gap, Interface
from kdissect.net.stream import PIECE_COST, Piece, Stream, advance, distance

ETHERNET = Interface("test.pcap", 0, 1)
NUMBERS = st.integers(0, 2**32 - 1)


def piece(
    start: int, payload: bytes, *, wire: int | None = None, acknowledges: int | None = None, packet: int = 1
) -> Piece:
    end = advance(start, len(payload) if wire is None else wire)
    return Piece(start % 2**32, end, payload, acknowledges, packet, 0, ETHERNET)


def text(items: list[Data | Gap]) -> str:
    """Bytes as they are, a gap as its length and reason."""
    return "".join(
        item.payload.decode() if isinstance(item, Data) else f"<{item.length} {item.reason}>"
        for item in items
    )


@given(NUMBERS, st.integers(-(2**31), 2**31 - 1))
def test_distance_undoes_advance_at_any_place(start: int, length: int) -> None:
    assert distance(start, advance(start, length)) == length


# (what comes: (place, bytes), ...), what is passed on after each
CASES = {
    "in order": ([(0, "abc"), (3, "def")], ["abc", "def"]),
    "late": ([(3, "def"), (0, "abc")], ["", "abcdef"]),
    "again": ([(0, "abc"), (0, "abc"), (3, "d")], ["abc", "", "d"]),
    "again, in other parts": ([(0, "abc"), (2, "cde"), (1, "bcdef")], ["abc", "de", "f"]),
    "a keep-alive probe repeats one byte": ([(0, "abc"), (2, "\0"), (3, "d")], ["abc", "", "d"]),
    "held twice, the first wins": ([(2, "CD"), (2, "xyE"), (0, "ab")], ["", "", "abCDE"]),
    "overlaps both neighbors": ([(1, "B"), (3, "D"), (0, "abcde")], ["", "", "aBcDe"]),
    "covered by a larger one": ([(2, "c"), (1, "bcd"), (0, "a")], ["", "", "abcd"]),
    "three holes": (
        [(5, "f"), (3, "d"), (1, "b"), (0, "a"), (4, "e"), (2, "c")],
        ["", "", "", "ab", "", "cdef"],
    ),
}


@pytest.mark.parametrize("first", [0, 1000, 2**31 - 2, 2**32 - 3, 2**32 - 1])
@pytest.mark.parametrize("name", CASES)
def test_segments_in_bytes_out(name: str, first: int) -> None:
    came, expected = CASES[name]
    stream, other, counts = Stream(), Stream(), Counter[str]()
    stream.begin(first, exact=True)
    passed = []
    for place, payload in came:
        stream.put(piece(advance(first, place), payload.encode()), counts)
        passed.append(text(stream.release(other)))
    assert passed == expected
    assert (stream.pieces, stream.runs, stream.held) == ([], 0, 0)


def test_each_byte_keeps_the_packet_that_carried_it() -> None:
    stream, counts = Stream(), Counter[str]()
    stream.put(piece(3, b"def", packet=1), counts)
    stream.put(piece(0, b"abcd", packet=2), counts)
    items = stream.release(Stream())
    assert [(item.packet, text([item])) for item in items] == [(2, "abc"), (1, "def")]


def test_what_is_counted() -> None:
    stream, counts = Stream(), Counter[str]()
    stream.put(piece(0, b"abc"), counts)
    stream.release(Stream())
    stream.put(piece(1, b"bcd"), counts)
    stream.put(piece(2**32 - 5, b"12345"), counts)
    assert counts == {"retransmitted_bytes": 7, "repeated_segments": 1}
    counts.clear()
    stream.put(piece(10, b"abc"), counts)
    stream.put(piece(11, b"bX"), counts)
    stream.put(piece(6, b"6"), counts)
    assert counts == {
        "out_of_order": 3,
        "overlapping_bytes": 2,
        "conflicting_bytes": 1,
        "repeated_segments": 1,
    }


def test_a_cut_piece_is_data_and_a_gap() -> None:
    stream, counts = Stream(), Counter[str]()
    stream.put(piece(0, b"abc", wire=10), counts)
    stream.put(piece(10, b"", wire=5), counts)
    stream.put(piece(12, b"xxxyz"), counts)
    assert text(stream.release(Stream())) == "abc<7 cut><5 cut>yz"
    assert not counts["conflicting_bytes"]


def test_bytes_wait_for_what_they_acknowledge() -> None:
    stream, other, counts = Stream(), Stream(), Counter[str]()
    stream.put(piece(0, b"ab", acknowledges=5), counts)
    assert stream.release(other) == []
    other.next = 5
    assert text(stream.release(other)) == "ab"


def test_the_lowest_acknowledgment_of_all_copies_counts() -> None:
    stream, other, counts = Stream(), Stream(), Counter[str]()
    stream.put(piece(0, b"ab", acknowledges=5), counts)
    stream.put(piece(0, b"ab", acknowledges=9), counts)
    other.next = 4
    assert stream.release(other) == []
    stream.put(piece(0, b"ab", acknowledges=3), counts)
    assert text(stream.release(other)) == "ab"


def test_a_fin_takes_one_number() -> None:
    stream, counts = Stream(), Counter[str]()
    stream.fin = 3
    stream.put(piece(1, b"bc"), counts)
    stream.release(Stream())
    assert not stream.ended
    stream.put(piece(0, b"a"), counts)
    assert text(stream.release(Stream())) == "abc"
    assert (stream.ended, stream.next) == (True, 4)


def test_skip_stops_at_its_argument_or_at_the_next_piece() -> None:
    stream, counts = Stream(), Counter[str]()
    cause = piece(0, b"", packet=9)
    stream.put(piece(5, b"fg", packet=1), counts)
    assert text(stream.skip(2, cause)) == "<2 lost>"
    assert not stream.release(Stream())
    assert text(items := stream.skip(20, cause)) == "<3 lost>"
    assert items[0].packet == 1
    assert text(stream.release(Stream())) == "fg"
    assert text(items := stream.skip(20, cause)) == "<13 lost>"
    assert items[0].packet == 9
    assert (stream.next, stream.runs, stream.held) == (20, 0, 0)


def test_one_acknowledged_number_after_everything_is_a_fin_that_was_not_captured() -> None:
    stream = Stream()
    assert stream.skip(1, piece(0, b"")) == []
    assert stream.next == 1


def test_a_fin_is_no_missing_byte() -> None:
    stream = Stream()
    stream.fin = 4
    assert text(stream.skip(5, piece(0, b""))) == "<4 lost>"
    stream.release(Stream())
    assert (stream.ended, stream.next) == (True, 5)


OFFSETS = st.integers(0, 60)
PIECES = st.tuples(
    st.just("put"), OFFSETS, st.integers(1, 20), st.integers(0, 3), st.sampled_from([0, 0, 0, 1, 5])
)
STEPS = st.lists(st.one_of(PIECES, PIECES, PIECES, st.tuples(st.just("skip"), OFFSETS)), max_size=40)


class ByteMap:
    """The stream as a dictionary: place -> the first byte that was captured for it, None where it was cut."""

    def __init__(self) -> None:
        self.bytes: dict[int, int | None] = {}
        self.next = 0

    def put(self, place: int, payload: bytes, length: int) -> None:
        for index in range(length):
            if place + index >= self.next:
                self.bytes.setdefault(place + index, payload[index] if index < len(payload) else None)

    def release(self) -> list[int | None]:
        out = []
        while self.next in self.bytes:
            out.append(self.bytes.pop(self.next))
            self.next += 1
        return out

    def skip(self, end: int) -> list[int | None]:
        end = min((end, *self.bytes))
        missing = end - self.next
        self.next = end
        # One missing byte at the very end is taken for a FIN.
        return ([None] * missing if self.bytes or missing > 1 else []) + self.release()


def one_by_one(items: list[Data | Gap]) -> list[int | None]:
    out: list[int | None] = []
    for item in items:
        out += list(item.payload) if isinstance(item, Data) else [None] * item.length
    return out


@given(NUMBERS, STEPS)
def test_like_a_naive_byte_map(first: int, steps: list[tuple[str, int, int, int, int]]) -> None:
    stream, model, counts = Stream(), ByteMap(), Counter[str]()
    stream.begin(first, exact=True)
    truth = bytes(range(100, 200))
    for step in steps:
        if step[0] == "put":
            _, place, length, conflict, cut = step
            payload = truth[place : place + length]
            if conflict == 3:  # a sender, or somebody else, that sends something else this time
                payload = bytes(255 - byte for byte in payload)
            payload = payload[: max(0, length - cut)]
            stream.put(piece(first + place, payload, wire=length), counts)
            model.put(place, payload, length)
            assert one_by_one(stream.release(Stream())) == model.release()
        elif step[1] > model.next:
            items = stream.skip(advance(first, step[1]), piece(0, b""))
            items += stream.release(Stream())
            assert one_by_one(items) == model.skip(step[1])
        assert distance(first, stream.next) == model.next
        check_invariants(stream, model)


def check_invariants(stream: Stream, model: ByteMap) -> None:
    ends = [stream.next, *(held.end for held in stream.pieces)]
    starts = [distance(end, held.start) for end, held in zip(ends, stream.pieces, strict=False)]
    assert all(space >= 0 for space in starts)
    assert stream.holes == sum(space > 0 for space in starts)
    assert stream.held == sum(PIECE_COST + len(held.payload) for held in stream.pieces)
    assert sum(distance(held.start, held.end) for held in stream.pieces) == len(model.bytes)
