from __future__ import annotations

from array import array
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from kdissect.capture.reader import open_capture
from kdissect.limits import DEFAULT, Limits
from kdissect.net.connection import Connections
from kdissect.net.tcp import Segments
from kdissect.spark.arrival import Arrivals, Bundle, FilesApart, in_order
from kdissect.spark.ranges import find_ranges
from kdissect.spark.shuffle import HEAD, shuffled
from tests.connections import asks
from tests.disguises import in_two_files
from tests.segments import Talk
from tests.shuffling import bundles_of, cut_up

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kdissect.model import Packet
    from kdissect.spark.arrival import Key

SAMPLE = Path(__file__).parents[2] / "samples" / "quickstart.pcap"
NEVER = 1 << 62


def sample() -> list[Packet]:
    with open_capture(SAMPLE) as capture:
        return list(capture)


def two_machines(folder: Path) -> list[str]:
    """What two machines captured at the same time."""
    names = []
    for place, data in enumerate(in_two_files(sample())):
        (folder / str(place)).write_bytes(data)
        names.append(str(folder / str(place)))
    return names


def of(names: Sequence[str], size: int, every: int) -> tuple[list[Bundle], Arrivals]:
    """All packets as one part has them."""
    found = find_ranges(names, size=size)
    batches = [
        batch
        for place in range(len(found.ranges))
        for batch in shuffled(place, found.ranges, found.paths, 1, DEFAULT, every)
    ]
    bundles, told = bundles_of(batches)
    return sorted(bundles, key=lambda bundle: bundle.key), Arrivals.of(told, every)


def bundle(*keys: Key) -> Bundle:
    heads = [HEAD.pack(clock_ns, number, number, clock_ns, 1, 1) for clock_ns, _, number in keys]
    return Bundle(keys[0], keys[-1][0], 0, b"".join(heads), bytes(len(keys)))


def test_bundles_of_the_same_time_are_woven() -> None:
    bundles = [
        bundle((1, 0, 1), (2, 0, 2), (9, 0, 3)),
        bundle((2, 1, 1), (9, 1, 2)),
        bundle((3, 2, 1)),
        bundle((9, 0, 4)),
        bundle((10, 0, 5), (11, 0, 6)),
        bundle((11, 1, 1)),
        bundle((11, 1, 1)),
    ]
    keys = [row[0] for row in in_order(iter(bundles))]
    assert keys == sorted(key for each in bundles for key in (row[0] for row in each.rows()))
    assert list(in_order(iter([]))) == []


@pytest.mark.parametrize("size", [2000, 1 << 20])
@pytest.mark.parametrize("kind", ["one", "ring", "two machines"])
def test_packets_come_in_the_order_of_a_capture_and_know_their_place(
    tmp_path: Path, kind: str, size: int
) -> None:
    names = {
        "one": lambda: [str(SAMPLE)],
        "ring": lambda: cut_up(sample(), tmp_path / "ring", 7),
        "two machines": lambda: two_machines(tmp_path),
    }[kind]()
    bundles, arrivals = of(names, size, 1)
    with open_capture(*names) as capture:
        meant = [(packet.number, packet.time_ns, packet.data) for packet in capture]
    rows = list(in_order(iter(bundles)))
    assert [(row[0][2], row[3], row[5]) for row in rows] == meant
    places = [arrivals.at(row[1], row[2], row[0][0]) for row in rows]
    assert places == list(range(1, len(meant) + 1))
    assert arrivals.all == len(meant)
    assert [arrivals.clock_ns(place) for place in places] == [row[0][0] for row in rows]
    assert arrivals.clock_ns(0) < 0


@pytest.mark.parametrize("kind", ["ring", "two machines"])
def test_with_fewer_numbers_places_are_known_to_within_so_many(tmp_path: Path, kind: str) -> None:
    names = two_machines(tmp_path) if kind == "two machines" else cut_up(sample(), tmp_path / "ring", 7)
    bundles, arrivals = of(names, 5000, 5)
    for meant, row in enumerate(in_order(iter(bundles)), 1):
        place = arrivals.at(row[1], row[2], row[0][0])
        assert meant - 10 <= place <= meant
    assert len(arrivals.places) <= arrivals.all / 5


def test_what_is_done_whoever_comes_is_done_where_time_is_brought_forward() -> None:
    arrivals = Arrivals([0], [[]], 1, 6, array("q", range(1, 7)), array("q", [10, 10, 20, 20, 30, 30]))
    assert arrivals.reaching(0, 0) == 1
    assert arrivals.reaching(0, 10) == 1
    assert arrivals.reaching(2, 10) == 3  # the second is of the same time as the first
    assert arrivals.reaching(3, 10) == 3
    assert arrivals.reaching(4, 10) == 5
    assert arrivals.reaching(0, 25) == 5
    assert arrivals.reaching(0, 31) == 7
    assert arrivals.reaching(6, 0) == 7


def test_as_long_as_nobody_has_counted_ranges_are_far_apart() -> None:
    apart = FilesApart()
    assert apart.at(0, 5, 0) == 5
    assert apart.at(1, 1, 0) > apart.at(0, 1 << 39, 0)
    assert apart.reaching(0, 0) > apart.at(1000, 1, 0)
    assert apart.clock_ns(NEVER) < 0


def test_it_is_told_when_there_is_something_to_do_whoever_comes() -> None:
    limits = Limits()
    connections, segments = Connections(limits), Segments(limits)
    assert list(connections.dues) == []
    talk = asks(Talk().handshake())
    lost = talk.packets.pop(3)
    for packet in talk.packets:
        segment = segments.feed(packet)
        assert segment is not None
        connections.feed(segment)
    patience, idle = connections.dues
    assert connections.due_ns == patience[1] < idle[1]
    assert patience[0] <= limits.patience_segments + len(talk.packets)
    assert patience[1] <= connections.now_ns + limits.patience_ns
    assert idle == (0, connections.now_ns + limits.connection_idle_ns + 1)
    assert lost.number not in {packet.number for packet in talk.packets}
