from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kdissect.kafka.framing import Framing
from kdissect.kafka.resync import Lost, Search
from kdissect.limits import Limits
from kdissect.model import Data, Frame, Gap
from tests.frames import data, gap, sized

LIMITS = Limits(frame_bytes=64, frame_max_bytes=10_000)


def nowhere(search: Search, final: bool) -> int | None:
    return None


def at_first(search: Search, final: bool) -> int | None:
    """The first byte of the stream is that of a frame; what is lost later stays lost."""
    return None if search.first_run is None else 0


def framing(limits: Limits = LIMITS) -> Framing:
    return Framing(limits, at_first, at_start=True)


def run(items: list[Data | Gap], limits: Limits = LIMITS) -> list[Frame | Lost]:
    stage = framing(limits)
    return [out for item in items for out in stage.feed(item)] + stage.close()


@given(st.lists(st.binary(max_size=40), max_size=8), st.data())
def test_frames_do_not_depend_on_how_the_bytes_come(payloads: list[bytes], draw: st.DataObject) -> None:
    stream = b"".join(map(sized, payloads))
    cuts = sorted(draw.draw(st.lists(st.integers(0, len(stream)), max_size=10)))
    pieces = [stream[a:b] for a, b in zip([0, *cuts], [*cuts, len(stream)], strict=True)]
    for chunks in (pieces, [stream], [stream[i : i + 1] for i in range(len(stream))]):
        frames = run([data(chunk) for chunk in chunks if chunk])
        assert [frame.data for frame in frames if isinstance(frame, Frame)] == payloads
        assert len(frames) == len(payloads)


def test_times_are_those_of_first_and_last_byte() -> None:
    payload = sized(b"abcdef")
    frames = run(
        [data(payload[:2], 1, 10), data(payload[2:5], 2, 20), data(payload[5:] + sized(b"x"), 3, 30)]
    )
    assert [(f.start_ns, f.end_ns, f.packet) for f in frames if isinstance(f, Frame)] == [
        (10, 30, 3),
        (30, 30, 3),
    ]


def test_trailing_bytes_are_a_partial_frame_at_the_end() -> None:
    assert run([data(sized(b"abc") + b"\0\0")]) == [
        Frame(b"abc", 3, 1, data(b"").interface, 0, 0),
        Lost(0, 2, end=True),
    ]
    (lost,) = run([data(sized(b"abcdef")[:7])])
    assert lost == Lost(0, 3, end=True)


def test_a_gap_inside_a_frame_costs_only_its_end() -> None:
    frames = run([data(sized(b"a" * 50)[:14]), gap(20), data(b"b" * 20 + sized(b"next"))])
    assert [(f.data, f.size) for f in frames if isinstance(f, Frame)] == [(b"a" * 10, 50), (b"next", 4)]


def test_a_gap_to_the_very_end_of_a_frame_keeps_the_boundary() -> None:
    frames = run([data(sized(b"a" * 50)[:14]), gap(40, "cut"), data(sized(b"next"))])
    assert [(f.data, f.size, f.complete) for f in frames if isinstance(f, Frame)] == [
        (b"a" * 10, 50, False),
        (b"next", 4, True),
    ]


def test_a_gap_over_a_boundary_begins_a_search() -> None:
    stage = framing()
    frames = [*stage.feed(data(sized(b"a" * 50)[:14])), *stage.feed(gap(41))]
    assert [(f.data, f.size) for f in frames if isinstance(f, Frame)] == [(b"a" * 10, 50)]
    assert not stage.synchronized


def test_a_search_ends_where_locate_says_and_reports_its_cost() -> None:
    def locate(search: Search, final: bool) -> int | None:
        return 8 if search.end >= 12 else None

    stage = Framing(LIMITS, locate)
    assert stage.feed(gap(5)) == []
    assert stage.feed(data(b"xyz")) == []
    assert stage.feed(data(sized(b"abc") + sized(b"d"), 7, 70)) == [
        Lost(5, 3),
        Frame(b"abc", 3, 7, data(b"").interface, 70, 70),
        Frame(b"d", 1, 7, data(b"").interface, 70, 70),
    ]
    assert stage.synchronized


@pytest.mark.parametrize("size", [-1, -(2**31), 10_001, 2**31 - 1])
def test_a_size_that_cannot_be_loses_the_boundary(size: int) -> None:
    stage = framing()
    assert stage.feed(data(sized(b"ok") + size.to_bytes(4, "big", signed=True) + b"rest"))[0] == Frame(
        b"ok", 2, 1, data(b"").interface, 0, 0
    )
    assert not stage.synchronized
    assert stage.close() == [Lost(0, 8, end=True)]


def test_a_search_does_not_return_to_a_boundary_that_cannot_be_read() -> None:
    """Whatever ``locate`` says: the search behind it is a new one."""

    def locate(search: Search, final: bool) -> int | None:
        return 0 if search.end else None

    stage = Framing(LIMITS, locate)
    out = stage.feed(data((10_001).to_bytes(4, "big") + b"\xff\xff" + sized(b"next")))
    assert [each for each in out if isinstance(each, Frame)][-1].data == b"next"
    assert sum(each.skipped for each in out if isinstance(each, Lost)) == 6


def test_of_a_frame_beyond_the_bound_the_beginning_is_kept() -> None:
    frames = run([data((9_999).to_bytes(4, "big") + b"a" * 60), data(b"b" * 9_939), data(sized(b"next"))])
    assert [(f.data, f.size) for f in frames if isinstance(f, Frame)] == [
        (b"a" * 60 + b"b" * 4, 9_999),
        (b"next", 4),
    ]


def test_a_search_holds_no_more_than_its_bound() -> None:
    limits = Limits(resync_bytes=1000)
    stage = Framing(limits, nowhere)
    for number in range(500):
        stage.feed(data(bytes(100), number))
        assert stage.held <= 1000
