from __future__ import annotations

from dataclasses import dataclass, field
from pickle import PickleBuffer
from random import Random
from struct import Struct
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kdissect import core
from kdissect.exchanges.end_to_end import EndToEnd, ProduceRefs
from kdissect.exchanges.ordering import Ordering
from kdissect.exchanges.resolver import NO_REFS, Refs
from kdissect.exchanges.topic_names import TopicNameResolver, TopicRefs
from kdissect.limits import Limits
from kdissect.runs.assembling import Assembly, LateRows, OpenRow, WorkerBatch
from kdissect.runs.worker import columns, number_of
from tests.core import NEEDS_CORE, needs_core

if TYPE_CHECKING:
    from kdissect.exchanges.learned import ProducedBatch
    from kdissect.model import Anomaly, ConnectionKey

ROW_KEY = Struct("<6q")  # as in core/src/runs/merge.rs, with a size instead of the text
NO_TEXT = -1
LIMITS = Limits(naming_window_ns=20, naming_rows=6, order_rows=8, produce_window_ns=15, produced_batches=8)
IDS = ("A", "B")


@dataclass
class Item:
    """An exchange, as Ordering, TopicNameResolver and EndToEnd take it."""

    place: int
    worker: int
    text: str
    completed_ns: int
    refs: TopicRefs
    held_bytes: int = 10
    decoded_bytes: int = 20
    anomalies: list[Anomaly] = field(default_factory=list)
    topic_ids: dict[str, str] = field(default_factory=dict)
    produce_refs: ProduceRefs = NO_REFS
    produced_ns: dict[ProducedBatch, int] | None = None

    @property
    def connection_key(self) -> ConnectionKey:
        return f"c{self.worker}", 1

    @property
    def order(self) -> tuple[int, int]:
        return self.completed_ns, self.place

    @property
    def shown(self) -> str:
        kinds = [anomaly.kind for anomaly in self.anomalies]
        return f"{self.text} {self.topic_ids} {kinds} {self.produced_ns}"


@dataclass
class Step:
    """A place: the time since which each worker waits, and the items completed."""

    place: int
    waits: list[int | None]
    items: list[Item]


def random_steps(seed: int, workers: int) -> list[Step]:
    """Random steps: usually no worker waits, IDs are learned soon, and a place has items of one worker."""
    random = Random(seed)
    waits: list[int | None] = [None] * workers
    steps = []
    for place in range(1, 60):
        now = place * 3
        for worker in range(workers):
            if random.random() < 0.15:
                waits[worker] = None if random.random() < 0.6 else now - random.randrange(9)
        items: list[Item] = []
        for worker in random.sample(range(workers), random.choice((0, 1, 1, 1, 1, workers))):
            for _ in range(random.choice((1, 1, 2))):
                ids = [each for each in IDS if random.random() < 0.2]
                learned = [(each, f"{each}{place % 2}") for each in ids if random.random() < 0.3]
                completed = now - random.choice((0, 0, 0, 2, 7))
                refs = Refs(ids, learned)
                item = Item(place, worker, f"{place}.{len(items)}", completed, refs)
                if random.random() < 0.5:
                    batches = [(random.choice(("A", "A0", "c")), 0, random.randrange(4)) for _ in range(2)]
                    item.produce_refs = random.choice(
                        (Refs(batches, []), Refs([], [(batch, completed) for batch in batches]))
                    )
                items.append(item)
        steps.append(Step(place, list(waits), items))
    steps.append(Step(60, [None] * workers, []))
    return steps


def in_one_process(steps: list[Step]) -> list[str]:
    """The output of one process."""
    ordering: Ordering[Item] = Ordering(LIMITS)
    resolver: TopicNameResolver[Item] = TopicNameResolver(LIMITS, lambda item: item.refs)
    end_to_end: EndToEnd[Item] = EndToEnd(LIMITS, lambda item: item.produce_refs)
    named: list[Item] = []
    for step in steps:
        since = min((each for each in step.waits if each is not None), default=None)
        for item in ordering.feed(list(step.items), since):
            named += resolver.feed(item)
    named += resolver.close()
    out = [settled for item in named for settled in end_to_end.feed(item)] + end_to_end.close()
    return [item.shown for item in out]


class Fake:
    """A worker without a process."""

    def __init__(self, number: int, steps: list[Step], random: Random, *, writes_lines: bool) -> None:
        self.number = number
        self._writes_lines = writes_lines
        self.names: dict[str, str] = {}
        self.open: dict[int, Item] = {}
        self._steps = steps
        self._next = 0
        self._random = random
        self._waiting: int | None = None
        self._numbers = 0
        self._open_on: set[str] = set()

    @property
    def is_done(self) -> bool:
        return self._next == len(self._steps)

    def batch(self) -> WorkerBatch:
        rows = columns()
        keys = text = b""
        count = self._random.randrange(1, 12)
        for step in self._steps[self._next : self._next + count]:
            if step.waits[self.number] != self._waiting:
                self._waiting = step.waits[self.number]
                rows.waits.append((step.place, self._waiting))
            for item in step.items:
                if item.worker != self.number:
                    continue
                known = all(each in self.names for each in item.refs.keys) and not self.open
                known = known and item.produce_refs is NO_REFS
                key = item.place, *item.order, item.held_bytes, number_of(item.connection_key)
                if known and self._writes_lines and self._random.random() < 0.8:
                    item.topic_ids = {each: self.names[each] for each in item.refs.keys}
                    line = item.shown.encode() + b"\n"
                    keys += ROW_KEY.pack(*key, len(line))
                    text += line
                    continue
                keys += ROW_KEY.pack(*key, NO_TEXT)
                rows.places.append(item.place)
                rows.completed_ns.append(item.completed_ns)
                rows.packets.append(item.place)
                rows.held.append(item.held_bytes)
                rows.decoded.append(item.decoded_bytes)
                rows.connections.append(item.connection_key)
                if known:
                    item.topic_ids = {each: self.names[each] for each in item.refs.keys}
                    rows.outputs.append((1, item.shown.encode() + b"\n"))
                else:
                    self._numbers += 1
                    rows.open[len(rows.outputs)] = OpenRow(self._numbers, item.refs, item.produce_refs, {})
                    rows.outputs.append(None)
                    self.open[self._numbers] = item
        self._next = min(self._next + count, len(self._steps))
        lines = (len(keys), PickleBuffer(keys + text)) if self._writes_lines else None
        return WorkerBatch(self._steps[self._next - 1].place, rows, self.is_done, lines)

    def receive(self, update: Any) -> LateRows:
        self.names |= update.names
        outputs = []
        for number, names, anomalies, produced_ns, copies in update.resolved:
            item = self.open.pop(number)
            item.produced_ns, item.copies = produced_ns, copies
            item.topic_ids, item.anomalies = dict(names), list(anomalies)
            outputs.append((number, (1, item.shown.encode() + b"\n")))
        return LateRows(outputs)


@pytest.mark.parametrize("writes_lines", [False, pytest.param(True, marks=NEEDS_CORE)])
@given(st.integers(0, 10_000), st.integers(1, 4))
def test_rows_of_several_workers_come_as_from_one(writes_lines: bool, seed: int, workers: int) -> None:
    expected = in_one_process(random_steps(seed, workers))
    random = Random(seed)
    steps = random_steps(seed, workers)
    fakes = [Fake(number, steps, random, writes_lines=writes_lines) for number in range(workers)]
    assembly = Assembly(workers, LIMITS)
    outputs: list[Any] = []
    pending: list[tuple[int, Any]] = []
    while any(not fake.is_done for fake in fakes) or pending:
        if pending and random.random() < 0.6:
            worker, update = pending.pop(0)
            late = fakes[worker].receive(update)
            if late.outputs:
                outputs += assembly.late(worker, late)
        elif left := [fake for fake in fakes if not fake.is_done]:
            fake = random.choice(left)
            outputs += assembly.batch(fake.number, fake.batch())
        pending += assembly.updates()
    assert b"".join(bytes(text) for _, text in outputs).decode().splitlines() == expected
    assert sum(count for count, _ in outputs) == len(expected)
    assert not any(fake.open for fake in fakes)


def test_plain_rows_are_sorted_by_their_places() -> None:
    assembly = Assembly(2, LIMITS)
    assert assembly.batch(0, batch([2, 5, 9], until=10)) == []
    assert assembly.batch(1, batch([1, 3, 3, 6], until=6)) == [1, 2, 3, 3, 5, 6]
    assert [update.until for _, update in assembly.updates()] == [6]
    assert assembly.batch(1, batch([], until=12)) == [9]


def batch(places: list[int], until: int) -> WorkerBatch:
    rows = columns()
    for place in places:
        rows.places.append(place)
        rows.outputs.append(place)
        rows.connections.append("")
        for column in (rows.completed_ns, rows.packets, rows.held):
            column.append(0)
    return WorkerBatch(until, rows, is_far_ahead=True)


@needs_core
def test_texts_are_written_to_stdout_whole(capfd: pytest.CaptureFixture[str]) -> None:
    assert core.is_used
    merge = core.native.Merge(2, LIMITS.order_rows, LIMITS.order_bytes)
    count = 5000  # more pieces than one system call takes
    lines = [b"%d %s\n" % (number, b"x" * (number % 100)) for number in range(count)]
    for worker in range(2):
        own = range(worker, count, 2)
        keys = b"".join(ROW_KEY.pack(2 * each, each, each, 1, worker, len(lines[each])) for each in own)
        memory = keys + b"".join(lines[each] for each in own)
        merge.add(worker, (len(keys), PickleBuffer(memory)), [])
    merge.advance(2 * count)
    copied = []
    while taken := merge.take(False):
        *_, (shown, text), _, _ = taken
        assert shown == taken[2]
        copied.append(bytes(text))
        text.write_to_stdout()
    assert b"".join(copied) == b"".join(lines)
    assert capfd.readouterr().out.encode() == b"".join(lines)
