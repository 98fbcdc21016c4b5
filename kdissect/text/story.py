"""Exchanges that concern a subject -> the entries of its story, in order of time, and notes between them; and
the verdict: what happened, since when, and why, as the findings about these exchanges say.

Routine exchanges are folded: those that one client repeats at one broker without an error, such as
heartbeats, empty fetches, or one Produce after another. Any other exchange ends all folds, and a pause ends
one. Rebalances and transactions are those of the summary (stats/groups.py, stats/transactions.py). The story
of a broker or host has notes on its connections too.

Holds ``limits.story_entries`` entries, the first half and the latest, as many notes on connections, and as
many connections that named no client: which hosts the story is about may be known late. The others are
counted.
"""

from __future__ import annotations

from collections import Counter, deque
from copy import copy
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import partial
from itertools import takewhile
from operator import attrgetter
from typing import TYPE_CHECKING, Any, NamedTuple

from kdissect.anomalies import NOTE
from kdissect.exchanges import content
from kdissect.exchanges.group_events import ALIVE, COMMIT, group_events
from kdissect.exchanges.outcomes import outcome
from kdissect.limits import DEFAULT, SECOND_NS, Limits
from kdissect.model import ANSWERED, INCOMPLETE, INCOMPLETE_REQUEST, NOT_EXPECTED, UNANSWERED
from kdissect.names import kept
from kdissect.net.analysis import ONE_WAY, OPENED, REFUSED, UNOPENED
from kdissect.net.analysis import UNANSWERED as NOT_OPENED
from kdissect.net.duplex import NEVER_NS
from kdissect.phrases import (
    ABSENT,
    columns_of,
    duration,
    facts,
    listed,
    many,
    most_frequent,
    named,
    printable,
    times,
    truncate_start,
    wrapped,
)
from kdissect.query.filters import NameTest
from kdissect.query.record_filters import RecordCriteria, RecordFilter
from kdissect.query.records import Records
from kdissect.query.subjects import CLIENT, GROUP, HOST, RECORD, TRANSACTION
from kdissect.stats.by_cluster import ByCluster
from kdissect.stats.connection_log import ConnectionFeed
from kdissect.stats.facts import Facts
from kdissect.stats.findings.consumers import BlockedReaders, RebalanceStorm
from kdissect.stats.findings.rules import RuleSet
from kdissect.stats.groups import Groups, cause_row, timelines
from kdissect.stats.health import GOOD, health
from kdissect.stats.rebalances import LEFT, counted
from kdissect.stats.summarizer import HealthCounts
from kdissect.stats.survey import KAFKA, TLS
from kdissect.stats.transactions import OPEN, Transactions
from kdissect.tables.columns import RECORD as RECORD_COLUMNS
from kdissect.tables.values import timestamp
from kdissect.text.about import about
from kdissect.text.groups_page import cause
from kdissect.text.style import BOLD, CYAN, PLAIN, RED, Style
from kdissect.text.table import LineTable, LineView, api, is_narrow, latency
from kdissect.text.transactions_page import outcome_text
from kdissect.text.value_labels import copy_text

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from typing import TextIO

    from kdissect.exchanges.partition_records import CarriedRecord
    from kdissect.model import Endpoint, Exchange
    from kdissect.query.subjects import Subject
    from kdissect.stats.connection_log import ConnectionLogRow
    from kdissect.stats.document import FindingRow, GroupHistory, TransactionRow
    from kdissect.stats.rebalances import Rebalance
    from kdissect.text.style import Times
    from kdissect.text.table import Word

_GAP_NS = SECOND_NS  # a time without entries is shown from this length on
_PAUSE_NS = 10 * SECOND_NS  # heartbeats are 3 s or 5 s apart
_REPEATED = frozenset({"Produce", "Fetch", "ShareFetch", "ShareAcknowledge", "Metadata", "BrokerHeartbeat"})
_WIDE = 160  # a terminal this wide shows exchange IDs
_MIN_ABOUT = 30  # terminal columns of the text: if there are fewer, it has its own line
_LABEL = len("since  ")  # of a line of the verdict
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

_e2e_latency_us = next(column.get for column in RECORD_COLUMNS if column.name == "e2e_latency_us")


class Participant(NamedTuple):
    """A client, by client ID and address, or a broker, by its address and port."""

    name: str
    address: str = ""


@dataclass(slots=True)
class Entry:
    """An exchange, or several that were folded.

    Attributes:
        time_ns: of the first request; if the response carried the record, of the response.
        end_ns: of the last response, or of the request if there is none.
        client, broker: both ends.
        api: name and version.
        text: description of the last one.
        latency: its latency, or why that is unknown.
        errors: their names, and kinds of anomalies.
        exchange: ``connection/number`` of the first.
        carries: whether this is only the response, which carried the record.
        count: exchanges in it; ``records``: records in these; ``longest_ns``: the longest latency.
    """

    time_ns: int
    end_ns: int
    client: Participant
    broker: Participant
    api: str
    text: str
    latency: str
    errors: tuple[str, ...]
    exchange: str
    carries: bool = False
    count: int = 1
    records: int = 0
    longest_ns: int = 0

    @property
    def name(self) -> str:
        """The API without its version."""
        return self.api.partition(" v")[0]

    def add(self, later: Entry) -> None:
        """Fold another one into it."""
        self.end_ns = max(self.end_ns, later.end_ns)
        self.text = later.text
        self.count += later.count
        self.records += later.records
        self.longest_ns = max(self.longest_ns, later.longest_ns)


class Note(NamedTuple):
    """A line between entries: a rebalance, transaction or connection begins or ends, a pause, omitted rows.

    Attributes:
        why: of the verdict, what explains it; empty for all others. The times of the verdict are those of the
            trouble, or of all entries if there is none.
    """

    time_ns: int
    end_ns: int
    text: str
    why: str = ""


@dataclass(slots=True)
class _OnConnection:
    """A note on connections.

    Attributes:
        unsure: their far end, which may not be a Kafka listener; None: it is one.
        count: how many there are.
    """

    note: Note
    unsure: Endpoint | None
    count: int = 1


class Story:
    """Collects the entries.

    Args:
        subject: of the story. Its filter selects the exchanges to feed.
        limits: to respect.

    Attributes:
        exchanges: how many are part of an entry; ``hidden``: those that are not shown.
        connections: how many notes are on connections.
    """

    def __init__(self, subject: Subject, limits: Limits = DEFAULT) -> None:
        self.exchanges = self.hidden = self.connections = 0
        self._subject = subject
        self._half = max(1, limits.story_entries // 2)
        self._first: list[Entry] = []
        self._latest: deque[Entry] = deque()
        self._folds: dict[tuple[Participant, Participant, str, bool], Entry] = {}
        self._omitted = _Omitted()
        self._counts = HealthCounts(limits)
        self._troubles = _Troubles()
        self._is_partition = subject.is_partition
        self._log = ConnectionFeed(limits, self._connect, filtered=False)
        self._log.on_name.append(self._counts.findings.resolved)
        self._hosts: set[str] = set()
        self._unnamed: list[ConnectionLogRow] = []
        self._on_connections: list[_OnConnection] = []
        self._latest_on: dict[str, _OnConnection] = {}  # by text
        self._max_notes = limits.story_entries
        self._is_name = NameTest((subject.name,))
        self._prefix = f"group {subject.name}" if subject.kind == GROUP else ""
        self._groups = ByCluster(partial(Groups, limits), limits) if subject.kind == GROUP else None
        self._transactions = (
            ByCluster(partial(Transactions, limits), limits) if subject.kind == TRANSACTION else None
        )
        self._holds = (  # of transactions; others' exchanges show them
            ByCluster(partial(RuleSet, limits, (BlockedReaders,)), limits)
            if subject.kind == TRANSACTION
            else None
        )
        self._records: Records | None = None
        if subject.kind == RECORD:
            place = (subject.name,), (str(subject.partition),)
            criteria = RecordCriteria(*place, offsets=(str(subject.offset),))
            self._records = Records(RecordFilter(criteria, limits), limits)

    @property
    def connection_feed(self) -> ConnectionFeed:
        """What passes connections on to this, as observer of a dissection, if it gets all exchanges."""
        return self._log

    def feed(self, exchange: Exchange, *, is_shown: bool = True) -> None:
        """Add the next exchange in order of completion. Those that are not shown count for rebalances and
        transactions.
        """
        facts = Facts(exchange, self._counts.sessions, self._is_partition)
        self._counts.count(facts)
        self._troubles.feed(facts)
        for part in (self._groups, self._transactions, self._holds):
            if part is not None:
                part.feed(facts)
        if not is_shown:
            self.hidden += 1
            return
        entry = _entry(exchange)
        if self._records is not None:
            carried = next(self._records.of((exchange,)), None)
            if carried is not None:
                _add_passage(entry, carried)
            elif self.exchanges and group_events(exchange):
                entry.text = f"first commit past it: {entry.text}"
            else:
                return  # the record is not in this batch: it was compacted, or the batch hides its offsets
        entry.text = kept(entry.text.removeprefix(self._prefix).removeprefix(", ").lstrip())
        self.exchanges += 1
        if self._records is None and _is_routine(exchange):
            self._fold(entry)
        else:
            self._end_folds()
            self._keep(entry)

    def skip(self, exchange: Exchange) -> None:
        """Add an exchange that the filter of the subject does not select: consumers wait for a transaction
        without naming it.
        """
        if self._holds is not None and exchange.api == "Fetch":
            self._holds.feed(Facts(exchange, self._counts.sessions))

    def close(self) -> list[Entry | Note]:
        """The entries and the notes between them, in order of time."""
        self._end_folds()
        self._log.close()
        events, left_out = [*self._rebalances(), *self._transactions_seen()], self._omitted
        events += ([note] for note in self._connection_notes())
        if self.hidden:
            events = [event for event in events if self._is_among_entries(event)]
        notes = [note for event in events for note in event]
        shown = [note for note in notes if not left_out.begin_ns <= note.time_ns <= left_out.end_ns]
        if left_out.exchanges or left_out.notes:
            shown.append(left_out.note(len(notes) - len(shown)))
        rows: list[Entry | Note] = [*shown, *self._first, *self._latest]
        rows.sort(key=attrgetter("time_ns"))  # a note comes before the first exchange that it covers
        return list(_with_gaps(rows))

    def _connect(self, row: ConnectionLogRow) -> None:
        """Note a connection that has ended, if it is part of the story."""
        is_end = self._subject.is_end(row.client, row.broker, row.hop)
        if not (is_end or row.is_selected):
            if not row.kinds and row.protocol in (None, TLS) and len(self._unnamed) < self._max_notes:
                self._unnamed.append(row)
            return
        if len(self._hosts) < self._max_notes:
            self._hosts.add(row.client.ip)
        self._counts.connect(row)
        if is_end:
            is_sure = row.is_listener or (row.protocol == KAFKA and row.opening not in UNOPENED)
            for note in _connection(row, names_broker=self._subject.kind == HOST):
                self._note_connection(note, None if is_sure else row.broker)

    def _note_connection(self, note: Note, unsure: Endpoint | None) -> None:
        """Keep a note on a connection, or add it to the same one of less than a pause before."""
        before = self._latest_on.get(note.text)
        if before is not None and note.time_ns - before.note.end_ns < _PAUSE_NS:
            times_ns = (min(note.time_ns, before.note.time_ns), max(note.end_ns, before.note.end_ns))
            before.note = Note(*times_ns, note.text)
            before.count += 1
        elif len(self._on_connections) < self._max_notes:
            self._on_connections.append(_OnConnection(note, unsure))
            self._latest_on[note.text] = self._on_connections[-1]
        else:
            self._omitted.add_note(note)

    def _connection_notes(self) -> Iterator[Note]:
        """On connections to Kafka listeners: which ends are, may be known late."""
        for each in self._on_connections:
            if each.unsure is None or each.unsure in self._log.listeners:
                time_ns, end_ns, text, _ = each.note
                self.connections += 1
                often = (
                    f", {many(each.count, 'time')} in {duration(end_ns - time_ns)}" if each.count > 1 else ""
                )
                yield Note(time_ns, end_ns, f"{text}{often}")

    def verdict(self, rows: Sequence[Entry | Note]) -> Note:
        """What happened, since when, and why: the worst cause that the rules have found.

        Args:
            rows: of ``close``, at least one.
        """
        if self._subject.kind in (GROUP, CLIENT, TRANSACTION):
            for row in self._unnamed:  # failed attempts to connect name no client
                if row.client.ip in self._hosts:
                    self._counts.connect(row)
        self._counts.settle()
        holds = [
            part
            for part in (() if self._holds is None else self._holds.rows())
            if any(map(self._is_name, part.scope.get("transactional ID", ())))
        ]
        findings, load, troubles = self._counts.findings.rows(holds), self._counts.load, self._troubles
        verdict = health(findings, load)
        histories = self._histories()
        groups = [_group_text(history) for history in histories[:_GROUPS]]
        if len(histories) > _GROUPS:
            groups.append(f"{len(histories) - _GROUPS:,} more groups")
        what = "; ".join((*groups, f"{verdict.verdict}: {verdict.message}"))
        causes = [row for row in findings if row.explained_by is None and row.severity != NOTE]
        if causes:
            worst, *others = causes
            explained = [*takewhile(lambda row: row.explained_by is not None, findings[1:])]
            why = _why(worst, explained, others, _reasons(histories))
            return Note(_ns(worst.first), _ns(worst.last), what, why)
        if troubles.counts:
            counts = facts(*(f"{count:,} {name}" for name, count in most_frequent(troubles.counts, 3)))
            why = f"the evidence does not decide: no rule explains {counts}"
            return Note(troubles.first_ns, troubles.last_ns, what, why)
        why = "nothing to explain: no finding, no unexpected error"
        if verdict.verdict != GOOD:
            why = f"the evidence does not decide: {verdict.message}"
        return Note(min(row.time_ns for row in rows), max(row.end_ns for row in rows), what, why)

    def _histories(self) -> list[GroupHistory]:
        return [
            history
            for groups in (() if self._groups is None else self._groups.by_id().values())
            for history in groups.rows()
            if self._is_name(history.group)
        ]

    def _is_among_entries(self, event: Sequence[Note]) -> bool:
        """Whether an event happened in the time of the entries."""
        entries = [*self._first, *self._latest]
        return any(entry.time_ns <= event[-1].end_ns for entry in entries) and any(
            event[0].time_ns <= entry.end_ns for entry in entries
        )

    def _fold(self, entry: Entry) -> None:
        key = entry.client, entry.broker, entry.api, entry.records > 0
        fold = self._folds.get(key)
        if fold is not None and entry.time_ns - fold.end_ns < _PAUSE_NS:
            fold.add(entry)
            return
        if fold is not None:
            self._keep(fold)
        elif len(self._folds) >= self._half:
            self._end_folds()
        self._folds[key] = entry

    def _end_folds(self) -> None:
        for fold in self._folds.values():
            self._keep(fold)
        self._folds.clear()

    def _keep(self, entry: Entry) -> None:
        if entry.count > 1:
            entry.latency = f"max {duration(entry.longest_ns)}"
            times = f"{many(entry.count, 'time')} in {duration(entry.end_ns - entry.time_ns)}"
            amount = many(entry.records, "record") if entry.records else ""
            entry.text = f"{facts(times, amount)}, last: {entry.text}"
        if len(self._first) < self._half:
            self._first.append(entry)
            return
        self._latest.append(entry)
        if len(self._latest) > self._half:
            self._omitted.add(self._latest.popleft())

    def _rebalances(self) -> Iterator[list[Note]]:
        for groups in () if self._groups is None else self._groups.by_id().values():
            for name, rebalances in timelines(groups):
                if self._is_name(name):
                    yield from map(_rebalance, rebalances)

    def _transactions_seen(self) -> Iterator[list[Note]]:
        for row in () if self._transactions is None else self._transactions.rows().transactions:
            if self._is_name(row.transactional_id):
                yield _transaction(row)


class _Omitted:
    """Counts entries that are not kept."""

    def __init__(self) -> None:
        self.exchanges = self.errors = self.notes = 0
        self.begin_ns, self.end_ns = 0, -1

    def add(self, entry: Entry) -> None:
        self.begin_ns = min(self.begin_ns or entry.time_ns, entry.time_ns)
        self.end_ns = max(self.end_ns, entry.time_ns)
        self.exchanges += entry.count
        self.errors += bool(entry.errors)

    def add_note(self, note: Note) -> None:
        """Count a note, which may be from any time."""
        self.notes += 1
        self.begin_ns = self.begin_ns or note.time_ns

    def note(self, notes: int) -> Note:
        notes += self.notes
        counts = facts(
            many(self.exchanges, "exchange") if self.exchanges else "",
            f"{self.errors:,} with errors" if self.errors else "",
            many(notes, "note") if notes else "",
        )
        return Note(
            self.begin_ns, self.end_ns, f"{counts} left out; --limits story_entries=N sets how many are kept"
        )


@dataclass(slots=True)
class _Troubles:
    """Counts what went wrong: errors that are not expected, and requests without an answer."""

    counts: Counter[str] = field(default_factory=Counter)
    first_ns: int = NEVER_NS
    last_ns: int = 0

    def feed(self, exchange: Facts) -> None:
        names = [*exchange.serious]
        if exchange.outcome in (UNANSWERED, INCOMPLETE, INCOMPLETE_REQUEST):
            names.append(f"{exchange.api} {_TROUBLES[exchange.outcome]}")
        if names:
            self.counts.update(names)
            self.first_ns = min(self.first_ns, exchange.time_ns)
            self.last_ns = max(self.last_ns, exchange.time_ns)


_TROUBLES = {UNANSWERED: "unanswered", INCOMPLETE: "incomplete", INCOMPLETE_REQUEST: "incomplete"}
_GROUPS = 2  # in the verdict
_REASONS = 2  # likewise


def _why(
    cause: FindingRow, explained: Sequence[FindingRow], others: Sequence[FindingRow], reasons: str
) -> str:
    """``poll-timeout: group billing: left ...; explains rebalance-storm; also found: queueing``."""
    names = listed([row.rule for row in explained])
    more = listed([*dict.fromkeys(row.rule for row in others)])
    texts = (
        f"{cause.rule}: {cause.subject}: {cause.message}",
        reasons if cause.rule == RebalanceStorm.name else "",
        f"explains {names}" if names else "",
        f"also found: {more}" if more else "",
    )
    return "; ".join(filter(None, texts))


def _reasons(histories: Sequence[GroupHistory]) -> str:
    """Why members left, as they say themselves."""
    left = Counter(
        each.reason or ""
        for history in histories
        for rebalance in history.rebalances
        for each in rebalance.causes
        if each.cause == LEFT
    )
    texts = (
        f'"{reason}" {times(count)}' if reason else f"without a reason {times(count)}"
        for reason, count in most_frequent(left, _REASONS)
    )
    return f"members left {facts(*texts)}" if left else ""


def _group_text(history: GroupHistory) -> str:
    """``group billing: 9 generations, 9 rebalances (5 joins, 4 leaves), members leave after 7.01s``."""
    rebalances = history.rebalances
    causes = counted(Counter(row.causes[0].cause for row in rebalances if row.causes))
    generations = len({row.generation_after for row in rebalances})
    stays = sorted(
        row.left - row.joined for row in history.members if row.left is not None and row.joined is not None
    )
    stay = duration(stays[len(stays) // 2] // timedelta(microseconds=1) * 1000) if stays else ""
    return f"group {history.group}: " + facts(
        many(generations, "generation") if generations else "no rebalance",
        f"{many(len(rebalances), 'rebalance')}{f' ({causes})' if causes else ''}" if rebalances else "",
        f"{many(len(stays), 'member')} left after {stay}{' (median)' if len(stays) > 1 else ''}"
        if stay
        else "",
    )


def _connection(row: ConnectionLogRow, *, names_broker: bool) -> Iterator[Note]:
    """That it opened, if that was captured, and that it ended; or that it did not open."""
    begin_ns = row.first_ns or 0
    client = row.client.ip if row.client_id is None else f"{row.client_id} at {row.client.ip}"
    ends = f"{client} to {row.broker}" if names_broker else client
    if row.opening in UNOPENED:
        yield Note(begin_ns, begin_ns, f"{ends}: {_UNOPENED[row.opening]}")
        return
    if row.opening == OPENED:
        yield Note(begin_ns, begin_ns, f"connection {row.id} opened: {ends}")
    if row.end is not None:
        length = duration(row.end.time_ns - begin_ns)
        outstanding = f"{many(row.outstanding, 'request')} outstanding" if row.outstanding else ""
        counts = facts(many(row.exchanges, "exchange"), outstanding)
        text = f"connection {row.id} ended by {row.ending} after {length}: {counts}"
        yield Note(row.end.time_ns, row.end.time_ns, text)


_UNOPENED = {
    REFUSED: "connection refused",
    NOT_OPENED: "connection attempt not answered",
    ONE_WAY: "connection attempt captured in one direction only",
}


def _ns(moment: datetime) -> int:
    return (moment - _EPOCH) // timedelta(microseconds=1) * 1000


def _entry(exchange: Exchange) -> Entry:
    client, response = exchange.connection.client, exchange.response_frame
    kinds = dict.fromkeys(f"! {anomaly.kind}" for anomaly in exchange.anomalies)
    return Entry(
        time_ns=exchange.time_ns,
        end_ns=exchange.time_ns if response is None else response.end_ns,
        client=Participant(kept(exchange.client_id or client.ip), client.ip),
        broker=Participant(str(exchange.connection.broker)),
        api=api(exchange),
        text=about(exchange),
        latency=latency(exchange),
        errors=(*content.errors(exchange), *kinds),
        exchange=exchange.id,
        records=content.records(exchange) or 0,
        longest_ns=(exchange.latency_us or 0) * 1000,
    )


def _add_passage(entry: Entry, carried: CarriedRecord) -> None:
    """Describe how an exchange carried a record."""
    source = carried.source
    entry.time_ns = source.time_ns
    entry.carries = not source.produced
    if source.produced:
        way = "produced"
    elif (replica := content.replica_id(source.exchange)) is not None:
        way = f"replicated to broker {replica}"
    else:
        way = "fetched"
    e2e_latency_us = _e2e_latency_us(carried)
    since = "" if e2e_latency_us is None else f"{duration(e2e_latency_us * 1000)} end to end"
    skipped = "before the requested offset" if carried.is_before_fetch else ""
    entry.text = f"{facts(way, since, copy_text(carried), skipped)}: {entry.text}"


def _is_routine(exchange: Exchange) -> bool:
    """Whether an exchange is routine: without errors, and without members that join or leave."""
    if content.errors(exchange) or exchange.anomalies or outcome(exchange) not in (ANSWERED, NOT_EXPECTED):
        return False
    if events := group_events(exchange, include_alive=True):
        return all(event.event in (ALIVE, COMMIT) for event in events)
    return exchange.api in _REPEATED


def _rebalance(each: Rebalance) -> list[Note]:
    """``rebalance to generation 4 begins: reader-2 joined``, and ``... ends after 3.01s: 3 members``."""
    name = f"rebalance to generation {each.generation_after}"
    causes = ", ".join(cause(cause_row(every)) for every in each.causes)
    text = f"{name} begins{f': {causes}' if causes else ''}"
    if each.end_ns is None:
        return [Note(each.start_ns, each.start_ns, text)]
    members = "" if each.members_after is None else f": {many(each.members_after, 'member')}"
    length = duration(each.end_ns - each.start_ns)
    return [
        Note(each.start_ns, each.end_ns, text),
        Note(each.end_ns, each.end_ns, f"{name} ends after {length}{members}"),
    ]


def _transaction(row: TransactionRow) -> list[Note]:
    """``transaction of pay-1 begins``, and ``transaction of pay-1 committed after 1.20s: 3 records``."""
    name, length = named("transaction of", row.transactional_id), duration(row.duration_us * 1000)
    state = f"open for {length}" if row.outcome == OPEN else f"{outcome_text(row.outcome)} after {length}"
    amounts = facts(
        many(row.records, "record"),
        many(row.partitions, "partition"),
        f"offsets of {many(row.offset_partitions, 'partition')}" if row.offset_partitions else "",
        "" if row.start_captured else "start not captured",
    )
    start_ns = _ns(row.start)
    end_ns = start_ns + row.duration_us * 1000
    end = Note(end_ns, end_ns, f"{name} {state}: {amounts}")
    return [Note(start_ns, start_ns, f"{name} begins"), end] if row.start_captured else [end]


def _with_gaps(rows: Iterable[Entry | Note]) -> Iterator[Entry | Note]:
    end_ns: int | None = None
    for row in rows:
        if end_ns is not None and (gap_ns := row.time_ns - end_ns) >= _GAP_NS:
            yield Note(end_ns, row.time_ns, f"idle for {duration(gap_ns)}")
        yield row
        end_ns = row.end_ns if end_ns is None else max(end_ns, row.end_ns)


def names_of(rows: Iterable[Entry | Note]) -> dict[Participant, str]:
    """The participants in order of appearance, each with a unique name."""
    entries = [row for row in rows if isinstance(row, Entry)]
    participants = dict.fromkeys(each for entry in entries for each in (entry.client, entry.broker))
    times = Counter(each.name for each in participants)
    return {
        each: each.name if times[each.name] == 1 else f"{each.name} ({each.address})" for each in participants
    }


def json_row(row: Entry | Note) -> dict[str, Any]:
    """A row as JSON. ``time`` and ``end`` are UTC; what is about several exchanges has their number as
    ``count``, the first as ``exchange``, and the longest latency. Only the verdict has ``why``.
    """
    times = {"time": timestamp(row.time_ns), "end": timestamp(row.end_ns)}
    if isinstance(row, Note):
        return {"type": "note", **times, "text": row.text} | ({"why": row.why} if row.why else {})
    return {
        "type": "exchange",
        **times,
        "exchange": row.exchange,
        "count": row.count,
        "client": row.client.name,
        "client_ip": row.client.address,
        "broker": row.broker.name,
        "api": row.name,
        "text": row.text,
        "latency_us": row.longest_ns // 1000 if row.longest_ns else None,
        "records": row.records,
        "errors": list(row.errors),
    }


# ------------------------------------------------------------------------------------------------------------
# Entries and notes -> lines.
# ------------------------------------------------------------------------------------------------------------


def verdict_lines(verdict: Note, times: Times, width: int | None, style: Style = PLAIN) -> Iterator[str]:
    """What happened, since when, and why: three lines, or more if they are wrapped.

    Args:
        verdict: of the story.
        times: writes its times.
        width: of the terminal; None: lines are not wrapped.
        style: of the lines.
    """
    begin, end = (copy(times).text(time_ns).strip() for time_ns in verdict[:2])  # rows do not count from it
    length_ns = verdict.end_ns - verdict.time_ns
    since = f"{begin} to {end} ({duration(length_ns)})" if length_ns else begin
    for label, text in (("what", verdict.text), ("since", since), ("why", verdict.why)):
        for line in wrapped(f"{label:<{_LABEL}}{printable(text)}", width, " " * _LABEL):
            yield f"{style.paint(style.named(line), BOLD)}\n"


class StoryTable(LineTable[Entry]):
    """Writes the entries of a story, and notes between them.

    Args:
        out, times, width, style, heading: as for ``LineTable``.
        names: of the participants.
    """

    _text_heading = "ABOUT"

    def __init__(
        self,
        out: TextIO,
        times: Times,
        names: Mapping[Participant, str],
        *,
        width: int | None = None,
        style: Style = PLAIN,
        heading: bool = False,
    ) -> None:
        self._names = names
        self._before_ns: int | None = None
        self._below = ""
        super().__init__(out, times, width=width, style=style, heading=heading)

    @property
    def hidden(self) -> int:
        """The number of columns for which lines have no room."""
        return len(self._shown(None)) - len(self._views)

    def note(self, note: Note) -> None:
        """Write a note as a line."""
        time = f"{self._times.text(note.time_ns)}{self._gap}"
        for line in wrapped(f"{time}* {printable(note.text)}", self._width, " " * (len(time) + 2)):
            self._write(self._style.paint(line, CYAN) + "\n")

    def _line(self, time: str, row: Entry) -> str:
        self._below = ""
        line = super()._line(time, row)
        return f"{line}{' ' * (len(time) + len(self._gap))}{self._below}\n" if self._below else line

    def _fitted(self, text: str, words: Sequence[Word], room: int) -> tuple[str, Sequence[Word]]:
        """Where a line has no room for the text, it goes below, with words that do not fit."""
        length = columns_of(text) + sum(columns_of(word) + len(self._gap) for word, _ in words)
        if self._width is None or room >= _MIN_ABOUT or length <= room:
            return super()._fitted(text, words, room)
        above = words if length - columns_of(text) <= room else ()
        text, below = super()._fitted(
            text, () if above else words, self._width - self._times.width - len(self._gap)
        )
        self._below = self._gap.join((text, *(self._style.paint(word, color) for word, color in below)))
        return "", above

    def _shown(self, width: int | None) -> Sequence[LineView]:
        is_few = is_narrow(width)
        client = LineView(
            "CLIENT", lambda entry: printable(self._names[entry.client]), width=11 if is_few else 20
        )
        broker = LineView(
            "BROKER", lambda entry: printable(self._names[entry.broker]), width=21, cut=truncate_start
        )
        views = (
            LineView("AFTER", self._after, width=len("123.4ms")),
            client,
            broker,
            LineView("API", attrgetter("name" if is_few else "api"), width=13 if is_few else 18),
            LineView("LATENCY", attrgetter("latency"), width=len("max 1.23ms" if is_few else "max 123.4ms")),
            LineView("EXCHANGE", attrgetter("exchange"), width=16),
        )
        if is_few:
            return tuple(view for view in views if view.heading not in ("BROKER", "EXCHANGE"))
        return views if width is None or width >= _WIDE else views[:-1]

    def _after(self, entry: Entry) -> str:
        before_ns, self._before_ns = self._before_ns, entry.end_ns if entry.count > 1 else entry.time_ns
        if before_ns is None or entry.time_ns < before_ns:
            return ABSENT
        return duration(entry.time_ns - before_ns)

    def _time_ns(self, entry: Entry) -> int:
        return entry.time_ns

    def _text(self, entry: Entry) -> str:
        return printable(entry.text)

    def _words(self, entry: Entry) -> Sequence[Word]:
        return [(printable(name), f"{BOLD};{RED}") for name in entry.errors]
