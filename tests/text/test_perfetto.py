"""Traces, read with Perfetto's own description of the format."""

from __future__ import annotations

from collections import defaultdict
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest

from kdissect import dissect, open_capture
from kdissect.cli.main import main
from kdissect.cli.terminal import OK, USAGE
from kdissect.exchanges.touched import touched
from kdissect.text.perfetto import Series, span_of
from samples.golden import ROOT, captures, name_of
from tests.cli.commands import run

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from kdissect.model import Exchange

perfetto_trace_pb2 = pytest.importorskip("perfetto.protos.perfetto.trace.perfetto_trace_pb2")
UnknownFieldSet = pytest.importorskip("google.protobuf.unknown_fields").UnknownFieldSet

SAMPLES = {name_of(path): path for path in captures()}
FEW = (
    "kafka-0.9",
    "kafka-4-basics",
    "kafka-4-quota",
    "kafka-4-sasl",
    "mock-acks0",
    "odd-clients",
    "unanswered",
)
MANY = [pytest.param(name, marks=() if name in FEW else pytest.mark.deep) for name in SAMPLES]
PARTS = {
    "upload",
    "queued",
    "throttled",
    "network",
    "wait",
    "service",
    "download",
    "waiting for the response",
}


class Slice(NamedTuple):
    name: str
    track: str
    begin_ns: int
    end_ns: int
    depth: int
    notes: dict[str, str]
    flows: tuple[int, ...]


class Read(NamedTuple):
    """A trace."""

    slices: list[Slice]
    counts: dict[str, list[tuple[int, int]]]


def read(path: Path) -> Read:
    """Slices and counters, checked: no unknown field, and slices of a track are in each other or in order."""
    trace = perfetto_trace_pb2.Trace()
    trace.ParseFromString(path.read_bytes())
    names: dict[int, str] = {}
    opened: dict[int, list[Any]] = defaultdict(list)
    last_ns: dict[int, int] = defaultdict(int)
    result = Read([], defaultdict(list))
    for packet in trace.packet:
        assert not len(UnknownFieldSet(packet))
        if packet.HasField("track_descriptor"):
            track = packet.track_descriptor
            assert track.uuid not in names
            assert not track.parent_uuid or track.parent_uuid in names
            above = f"{names[track.parent_uuid]} > " if track.parent_uuid else ""
            names[track.uuid] = above + (track.name or track.process.process_name)
        elif packet.HasField("track_event"):
            event = packet.track_event
            place, at = event.track_uuid, packet.timestamp
            assert at >= last_ns[place]
            last_ns[place] = at
            if event.type == event.TYPE_SLICE_BEGIN:
                opened[place].append((event, at))
            elif event.type == event.TYPE_SLICE_END:
                start, begin_ns = opened[place].pop()
                notes = {each.name: each.string_value for each in start.debug_annotations}
                depth = len(opened[place])
                flows = tuple(start.flow_ids)
                result.slices.append(Slice(start.name, names[place], begin_ns, at, depth, notes, flows))
            else:
                assert event.type == event.TYPE_COUNTER
                result.counts[names[place]].append((at, event.counter_value))
    assert not any(opened.values())
    return result


def exchanges_of(path: Path) -> list[Exchange]:
    with open_capture(str(path)) as capture:
        return list(dissect(capture))


@pytest.mark.parametrize("name", MANY)
def test_every_exchange_is_a_slice(tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str) -> None:
    out = tmp_path / "out.pftrace"
    assert main(["trace", "-o", str(out), str(SAMPLES[name])]) == OK
    exchanges = exchanges_of(SAMPLES[name])
    if not exchanges:
        assert not out.exists() or not read(out).slices
        return
    trace = read(out)
    shown = {each.notes["exchange"]: each for each in trace.slices if "exchange" in each.notes}
    assert shown.keys() == {f"{each.connection.id}/{each.number}" for each in exchanges}
    for exchange in exchanges:
        each = shown[f"{exchange.connection.id}/{exchange.number}"]
        assert each.depth == 0
        assert each.track.startswith(f"broker {exchange.connection.broker} > ")
        assert str(exchange.connection.client) in each.track
        if exchange.request_frame and exchange.response_frame:
            times = [*exchange.request_frame[-2:], *exchange.response_frame[-2:]]
            assert (each.begin_ns, each.end_ns) == (min(times), max(times))
    assert {each.name for each in trace.slices if each.depth} <= PARTS


def _parts(exchange: Exchange) -> Iterator[tuple[str, int]]:
    for each in span_of(exchange).inside:
        yield each.name, each.end_ns - each.begin_ns


@pytest.mark.parametrize("name", MANY)
def test_parts_follow_each_other_and_are_those_of_tables(name: str) -> None:
    with open_capture(str(SAMPLES[name])) as capture:
        for exchange in dissect(capture):
            span = span_of(exchange)
            assert all(one.end_ns == two.begin_ns for one, two in pairwise(span.inside))
            if exchange.parts is None or exchange.latency_us is None or exchange.latency_us < 0:
                continue
            lengths = dict(_parts(exchange))
            if "waiting for the response" not in lengths:
                for part, us in zip(("queued", "throttled", "network", "wait"), exchange.parts, strict=False):
                    assert abs(lengths.get(part, 0) - (us or 0) * 1000) < 1000, part


def test_flows_lead_from_a_produce_to_its_fetches(tmp_path: Path) -> None:
    out = tmp_path / "out.pftrace"
    path = SAMPLES["kafka-4-lag"]
    main(["trace", "-o", str(out), str(path)])
    at: dict[int, list[Slice]] = defaultdict(list)
    for each in read(out).slices:
        for flow in each.flows:
            at[flow].append(each)
    of_batches = [each for each in at.values() if any(one.name.startswith("Produce") for one in each)]
    produced, fetched = set(), set()
    for exchange in exchanges_of(path):
        for each in touched(exchange):
            if each.produced is not None and not each.error:
                produced.add((each.topic, each.partition, each.response["base_offset"]))
            if each.fetched is not None and not each.error:
                fetched |= {(each.topic, each.partition, one.base_offset) for one in each.fetched.origins()}
    assert len(of_batches) == len(produced)
    both = [each for each in of_batches if any(one.name.startswith("Fetch") for one in each)]
    assert len(both) == len(produced & fetched) > 50
    joins = [
        each for each in at.values() if {one.name.split()[0] for one in each} == {"JoinGroup", "SyncGroup"}
    ]
    assert joins


def test_groups_transactions_and_findings(tmp_path: Path) -> None:
    tracks = {}
    for name in ("kafka-4-lag", "kafka-4-storm", "kafka-4-transactions"):
        out = tmp_path / f"{name}.pftrace"
        main(["trace", "-o", str(out), str(SAMPLES[name])])
        tracks[name] = read(out)
    lag = tracks["kafka-4-lag"].counts["groups > lag of slow"]
    assert max(value for _, value in lag) > 100
    storms = [
        each for each in tracks["kafka-4-storm"].slices if each.track.startswith("groups > rebalances of ")
    ]
    assert len(storms) > 5
    transactions = [
        each for each in tracks["kafka-4-transactions"].slices if each.track.startswith("transactions > ")
    ]
    assert {"committed", "aborted"} <= {each.name for each in transactions}
    findings = [each for each in tracks["kafka-4-lag"].slices if each.track.startswith("findings > ")]
    assert [each.track for each in findings if each.notes["advice"]]


def test_counters_add_up(tmp_path: Path) -> None:
    out = tmp_path / "out.pftrace"
    path = SAMPLES["kafka-4-basics"]
    main(["trace", "-o", str(out), str(path)])
    counts = read(out).counts
    total = 0.0
    for name, points in counts.items():
        if name.endswith(" > bytes a second"):
            assert all(one[0] < two[0] for one, two in pairwise(points))
            total += sum(value * (two[0] - at) / 1e9 for (at, value), two in pairwise(points))
    frames = [
        frame for each in exchanges_of(path) for frame in (each.request_frame, each.response_frame) if frame
    ]
    assert total == pytest.approx(sum(frame.wire_bytes for frame in frames), rel=0.01)


def test_pieces_double() -> None:
    series = Series()
    for second in range(100_000):
        series.add(second * 10**9, second * 10**9 + 5 * 10**8, 1.0)
    points = list(series.points())
    assert len(points) < 2100
    total = sum(value * (two - at) for (at, value), (two, _) in pairwise(points))
    assert total == pytest.approx(100_000)


def test_the_size_is_limited(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = str(SAMPLES["kafka-4-basics"])
    done = run(capsys, "trace", "--max-size", "10KB", "-o", str(tmp_path / "small"), path)
    assert " exchanges left out after 10.0 KB (--max-size)" in done.err
    assert read(tmp_path / "small").slices
    run(capsys, "trace", "-o", str(tmp_path / "large"), path)
    assert (tmp_path / "small").stat().st_size < (tmp_path / "large").stat().st_size / 2


def test_what_cannot_be_written(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = str(ROOT / "samples" / "quickstart.pcap")
    assert "cannot write" in run(capsys, "trace", "-o", str(tmp_path / "no" / "out"), path).err
    done = run(capsys, "trace", "-o", str(tmp_path / "out"), "--max-size", "x", path)
    assert (done.status, (tmp_path / "out").exists()) == (USAGE, False)


@pytest.mark.parametrize("suffix", ["", "-copy"])
def test_no_capture_is_overwritten(tmp_path: Path, capsys: pytest.CaptureFixture[str], suffix: str) -> None:
    path = tmp_path / f"a.pcap{suffix}"
    path.write_bytes((ROOT / "samples" / "quickstart.pcap").read_bytes())
    before = path.read_bytes()
    for target in (path, tmp_path / "b.pcap.gz", "-"):
        done = run(capsys, "trace", "-o", str(target), str(path))
        assert done.status == USAGE, target
    assert path.read_bytes() == before


def test_a_long_span_takes_few_pieces() -> None:
    series = Series()
    series.add(0, 10**18, 5.0)
    points = list(series.points())
    assert len(points) <= 2001
    assert sum(value * (two - at) for (at, value), (two, _) in pairwise(points)) == pytest.approx(5.0)
