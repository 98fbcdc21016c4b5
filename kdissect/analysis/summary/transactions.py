"""Facts -> producers with a producer id: transactions, fencing, markers, and gaps in their sequence numbers.

A producer talks to its coordinator over one connection and writes over others, and the coordinator's markers
come over a third kind. So events are kept, ``summary_transaction_events`` of each transactional id, and put
in order at the end; past that number the older half becomes part of the story (transactionstories.py) at
once.
"""

from __future__ import annotations

from copy import deepcopy
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar

from kdissect.analysis.summary import transactionrows
from kdissect.analysis.summary.bounded import Bounded
from kdissect.analysis.summary.producers import Producer
from kdissect.analysis.summary.sequences import Sequence
from kdissect.analysis.summary.transactionstories import (
    ADD,
    END,
    FENCED,
    INIT,
    MARKER,
    OFFSETS,
    WRITE,
    Event,
)
from kdissect.kafka.codes import error_name

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from kdissect.analysis.summary.facts import Facts
    from kdissect.analysis.summary.transactionsdocument import TransactionsPart
    from kdissect.analysis.touched import Touched
    from kdissect.limits import Limits
    from kdissect.model import Body

Name = tuple[str | None, int]
"""A transactional id and -1; None and a producer id where there is none, or none is known yet."""


class Transactions:
    """Producers, and what they wrote to each partition."""

    def __init__(self, limits: Limits) -> None:
        rows = limits.summary_rows
        make = partial(Producer, limits.summary_transaction_events)
        self.producers: Bounded[Name, Producer] = Bounded(rows, make)
        self.sequences: Bounded[tuple[int, str, int], Sequence] = Bounded(rows, Sequence)
        self._names: dict[int, str] = {}  # producer id -> transactional id
        self._most = rows
        self._last_ns = 0

    def feed(self, facts: Facts) -> None:
        """Take an exchange."""
        self._last_ns = max(self._last_ns, facts.exchange.time_ns)
        if facts.api == "Fetch":
            self._fetched(facts)
        elif facts.exchange.request is not None and (take := self._takers.get(facts.api)) is not None:
            take(self, facts, facts.exchange.request)

    def merge(self, other: Transactions) -> None:
        """Take in what was seen on other connections."""
        self.producers.merge(other.producers)
        self.sequences.merge(other.sequences)
        for producer_id, name in other._names.items():
            self._learn(producer_id, name)
        self._last_ns = max(self._last_ns, other._last_ns)

    def rows(self) -> TransactionsPart:
        """Tell it all."""
        return transactionrows.part(self._united(), dict(self.sequences), self._names, self._last_ns)

    def folded(self) -> dict[str, int]:
        """Produced batches that no row was left for."""
        other = self.producers.other
        return {"transactions": other.batches} if other is not None and other.batches else {}

    def _united(self) -> dict[Name, Producer]:
        """Producers by name, where what was known of a producer id alone belongs to a name by now."""
        united: dict[Name, Producer] = dict(self.producers)
        for name in [name for name in united if name[1] in self._names]:
            known = self._names[name[1]], -1
            nameless = deepcopy(united.pop(name))
            if known in united:
                nameless.merge(united[known])
            united[known] = nameless
        return united

    def _learn(self, producer_id: int, transactional_id: str) -> None:
        if producer_id >= 0 and (producer_id in self._names or len(self._names) < self._most):
            self._names[producer_id] = transactional_id

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
        asked: Body,
        error: str | None,
        **more: Any,
    ) -> Producer:
        """Keep what a producer asked for."""
        producer_id, epoch = asked["producer_id"], asked["producer_epoch"]
        producer = self._producer(name, producer_id)
        producer.see(facts)
        producer.has(producer_id, epoch)
        producer.fenced += error in FENCED
        producer.add(_event(facts, kind, producer_id, epoch, error, **more))
        return producer

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
        self._note(facts, INIT, name, response, None, timeout_ms=timeout_ms).inits += 1

    def _add_partitions(self, facts: Facts, request: Body) -> None:
        if "v3_and_below_producer_epoch" in request:
            asked = {
                name.removeprefix("v3_and_below_"): value
                for name, value in request.items()
                if name.startswith("v3_and_below_")
            }
            self._add_to(facts, asked, next(iter(facts.errors), None))
        results = {
            each.get("transactional_id"): each
            for each in (facts.exchange.response or {}).get("results_by_transaction") or ()
        }
        for asked in request.get("transactions") or ():
            if asked.get("verify_only") is False:  # a broker, for what a client wrote (KIP-890)
                error = _first_error(results.get(asked["transactional_id"], {}))
                self._add_to(facts, asked, error, is_broker=True)

    def _add_to(self, facts: Facts, asked: Body, error: str | None, *, is_broker: bool = False) -> None:
        partitions = tuple(
            (topic["name"], partition)
            for topic in asked.get("topics") or ()
            for partition in topic.get("partitions") or ()
        )
        name, producer_id = asked["transactional_id"], asked["producer_id"]
        if not is_broker:
            self._note(facts, ADD, name, asked, error, partitions=partitions)
        elif error is None:
            event = _event(facts, ADD, producer_id, asked["producer_epoch"], None, partitions=partitions)
            self._producer(name, producer_id).add(event)

    def _add_offsets(self, facts: Facts, request: Body) -> None:
        if "producer_epoch" in request:
            self._note(facts, ADD, request["transactional_id"], request, next(iter(facts.errors), None))

    def _commit_offsets(self, facts: Facts, request: Body) -> None:
        if "producer_epoch" in request:
            error, partitions = next(iter(facts.errors), None), _places(facts.touched)
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
            producer.batches += len(batches)
            records = sum(max(0, batch["records_count"]) for _, batch in batches)
            producer.records += records
            for each, batch in batches:
                self._number(facts, each, batch)
            errors = [error_name(each.error) for each, _ in batches if each.error]
            fenced = next((error for error in errors if error in FENCED), None)
            producer.fenced += fenced is not None
            if name or fenced:
                error = fenced or (errors[0] if len(errors) == len(batches) else None)
                places = _places(each for each, _ in batches)
                producer.add(
                    _event(facts, WRITE, producer_id, epoch, error, partitions=places, records=records)
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
        for asked in request.get("markers") or ():
            if "transaction_result" not in asked:
                continue
            places = tuple(
                (topic["name"], partition)
                for topic in asked.get("topics") or ()
                for partition in topic.get("partition_indexes") or ()
            )
            commits, producer_id = asked["transaction_result"], asked["producer_id"]
            producer = self._producer(None, producer_id)
            producer.markers[commits] += len(places)
            epoch = asked["producer_epoch"]
            producer.add(_event(facts, MARKER, producer_id, epoch, None, partitions=places, commits=commits))

    def _fetched(self, facts: Facts) -> None:
        for each in facts.touched:
            for batch in each.fetched.batches() if each.fetched is not None else ():
                if batch.get("control") and batch["producer_id"] >= 0:
                    self._producer(None, batch["producer_id"]).control_batches += 1

    _takers: ClassVar[dict[str, Callable[[Transactions, Facts, Body], None]]] = {
        "InitProducerId": _init,
        "AddPartitionsToTxn": _add_partitions,
        "AddOffsetsToTxn": _add_offsets,
        "TxnOffsetCommit": _commit_offsets,
        "EndTxn": _end,
        "Produce": _produce,
        "WriteTxnMarkers": _write_markers,
    }


def _event(facts: Facts, kind: int, producer_id: int, epoch: int, error: str | None, **more: Any) -> Event:
    exchange = facts.exchange
    response, time_ns = exchange.response_frame, exchange.time_ns
    return Event(
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


def _places(touched: Iterator[Touched] | list[Touched]) -> tuple[tuple[str, int], ...]:
    return tuple(dict.fromkeys((each.topic, each.partition) for each in touched))


def _first_error(result: Body) -> str | None:
    codes = (
        partition.get("partition_error_code", 0)
        for topic in result.get("topic_results") or ()
        for partition in topic.get("results_by_partition") or ()
    )
    return next((error_name(code) for code in codes if code), None)
