"""Facts -> producers with a producer ID: transactions, fencing, markers, gaps in sequence numbers.

A producer uses one connection to its coordinator and others to write, and the coordinator writes markers on a
third kind. So events are kept, ``summary_transaction_events`` per transactional ID, and sorted at the end;
past that number the older half is evaluated immediately.
"""

from __future__ import annotations

from collections import Counter
from copy import deepcopy
from dataclasses import dataclass, field
from functools import partial
from operator import itemgetter
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

from kdissect.kafka.codes import error_name
from kdissect.names import entries, kept
from kdissect.stats.contents import EACH
from kdissect.stats.document import FencedRow, ProducerRow, SequenceRow, TransactionRow, TransactionsPart
from kdissect.stats.quantiles import Bounded, Distinct, other_counts
from kdissect.stats.rows import row_of
from kdissect.stats.sequences import Sequence, SequenceRun
from kdissect.stats.sums import (
    Summed,
    earlier,
    earliest,
    either,
    joined,
    largest,
    later,
    latest,
    merged,
    own,
    summed,
    total,
)
from kdissect.stats.traffic import Failures

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from kdissect.exchanges.touched import Touched
    from kdissect.limits import Limits
    from kdissect.model import Body
    from kdissect.stats.contents import CountedWrites
    from kdissect.stats.facts import Facts
    from kdissect.stats.tallies import Alike, Tally


Name = tuple[str | None, int]
"""A transactional ID and -1; or None and a producer ID, as long as no transactional ID is known."""


@summed
class Transactions(Summed):
    """Producers, and their sequence numbers by partition."""

    producers: Bounded[Name, Producer] = merged()
    sequences: Bounded[tuple[int, str, int], Sequence] = merged()
    _names: dict[int, str] = own(dict)  # producer ID -> transactional ID, limited in merge too
    _max: int = own()
    _held: int = own(int)  # entries of the events of all producers
    _max_held: int = own()
    _last_ns: int = latest(0)

    takes = EACH

    def __init__(self, limits: Limits) -> None:
        Summed.__init__(self)
        self._max_held = limits.summary_total_transaction_events
        make = partial(Producer, limits.summary_transaction_events)
        self.producers = Bounded(limits.summary_rows, make)
        self.sequences = Bounded(limits.summary_rows, Sequence)
        self._max = limits.summary_rows

    def feed(self, tally: Tally) -> None:
        """Add batches of producers, and requests about transactions, which come one by one."""
        if tally.exchange is None:
            self._last_ns = max(self._last_ns, tally.last_ns or 0)
            if tally.writes is not None:
                self._add_writes(tally, tally.writes)
            return
        exchange = tally.exchange
        self._last_ns = max(self._last_ns, exchange.time_ns)
        if tally.api == "Fetch":
            self._fetched(tally)
        elif exchange.request is not None and (take := self._handlers.get(tally.api)) is not None:
            take(self, tally, exchange.request)

    def _add_writes(self, tally: Alike, writes: CountedWrites) -> None:
        for each in writes.producers:
            producer = self._producer(None, each.id)
            producer.clients.add(tally.client)
            producer.addresses.add(tally.connection.client.ip)
            producer.first_ns = earlier(producer.first_ns, each.first_ns)
            producer.last_ns = later(producer.last_ns, each.last_ns)
            producer.has(each.id, each.epoch)
            producer.batches += each.batches
            producer.records += each.records
        for topic in writes.topics:
            for partition in topic.partitions:
                for run in partition.runs:
                    time_ns, number = run.first
                    numbers = SequenceRun(run.base, run.end, time_ns, tally.id_of(number))
                    sequence = self.sequences[run.producer_id, topic.topic.name, partition.partition]
                    sequence.add_run(numbers, run.epoch, run.batches, run.times_ns)

    def merge(self, other: Transactions) -> None:
        """Add the producers seen on other connections."""
        Summed.merge(self, other)
        for producer_id, name in other._names.items():
            self._learn(producer_id, name)
        producers = list(self.producers.values())
        self._held = sum(producer.held for producer in producers)
        while self._held > self._max_held:
            for producer in producers:
                self._held -= producer.evaluate_older()

    def rows(self) -> TransactionsPart:
        """The part of the document."""
        return part(self._merged_by_name(), dict(self.sequences), self._names, self._last_ns)

    def transactions(self) -> Iterator[tuple[str, Producer, Transaction]]:
        """Each that is listed or open, after its transactional ID and its producer."""
        for (name, _), producer in self._merged_by_name().items():
            for each in producer.full_history().transactions:
                yield name or "", producer, each

    def timed_out(self) -> Iterator[tuple[tuple[str, str], int]]:
        """Client and transactional ID of producers that were fenced only because their transaction had timed
        out, and its timeout in milliseconds.
        """
        for (name, _), producer in self._merged_by_name().items():
            if name is None or not producer.fenced:
                continue
            history = producer.full_history()
            timeouts = {
                (each.producer_id, each.epoch): each.timeout_ms
                for each in history.transactions
                if each.outcome == TIMED_OUT and each.timeout_ms is not None
            }
            for client in dict.fromkeys(fence.client for fence in history.fenced):
                fences = [
                    (fence, each.by) for fence, each in history.fenced.items() if fence.client == client
                ]
                if all(by is None and fence[:2] in timeouts for fence, by in fences):
                    yield (client, name), max(timeouts[fence[:2]] for fence, _ in fences)

    def timeout_ms(self, transactional_id: str) -> int:
        """The largest transaction.timeout.ms that a producer was given; 0 if it is not known."""
        producer = self.producers.get((transactional_id, -1))
        return 0 if producer is None else producer.timeout_ms

    def other_counts(self) -> dict[str, int]:
        """Produced batches without their own row."""
        return other_counts(transactions=(self.producers, "batches"))

    def _merged_by_name(self) -> dict[Name, Producer]:
        """Producers by name; counts of a bare producer ID are merged into its transactional ID once known."""
        merged_producers: dict[Name, Producer] = dict(self.producers)
        for name in [name for name in merged_producers if name[1] in self._names]:
            known = self._names[name[1]], -1
            nameless = deepcopy(merged_producers.pop(name))
            if known in merged_producers:
                nameless.merge(merged_producers[known])
            merged_producers[known] = nameless
        return merged_producers

    def _learn(self, producer_id: int, transactional_id: str) -> None:
        if producer_id >= 0 and (producer_id in self._names or len(self._names) < self._max):
            self._names[producer_id] = kept(transactional_id)

    def _producer(self, transactional_id: str | None, producer_id: int) -> Producer:
        if transactional_id:
            self._learn(producer_id, transactional_id)
            return self.producers[transactional_id, -1]
        known = self._names.get(producer_id)
        return self.producers[None, producer_id] if known is None else self.producers[known, -1]

    def _note(
        self,
        facts: Facts,
        kind: int,
        name: str | None,
        fields: Body,
        error: str | None,
        **more: Any,
    ) -> Producer:
        """Keep a producer's request as an event."""
        producer_id, epoch = fields["producer_id"], fields["producer_epoch"]
        producer = self._producer(name, producer_id)
        producer.see(facts)
        producer.has(producer_id, epoch)
        producer.fenced += error in FENCED
        self._add(producer, _event(facts, kind, producer_id, epoch, error, **more))
        return producer

    def _add(self, producer: Producer, event: Event) -> None:
        self._held += producer.add(event)
        while self._held > self._max_held and producer.held:
            self._held -= producer.evaluate_older()

    def _init(self, facts: Facts, request: Body) -> None:
        response, error = facts.exchange.response, next(iter(facts.errors), None)
        name = request.get("transactional_id")
        if error is not None:
            if error in FENCED and "producer_id" in request:
                self._note(facts, INIT, name, request, error)
            return
        if response is None or "producer_epoch" not in response:
            return
        timeout_ms = request.get("transaction_timeout_ms", 0)
        producer = self._note(facts, INIT, name, response, None, timeout_ms=timeout_ms)
        producer.inits += 1
        producer.timeout_ms = max(producer.timeout_ms, timeout_ms)

    def _add_partitions(self, facts: Facts, request: Body) -> None:
        if "v3_and_below_producer_epoch" in request:
            fields = {
                name.removeprefix("v3_and_below_"): value
                for name, value in request.items()
                if name.startswith("v3_and_below_")
            }
            self._add_to(facts, fields, next(iter(facts.errors), None))
        results = {
            each.get("transactional_id"): each
            for each in (facts.exchange.response or {}).get("results_by_transaction") or ()
        }
        for fields in request.get("transactions") or ():
            if fields.get("verify_only") is False:  # from a broker, for a Produce of a client (KIP-890)
                error = _first_error(results.get(fields["transactional_id"], {}))
                self._add_to(facts, fields, error, is_broker=True)

    def _add_to(self, facts: Facts, fields: Body, error: str | None, *, is_broker: bool = False) -> None:
        partitions = tuple(
            (topic["name"], partition)
            for topic in fields.get("topics") or ()
            for partition in topic.get("partitions") or ()
        )
        name, producer_id = fields["transactional_id"], fields["producer_id"]
        if not is_broker:
            self._note(facts, ADD, name, fields, error, partitions=partitions)
        elif error is None:
            event = _event(facts, ADD, producer_id, fields["producer_epoch"], None, partitions=partitions)
            self._add(self._producer(name, producer_id), event)

    def _add_offsets(self, facts: Facts, request: Body) -> None:
        if "producer_epoch" in request:
            self._note(facts, ADD, request["transactional_id"], request, next(iter(facts.errors), None))

    def _commit_offsets(self, facts: Facts, request: Body) -> None:
        if "producer_epoch" in request:
            error, partitions = next(iter(facts.errors), None), _partitions(facts.touched)
            name = request["transactional_id"]
            self._note(facts, OFFSETS, name, request, error, partitions=partitions)

    def _end(self, facts: Facts, request: Body) -> None:
        if "committed" not in request:
            return
        error, commits = next(iter(facts.errors), None), request["committed"]
        producer = self._note(facts, END, request["transactional_id"], request, error, commits=commits)
        response = facts.exchange.response
        if error is None and response is not None and "producer_epoch" in response:
            producer.has(response["producer_id"], response["producer_epoch"])
            self._learn(response["producer_id"], request["transactional_id"])

    def _produce(self, facts: Facts, request: Body) -> None:
        name = request.get("transactional_id")
        written: dict[tuple[int, int], list[tuple[Touched, Body]]] = {}
        for each in facts.touched:
            for batch in each.produced.batches() if each.produced is not None else ():
                if batch.get("producer_id", -1) >= 0:
                    key = batch["producer_id"], batch["producer_epoch"]
                    written.setdefault(key, []).append((each, batch))
        for (producer_id, epoch), batches in written.items():
            producer = self._producer(name, producer_id)
            producer.see(facts)
            producer.has(producer_id, epoch)
            accepted = [batch for each, batch in batches if not each.error]
            producer.batches += len(accepted)
            records = sum(max(0, batch["records_count"]) for batch in accepted)
            producer.records += records
            for each, batch in batches:
                self._number(facts, each, batch)
            errors = [error_name(each.error) for each, _ in batches if each.error]
            fenced = next((error for error in errors if error in FENCED), None)
            producer.fenced += fenced is not None
            if name or fenced:
                error = fenced or (errors[0] if len(errors) == len(batches) else None)
                partitions = _partitions(each for each, _ in batches)
                self._add(
                    producer,
                    _event(facts, WRITE, producer_id, epoch, error, partitions=partitions, records=records),
                )

    def _number(self, facts: Facts, each: Touched, batch: Body) -> None:
        if batch["base_sequence"] >= 0 and batch["records_count"] > 0:
            self.sequences[batch["producer_id"], each.topic, each.partition].add(
                batch["producer_epoch"],
                batch["base_sequence"],
                batch["records_count"],
                facts.exchange.time_ns,
                facts.id,
                error_name(each.error) if each.error else None,
            )

    def _write_markers(self, facts: Facts, request: Body) -> None:
        for marker in request.get("markers") or ():
            if "transaction_result" not in marker:
                continue
            partitions = tuple(
                (topic["name"], partition)
                for topic in marker.get("topics") or ()
                for partition in topic.get("partition_indexes") or ()
            )
            commits, producer_id = marker["transaction_result"], marker["producer_id"]
            producer = self._producer(None, producer_id)
            producer.markers[commits] += len(partitions)
            epoch = marker["producer_epoch"]
            self._add(
                producer,
                _event(facts, MARKER, producer_id, epoch, None, partitions=partitions, commits=commits),
            )

    def _fetched(self, facts: Facts) -> None:
        for each in facts.touched:
            for batch in each.fetched.batches() if each.fetched is not None else ():
                if batch.get("control") and batch["producer_id"] >= 0:
                    self._producer(None, batch["producer_id"]).control_batches += 1

    _handlers: ClassVar[dict[str, Callable[[Transactions, Facts, Body], None]]] = {
        "InitProducerId": _init,
        "AddPartitionsToTxn": _add_partitions,
        "AddOffsetsToTxn": _add_offsets,
        "TxnOffsetCommit": _commit_offsets,
        "EndTxn": _end,
        "Produce": _produce,
        "WriteTxnMarkers": _write_markers,
    }
    apis: ClassVar[frozenset[str]] = frozenset(_handlers)
    """APIs whose exchanges are events of transactions."""


def _event(facts: Facts, kind: int, producer_id: int, epoch: int, error: str | None, **more: Any) -> Event:
    exchange = facts.exchange
    response, time_ns = exchange.response_frame, exchange.time_ns
    event = Event(
        time_ns,
        facts.id,
        kind,
        facts.api,
        facts.client,
        exchange.connection.client.ip,
        producer_id,
        epoch,
        error,
        done_ns=time_ns if response is None else max(time_ns, response.start_ns),
        **more,
    )
    return facts.kept(event)


def _partitions(touched: Iterator[Touched] | list[Touched]) -> tuple[tuple[str, int], ...]:
    return tuple(dict.fromkeys((each.topic, each.partition) for each in touched))


def _first_error(result: Body) -> str | None:
    codes = (
        partition.get("partition_error_code", 0)
        for topic in result.get("topic_results") or ()
        for partition in topic.get("results_by_partition") or ()
    )
    return next((error_name(code) for code in codes if code), None)


# ------------------------------------------------------------------------------------------------------------
# Producers and sequences -> the rows of the document.
# ------------------------------------------------------------------------------------------------------------


def part(
    producers: Mapping[Name, Producer],
    sequences: Mapping[tuple[int, str, int], Sequence],
    names: Mapping[int, str],
    last_ns: int,
) -> TransactionsPart:
    """Assemble the part of the document.

    Args:
        producers: by transactional ID, or by producer ID if there is none.
        sequences: by producer ID and partition.
        names: producer ID -> transactional ID.
        last_ns: end of the capture.
    """
    histories = {name: producer.full_history() for name, producer in producers.items()}
    transactions = [
        _transaction(name[0] or "", each, last_ns)
        for name, history in histories.items()
        for each in history.transactions
    ]
    transactions.sort(
        key=lambda row: (OUTCOMES.index(row.outcome), -row.duration_us, row.start, row.transactional_id)
    )
    fenced = [row for name, history in histories.items() for row in _fenced(name[0], history)]
    fenced.sort(key=lambda row: (row.first, row.example, row.api))
    numbered = [_sequence(*key, names.get(key[0]), each) for key, each in sequences.items()]
    numbered.sort(
        key=lambda each: (-each.missing, -each.duplicates, each.producer_id, each.topic, each.partition)
    )
    by_name: dict[Name, list[SequenceRow]] = {}
    for row in numbered:
        known = row.transactional_id
        by_name.setdefault((None, row.producer_id) if known is None else (known, -1), []).append(row)
    rows = [
        _producer(name, each, histories[name], by_name.get(name, []), last_ns)
        for name, each in producers.items()
    ]
    rows.sort(key=lambda row: (row.transactional_id is None, row.transactional_id or "", row.producer_ids))
    return TransactionsPart(
        producers=rows,
        transactions=transactions,
        transactions_not_listed=sum(history.unlisted for history in histories.values()),
        fenced=fenced,
        sequences=numbered,
    )


def _producer(
    name: Name, producer: Producer, history: TransactionHistory, sequences: list[SequenceRow], last_ns: int
) -> ProducerRow:
    transactions = history.transactions
    ids = sorted(producer.epochs)
    return row_of(
        ProducerRow,
        producer,
        transactional_id=name[0],
        producer_ids=ids or [name[1]],
        epoch=producer.epochs[ids[-1]] if ids else None,
        started=history.outcomes.total() + (history.open is not None),
        committed=history.outcomes[COMMITTED],
        aborted=history.outcomes[ABORTED],
        superseded=history.outcomes[SUPERSEDED],
        timed_out=history.outcomes[TIMED_OUT],
        open=int(history.open is not None),
        longest_us=max((each.open_ns(last_ns) // 1000 for each in transactions), default=None),
        missing=sum(row.missing for row in sequences),
        duplicates=sum(row.duplicates for row in sequences),
        commit_markers=producer.markers[True],
        abort_markers=producer.markers[False],
    )


def _transaction(transactional_id: str, each: Transaction, last_ns: int) -> TransactionRow:
    return row_of(
        TransactionRow,
        each,
        transactional_id=transactional_id,
        duration_us=each.open_ns(last_ns) // 1000,
        partitions=len(each.partitions),
        example=each.exchange,
    )


def _fenced(transactional_id: str | None, history: TransactionHistory) -> Iterator[FencedRow]:
    for fence, each in history.fenced.items():
        by = each.by
        yield row_of(
            FencedRow,
            each,
            transactional_id=transactional_id,
            **fence._asdict(),
            by_client=None if by is None else by.client,
            by_address=None if by is None else by.address,
            by_example=None if by is None else by.exchange,
        )


def _sequence(
    producer_id: int, topic: str, partition: int, transactional_id: str | None, each: Sequence
) -> SequenceRow:
    return row_of(
        SequenceRow,
        each,
        producer_id=producer_id,
        transactional_id=transactional_id,
        topic=topic,
        partition=partition,
    )


# ------------------------------------------------------------------------------------------------------------
# Events of a transactional ID, in order of time -> its transactions and fenced producers.
#
#     InitProducerId                          a producer ID and epoch; an open transaction is aborted
#     AddPartitionsToTxn, AddOffsetsToTxn     the first one begins a transaction,
#     Produce, TxnOffsetCommit                    in version 2 of transactions (KIP-890) one of these does
#     EndTxn                                  commit or abort
#     WriteTxnMarkers                         by the coordinator: an abort without EndTxn is a timeout
#     INVALID_TXN_STATE, PRODUCER_FENCED      later than the timeout in InitProducerId: the same
#
# Holds the open transaction, and ``_MAX_LISTED`` of those that have ended.
# ------------------------------------------------------------------------------------------------------------


INIT, ADD, WRITE, OFFSETS, END, MARKER = range(6)

OPEN, TIMED_OUT, SUPERSEDED, ABORTED, COMMITTED = "open", "timed_out", "superseded", "aborted", "committed"
OUTCOMES = (OPEN, TIMED_OUT, SUPERSEDED, ABORTED, COMMITTED)

FENCED = frozenset({"PRODUCER_FENCED", "INVALID_PRODUCER_EPOCH"})
_ENDED = FENCED | {"INVALID_TXN_STATE"}  # what a producer gets whose transaction the coordinator has aborted
_TIMEOUT_MS = 60_000  # default transaction.timeout.ms, if no InitProducerId was captured
_MS_NS = 1_000_000
_MAX_LISTED = 100
_MAX_PARTITIONS = 1000  # distinct partitions kept per transaction
_MAX_FENCED = 50


class Event(NamedTuple):
    """A request of a producer or its coordinator. Fields are in sort order.

    Attributes:
        time_ns: last byte of the request; ``done_ns``: first byte of the response.
        kind: INIT ... MARKER.
        commits: for END and MARKER.
        timeout_ms: for INIT.
    """

    time_ns: int
    exchange: str
    kind: int
    api: str
    client: str
    address: str
    producer_id: int
    epoch: int
    error: str | None
    done_ns: int
    partitions: tuple[tuple[str, int], ...] = ()
    records: int = 0
    commits: bool = False
    timeout_ms: int = 0


@dataclass(slots=True)
class Transaction:
    """A transaction; open while ``end_ns`` is None.

    Attributes:
        start_captured: whether its start was certainly captured.
        timeout_ms: the transaction timeout in the last InitProducerId before it; None: not captured.
    """

    producer_id: int
    epoch: int
    start_ns: int
    exchange: str
    start_captured: bool
    timeout_ms: int | None = None
    outcome: str = OPEN
    end_ns: int | None = None
    first_marker_ns: int | None = None
    partitions: set[tuple[str, int]] = field(default_factory=set)
    records: int = 0
    offset_partitions: int = 0

    def open_ns(self, last_ns: int) -> int:
        """How long it was open, or has been open at ``last_ns``."""
        return max(0, (last_ns if self.end_ns is None else self.end_ns) - self.start_ns)


class Fence(NamedTuple):
    """A producer that the broker reported as fenced."""

    producer_id: int
    epoch: int
    error: str
    api: str
    client: str
    address: str


@summed
class Fenced(Failures):
    """How often, and by which InitProducerId."""

    by: Event | None = either(None)


@summed
class TransactionHistory(Summed):
    """The history of a transactional ID. Events are added in order of time."""

    open: Transaction | None = either(None)
    ended: list[Transaction] = total(list)
    outcomes: Counter[str] = total(Counter)
    unlisted: int = total()
    fenced: Bounded[Fence, Fenced] = merged(partial(Bounded, _MAX_FENCED, Fenced))
    _owner: Event | None = either(None)  # the last InitProducerId that succeeded
    _last: Transaction | None = own(lambda: None)
    _is_known: bool = either(False)  # whether the ID had no open transaction before the next event

    @property
    def transactions(self) -> list[Transaction]:
        """Those that are listed, the open one last."""
        return [*self.ended, *filter(None, (self.open,))]

    def take(self, event: Event) -> None:
        """Add the next event."""
        if event.kind == MARKER:
            self._mark(event)
            return
        if event.error in _ENDED and event.kind != INIT and self._is_overdue(event):
            self._close(TIMED_OUT, event.time_ns)
        if event.error in FENCED:
            self._fence(event, event.error or "")
        elif event.error is not None:
            return
        elif event.kind == INIT:
            self._close(SUPERSEDED, event.time_ns)
            self._owner, self._is_known = event, True
        elif event.kind == END:
            if self.open is None and not self._is_known:
                self._begin(event)
            self._close(COMMITTED if event.commits else ABORTED, event.done_ns)
        else:
            self._advance(event)

    def merge(self, other: TransactionHistory) -> None:
        """Add the history of other connections: approximate, because their events are no longer kept."""
        Summed.merge(self, other)
        self._trim()

    def _begin(self, event: Event) -> None:
        self.open = Transaction(
            event.producer_id,
            event.epoch,
            event.time_ns,
            event.exchange,
            start_captured=self._is_known,
            timeout_ms=None if self._owner is None else self._owner.timeout_ms,
        )

    def _advance(self, event: Event) -> None:
        if self.open is None:
            self._begin(event)
        transaction = self.open
        assert transaction is not None
        if event.kind == OFFSETS:
            transaction.offset_partitions += len(event.partitions)
        elif len(transaction.partitions) < _MAX_PARTITIONS:
            transaction.partitions.update(event.partitions)
        transaction.records += event.records

    def _close(self, outcome: str, end_ns: int) -> None:
        self._is_known = True
        transaction, self.open = self.open, None
        if transaction is None:
            return
        transaction.outcome, transaction.end_ns = outcome, end_ns
        self.outcomes[outcome] += 1
        self._last = transaction
        self.ended.append(transaction)
        if len(self.ended) > 2 * _MAX_LISTED:
            self._trim()

    def _is_overdue(self, event: Event) -> bool:
        """Whether the open transaction was refused to its own producer after its timeout, which is known."""
        if self.open is None or self._owner is None:
            return False
        is_own = (event.producer_id, event.epoch) == (self.open.producer_id, self.open.epoch)
        return is_own and event.time_ns - self.open.start_ns >= self._owner.timeout_ms * _MS_NS

    def _mark(self, event: Event) -> None:
        """Markers belong to the last transaction that ended, unless the open one has timed out."""
        timeout_ms = self._owner.timeout_ms if self._owner is not None else _TIMEOUT_MS
        if (
            self.open is not None
            and not event.commits
            and event.time_ns - self.open.start_ns >= timeout_ms * _MS_NS
        ):
            self._close(TIMED_OUT, event.time_ns)
        last = self._last
        if last is not None and last.first_marker_ns is None and event.commits == (last.outcome == COMMITTED):
            last.first_marker_ns = event.time_ns

    def _fence(self, event: Event, error: str) -> None:
        owner = self._owner
        is_other = owner is not None and (
            (owner.client, owner.address) != (event.client, event.address) or owner.epoch > event.epoch
        )
        fence = Fence(event.producer_id, event.epoch, error, event.api, event.client, event.address)
        fenced = self.fenced[fence]
        fenced.add(event.time_ns, event.exchange)
        fenced.by = fenced.by or (owner if is_other else None)

    def _trim(self) -> None:
        self.ended.sort(key=lambda each: (OUTCOMES.index(each.outcome), -each.open_ns(0), each.start_ns))
        self.unlisted += len(self.ended[_MAX_LISTED:])
        del self.ended[_MAX_LISTED:]


# ------------------------------------------------------------------------------------------------------------
# Events of a producer -> its identity, totals and history.
#
# Holds a limited number of events; past it the older half is evaluated immediately.
# ------------------------------------------------------------------------------------------------------------


MAX_IDS = 20
"""Maximum number of producer IDs kept per transactional ID; a coordinator assigns a new one when it runs out
of epochs."""

_IN_ORDER = itemgetter(0, 1, 2)  # time, exchange, kind


def _highest(one: dict[int, int], other: dict[int, int]) -> dict[int, int]:
    for producer_id, epoch in other.items():
        if producer_id in one or len(one) < MAX_IDS:
            one[producer_id] = max(epoch, one.get(producer_id, -1))
    return one


@summed
class Producer(Summed):
    """A transactional ID, or a producer ID without one."""

    events: list[Event] = own(list)  # merge adds them one by one
    held: int = own(int)  # entries that they take
    history: TransactionHistory = merged(TransactionHistory)
    clients: Distinct = merged(Distinct)
    addresses: Distinct = merged(Distinct)
    epochs: dict[int, int] = joined(_highest, dict)  # producer ID -> highest epoch
    inits: int = total()
    timeout_ms: int = largest()
    fenced: int = total()
    batches: int = total()
    records: int = total()
    control_batches: int = total()
    markers: Counter[bool] = total(Counter)
    first_ns: int | None = earliest()
    last_ns: int | None = latest()
    _max: int = own()

    def __init__(self, limit: int) -> None:
        Summed.__init__(self)
        self._max = limit

    def see(self, facts: Facts) -> None:
        """Note client, address and time."""
        self.clients.add(facts.client)
        self.addresses.add(facts.exchange.connection.client.ip)
        self.first_ns = earlier(self.first_ns, facts.exchange.time_ns)
        self.last_ns = later(self.last_ns, facts.exchange.time_ns)

    def has(self, producer_id: int, epoch: int) -> None:
        """Note a producer ID and epoch."""
        if producer_id >= 0:
            _highest(self.epochs, {producer_id: epoch})

    def add(self, event: Event) -> int:
        """Add an event. Returns by how much ``held`` has grown."""
        before = self.held
        self.events.append(event)
        self.held += entries(event)
        while self.held > self._max and self.events:
            self.evaluate_older()
        return self.held - before

    def evaluate_older(self) -> int:
        """Add the older half of the events to the history. Returns by how much ``held`` has shrunk."""
        before = self.held
        self.events.sort(key=_IN_ORDER)
        older = (len(self.events) + 1) // 2
        for each in self.events[:older]:
            self.history.take(each)
        del self.events[:older]
        self.held = sum(map(entries, self.events))
        return before - self.held

    def merge(self, other: Producer) -> None:
        """Add what was seen on other connections."""
        Summed.merge(self, other)
        for event in other.events:
            self.add(event)

    def full_history(self) -> TransactionHistory:
        """The history including the events that are still kept."""
        history = deepcopy(self.history)
        for event in sorted(self.events, key=_IN_ORDER):
            history.take(event)
        return history
