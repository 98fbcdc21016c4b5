from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from kdissect import open_capture
from kdissect.limits import DEFAULT
from kdissect.net.tcp import Shard
from kdissect.pipeline import Dissection, dissect
from kdissect.runs.assembling import (
    AHEAD,
    LateRows,
    ParentUpdate,
    ResolvedRow,
    WorkerBatch,
)
from kdissect.runs.worker import Page, Text, Worker
from kdissect.sinks.lines import Lines
from kdissect.text.style import Times
from kdissect.text.table import ExchangeTable
from samples.golden import ROOT
from tests.core import needs_core

if TYPE_CHECKING:
    import pytest

KEY_BYTES = 48  # core/src/runs/merge.rs
CAPTURE = ROOT / "samples" / "kafka-4-basics.pcap"


class Names:
    """The output of an exchange is its ID."""

    plan = None

    def feed(self, exchange: Any) -> tuple[str, int]:
        return exchange.connection.id, exchange.number

    def end(self) -> None:
        """Nothing."""


def run(shard: Shard | None, replies: list[Any] | None = None, work: Any = None) -> list[Any]:
    """The messages of a worker; the parent sends what it waits for, or ``replies``."""
    sent: list[Any] = []

    def receive() -> Any:
        if replies is not None:
            return replies.pop(0)
        batches = [each for each in sent if isinstance(each, WorkerBatch)]
        late = {number for each in sent if isinstance(each, LateRows) for number, _ in each.outputs}
        open_ = [number for each in batches for number, *_ in each.rows.open.values() if number not in late]
        return ParentUpdate(
            batches[-1].until, {}, [ResolvedRow(number, {}, [], None, None) for number in open_]
        )

    with open_capture(CAPTURE) as capture:
        worker = Worker(work or Names(), DEFAULT, sent.append, receive, lambda: bool(replies))
        worker.run(Dissection(worker.watch(capture), shard=shard))
    return sent


def outputs(sent: list[Any]) -> list[Any]:
    late = {number: row for each in sent if isinstance(each, LateRows) for number, row in each.outputs}
    out = []
    for batch in sent:
        if isinstance(batch, WorkerBatch):
            open_ = {index: late[number] for index, (number, *_) in batch.rows.open.items()}
            out += [open_.get(index, row) for index, row in enumerate(batch.rows.outputs)]
    return out


def test_each_row_is_sent_once_and_workers_agree_on_places() -> None:
    alone = run(None)
    together = [run(Shard(number, 3)) for number in range(3)]
    assert sorted(outputs(alone)) == sorted(row for sent in together for row in outputs(sent))
    places = dict(zip(outputs(alone), places_of(alone), strict=True))
    for sent in together:
        assert dict(zip(outputs(sent), places_of(sent), strict=True)).items() <= places.items()
        assert [each.is_last for each in sent if isinstance(each, WorkerBatch)][-1]
        assert max(each.until for each in sent if isinstance(each, WorkerBatch)) == max(
            each.until for each in alone if isinstance(each, WorkerBatch)
        )


@needs_core
def test_the_core_writes_lines_of_usual_exchanges() -> None:
    page = Page(sys.stdout)
    sent = run(Shard(0, 2), work=Text(Lines(ExchangeTable(page, Times("ud"))), page))
    batches = [each for each in sent if isinstance(each, WorkerBatch)]
    rows = sum(each.lines[0] // KEY_BYTES for each in batches if each.lines is not None)
    assert rows == len(outputs(run(Shard(0, 2))))
    assert len(places_of(sent)) < rows / 2


def places_of(sent: list[Any]) -> list[int]:
    return [place for batch in sent if isinstance(batch, WorkerBatch) for place in batch.rows.places]


def test_rows_with_known_names_are_not_open() -> None:
    rows = [batch.rows for batch in run(None) if isinstance(batch, WorkerBatch)]
    ids = {each for columns in rows for row in columns.open.values() for each in row.topic_refs.keys}
    assert ids
    update = ParentUpdate(0, dict.fromkeys(ids, "name"), [])
    sent = run(None, [update])
    assert not any(batch.rows.open for batch in sent if isinstance(batch, WorkerBatch))


def test_a_worker_that_is_ahead_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kdissect.runs.worker._ROWS", 1)
    sent_batches: list[int] = []
    sent: list[Any] = []

    def receive() -> Any:
        sent_batches.append(sum(isinstance(each, WorkerBatch) and not each.is_last for each in sent))
        last = next(each for each in reversed(sent) if isinstance(each, WorkerBatch))
        numbers = [
            number for each in sent if isinstance(each, WorkerBatch) for number, *_ in each.rows.open.values()
        ]
        late = {number for each in sent if isinstance(each, LateRows) for number, _ in each.outputs}
        return ParentUpdate(
            last.until,
            {},
            [ResolvedRow(number, {}, [], None, None) for number in numbers if number not in late],
        )

    with open_capture(CAPTURE) as capture:
        worker = Worker(Names(), DEFAULT, sent.append, receive, lambda: False)
        worker.run(dissect(worker.watch(capture)))
    assert sent_batches[0] == AHEAD + 1


def test_open_rows_with_large_bodies_are_decoded_again(monkeypatch: pytest.MonkeyPatch) -> None:
    class Bodies(Names):
        def feed(self, exchange: Any) -> Any:
            bodies = repr((exchange.request, exchange.response)), exchange.anomalies, exchange.decoded_bytes
            return super().feed(exchange), bodies

    dropped = []
    drop = Dissection.drop_bodies

    def dropping(self: Dissection, exchange: Any) -> Any:
        dropped.append(exchange.api)
        return drop(self, exchange)

    monkeypatch.setattr(Dissection, "drop_bodies", dropping)
    kept = outputs(run(None, work=Bodies()))
    assert not dropped
    monkeypatch.setattr("kdissect.runs.worker._DECODED", 1)
    assert outputs(run(None, work=Bodies())) == kept
    assert len(set(dropped)) > 1
