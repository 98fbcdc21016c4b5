"""Base class of rules: facts in, parts of findings out. Each holds a bounded table of counts.

A rule is a declaration (what it is called, how severe, what its keys name, what it costs) and what it looks
for: ``feed`` and its relatives count, ``_reports`` is the threshold, ``_message`` says what was counted. It
makes a ``RulePart`` for each key. causes.py says what explains what, and makes rows of them.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, TypeAlias, TypeVar

from kdissect.anomalies import ERROR, NOTE, WARNING
from kdissect.limits import SECOND_NS
from kdissect.net.duplex import NEVER_NS
from kdissect.phrases import client_label, topic_label
from kdissect.stats.contents import ONE
from kdissect.stats.document import RuleRow
from kdissect.stats.quantiles import Bounded
from kdissect.stats.rows import row_of
from kdissect.stats.sums import (
    Summed,
    earlier,
    earliest,
    fed,
    joined,
    largest,
    later,
    latest,
    merged,
    summed,
    total,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from kdissect.limits import Limits
    from kdissect.model import Body
    from kdissect.net.dns import Resolved
    from kdissect.stats.connection_log import ConnectionLogRow
    from kdissect.stats.contents import Noted
    from kdissect.stats.tallies import Alike, Tally


# ------------------------------------------------------------------------------------------------------------
# Occurrences -> their number, first and last time, and the first exchanges. Holds five exchange IDs, and
# counts of 64 intervals.
# ------------------------------------------------------------------------------------------------------------


_EXAMPLES = 5
_MAX_PIECES = 64
MAX_ENDS = 16
WORST_FIRST = (ERROR, WARNING, NOTE)


def _first(one: list[tuple[int, str]], other: list[tuple[int, str]]) -> list[tuple[int, str]]:
    if len(one) >= _EXAMPLES and (not other or other[0] >= one[-1]):
        return one
    return sorted({*one, *other})[:_EXAMPLES]


def _few(one: set[tuple[str, str]], other: set[tuple[str, str]]) -> set[tuple[str, str]]:
    ends = one | other
    return ends if len(ends) <= MAX_ENDS else set(sorted(ends)[:MAX_ENDS])


@summed
class Evidence(Summed):
    """Occurrences of one finding.

    Attributes:
        explained: time and ID of the first exchange with a broker's message about the error, and the message.
        ends: client address and broker of their connections: the first in order, if there are many.
    """

    count: int = total()
    first_ns: int = earliest(NEVER_NS)
    last_ns: int = latest(0)
    explained: tuple[int, str, str] = earliest((NEVER_NS, "", ""))
    ends: set[tuple[str, str]] = joined(_few, set)
    _examples: list[tuple[int, str]] = joined(_first, list)

    @property
    def examples(self) -> list[str]:
        """The first of them, as ``connection/number``, or as a connection's ID."""
        return [exchange for _, exchange in self._examples]

    @property
    def length_ns(self) -> int:
        """From the first to the last."""
        return self.last_ns - self.first_ns

    @property
    def times(self) -> list[int]:
        """The times of these."""
        return [time_ns for time_ns, _ in self._examples]

    def add(self, tally: Tally, count: int | None = None, error: str | None = None) -> None:
        """Add a tally with ``count`` occurrences, of this error; None: one in each exchange."""
        self.touch(tally.connection.client.ip, tally.broker)
        if tally.exchange is not None:
            self.take(tally.time_ns, tally.id, 1 if count is None else count)
            if error is not None and (message := tally.messages.get(error)):
                self.explained = min(self.explained, (tally.time_ns, tally.id, message))
        else:
            self.count += tally.exchanges if count is None else count
            self.first_ns = earlier(tally.first_ns, self.first_ns)
            self.last_ns = later(tally.last_ns, self.last_ns)
            self._examples = _first(self._examples, tally.first)

    def add_noted(self, tally: Alike, noted: Noted) -> None:
        """Add occurrences in some of the exchanges of a tally."""
        if noted.number:
            self.take_noted(tally, noted)
            self.touch(tally.connection.client.ip, tally.broker)

    def take_noted(self, tally: Tally, noted: Noted) -> None:
        """The same, without the ends of their connection."""
        self.count += noted.number
        self.first_ns = min(self.first_ns, noted.first_ns)
        self.last_ns = max(self.last_ns, noted.last_ns)
        self._examples = _first(self._examples, tally.first_of(noted))

    def touch(self, host: str, broker: str) -> None:
        """Note the ends of a connection."""
        end = host, broker
        if end not in self.ends and (len(self.ends) < MAX_ENDS or end < max(self.ends)):
            self.ends = _few(self.ends, {end})

    def note(self, row: ConnectionLogRow, time_ns: int | None = None) -> None:
        """Add a connection, at a time; None: when it began."""
        self.take((row.first_ns if time_ns is None else time_ns) or 0, row.id)
        self.touch(row.client.ip, str(row.broker))

    def take(self, time_ns: int, exchange: str, count: int = 1) -> None:
        """Add occurrences by time and the ID of an exchange or connection."""
        self.count += count
        if time_ns < self.first_ns:
            self.first_ns = time_ns
        if time_ns > self.last_ns:
            self.last_ns = time_ns
        if len(self._examples) < _EXAMPLES or time_ns <= self._examples[-1][0]:
            self._examples = _first(self._examples, [(time_ns, exchange)])


Counted = TypeVar("Counted", bound=Evidence)


def combined(parts: Sequence[Counted]) -> Counted:
    """New evidence: the sum of others of one type."""
    one = type(parts[0])()
    for each in parts:
        one.merge(each)
    return one


def _busiest(one: dict[int, int], other: dict[int, int]) -> dict[int, int]:
    for piece, count in other.items():
        one[piece] = one.get(piece, 0) + count
        if len(one) > _MAX_PIECES:  # evict the quietest, never the current one
            del one[min((each for each in one if each != piece), key=one.__getitem__)]
    return one


PIECE_NS = 10 * SECOND_NS
"""Of ``Noted.pieces``."""


@summed
class Bursts(Evidence):
    """Occurrences, and their number in the busiest intervals.

    Intervals start at multiples of their length, so those of the parts of a capture can be merged.
    """

    piece_ns = PIECE_NS

    pieces: dict[int, int] = joined(_busiest, dict)

    @property
    def busiest(self) -> int:
        """Occurrences in the busiest interval."""
        return max(self.pieces.values(), default=0)

    @property
    def peak(self) -> str:
        """``all within 10 seconds``, or ``240 of them within a minute``."""
        number = "all" if self.busiest == self.count else f"{self.busiest:,} of them"
        return f"{number} within {'a minute' if self.piece_ns == 60 * SECOND_NS else '10 seconds'}"

    def take(self, time_ns: int, exchange: str, count: int = 1) -> None:
        """Add occurrences by time and exchange ID."""
        Evidence.take(self, time_ns, exchange, count)
        _busiest(self.pieces, {time_ns // self.piece_ns: count})

    def add_noted(self, tally: Alike, noted: Noted) -> None:
        """Add occurrences in some of the exchanges of a tally."""
        Evidence.add_noted(self, tally, noted)
        for piece, count in sorted(noted.pieces):
            _busiest(self.pieces, {piece * PIECE_NS // self.piece_ns: count})


@summed
class Minutes(Bursts):
    """The same, in minutes."""

    piece_ns = 60 * SECOND_NS


# ------------------------------------------------------------------------------------------------------------


Scope: TypeAlias = "Mapping[str, list[str]]"
"""What a finding is about: kind (``client``, ``host``, ``broker``, ``topic`` ...) -> names, in order."""

_FORMS = {
    "node": " (node {})",
    "client": ", client {}",
    "host": " at {}",
    "proxy": ", proxy at {}",
    "principal": " as {}",
    "API": ", {}",
}
_HIDDEN = frozenset(
    {"acks", "denied", "error", "mechanism", "end"}
)  # said in the message, or used to relate findings


def _partition_label(name: str) -> str:
    topic, _, partition = name.rpartition("-")
    return f"{topic_label(type(name)(topic))}-{partition}"


_LABELS = {"client": client_label, "topic": topic_label, "partition": _partition_label}
_LISTED = 2


def subject(scope: Scope) -> str:
    """A scope in words: ``client scanner at 10.99.0.13, 3 brokers``."""
    text = ""
    for kind, names in scope.items():
        if kind in _HIDDEN or (kind in _COVERED_BY and (_COVERED_BY[kind] in scope) == (kind == "topic")):
            continue
        if kind == "node" and len(names) > 1:
            continue  # the brokers are named
        labels = [_LABELS.get(kind, str)(name) for name in names[:_LISTED]]
        if len(names) > 1:
            some = f": {' and '.join(labels)}" if len(names) == _LISTED else ""
            text += f", {len(names):,} {_PLURALS.get(kind, f'{kind}s')}{some}"
        elif kind == "host" and not scope.get("client"):
            text += f", client at {labels[0]}"
        elif kind == "host" and len(scope["client"]) > 1:
            text += f", all at {labels[0]}"
        else:
            text += _FORMS.get(kind, f", {kind} {{}}").format(labels[0])
    return text.removeprefix(", ")


def joined_scope(scopes: Sequence[Scope]) -> Scope:
    """What several findings are about."""
    kinds = dict.fromkeys(kind for scope in scopes for kind in scope)
    return {kind: sorted({name for scope in scopes for name in scope.get(kind, ())}) for kind in kinds}


_COVERED_BY = {"topic": "partition", "node": "broker"}
_PLURALS = {"proxy": "proxies", "host": "client addresses"}


@dataclass(slots=True)
class RulePart:
    """What a rule has found about one key.

    Attributes:
        until_ns: until when it explains others; None: until its last occurrence.
    """

    rule: Rule
    scope: Scope
    evidence: Evidence
    severity: str
    until_ns: int | None
    cluster_id: str | None = None


class Declared(ABC):
    """What a rule says of itself. Its docstring says why the problem matters.

    Attributes:
        name: as ``--list`` shows it.
        severity: usual severity of its findings.
        title: what it looks for.
        when: its threshold, and why it is not lower.
        advice: one sentence.
        command: that shows its findings.
    """

    __slots__ = ()

    name: ClassVar[str]
    severity: ClassVar[str]
    title: ClassVar[str]
    when: ClassVar[str]
    advice: ClassVar[str]
    command: ClassVar[str] = "summary --findings"

    @classmethod
    def row(cls) -> RuleRow:
        """Its description."""
        return row_of(RuleRow, cls, rule=cls.name)


@summed
class Rule(Summed, Declared):
    """A rule about the traffic.

    Attributes:
        of: what the elements of a key name, see ``Scope``.
        failed, cut, records, lost: what a finding cost: requests and connections that failed, records refused
            or not read, and the time lost, as attributes of the counts; a time ends in its unit. Empty: none,
            or not counted.
        is_event: whether it is about something that should not happen even once, whose cost is not counted.
        apart: findings with different names of this kind are not joined; empty: all of the rule are.
        takes: forms of tallies that it needs, see ``Tally``.
        apis: APIs of those that are no sums; empty: all.
        needs_flaws: whether it needs of those only exchanges with a flaw, see ``Facts``.
        follows: what else it needs to know: a class with ``takes``, ``apis``, ``needs_flaws`` and ``feed``.
        counts: type of the counts of a key.
        kept: key -> counts.
        followed: an instance of ``follows``, one for all rules of a set.
    """

    of: ClassVar[tuple[str, ...]] = ()
    failed: ClassVar[str] = ""
    cut: ClassVar[str] = ""
    records: ClassVar[str] = ""
    lost: ClassVar[str] = ""
    is_event: ClassVar[bool] = False
    apart: ClassVar[str] = ""
    takes: ClassVar[frozenset[str]] = frozenset({ONE})
    apis: ClassVar[frozenset[str]] = frozenset()
    needs_flaws: ClassVar[bool] = False
    follows: ClassVar[type[Any] | None] = None
    counts: ClassVar[Callable[[], Any]] = Evidence

    kept: Bounded[Any, Any] = merged()
    followed: Any = fed()

    def __init__(self, limits: Limits) -> None:
        self.kept = Bounded(limits.summary_rows, type(self).counts)
        self.followed = None

    def feed(self, tally: Any) -> None:
        """Add a tally, of the forms that it takes: ``Facts``, ``Alike`` or both. Some rules need none."""

    def connect(self, row: ConnectionLogRow) -> None:
        """Add a connection that has ended; most rules do not need them."""

    def resolved(self, response: Resolved) -> None:
        """Add a DNS response; most rules need none."""

    def findings(self) -> Iterator[RulePart]:
        """What it has found: the keys that it reports. Leaves the counts as they are."""
        for key, each in self.kept.items():
            if self._reports(each):
                yield self.part(key, each)

    def part(
        self, key: Any, evidence: Evidence, severity: str | None = None, *, until_ns: int | None = None
    ) -> RulePart:
        """A part of a finding; see ``RulePart``."""
        names = dict(zip(self.of, key if type(key) is tuple else (key,), strict=True))
        if "partition" in names:
            topic = names["topic"]
            names["partition"] = type(topic)(f"{topic}-{names['partition']}")
        scope = {
            kind: [name if isinstance(name, str) else str(name)]
            for kind, name in names.items()
            if name not in (None, "")
        }
        return RulePart(self, scope, evidence, severity or self._level(evidence), until_ns)

    def message(self, scope: Scope, each: Any) -> str:
        """What was counted, in words, without what it is about. Counts of several keys may be joined. Quotes
        what the broker says about the error.
        """
        message, quote = self._message(scope, each), each.explained[2]
        return f'{message}: "{quote}"' if quote else message

    def _reports(self, each: Any) -> bool:
        """Whether counts reach the threshold."""
        return bool(each.count)

    def _level(self, _: Any) -> str:
        """The severity of a finding with these counts."""
        return self.severity

    @abstractmethod
    def _message(self, scope: Scope, each: Any) -> str:
        """As ``message``, without the quote."""


def partitions_in(facts: Tally, body: Body | None) -> Iterator[tuple[tuple[str, int], Body]]:
    """The partitions in a message of an exchange, after their topics and indexes; -1 if a message names them
    in another way.
    """
    body = body or {}
    names = {} if facts.exemplar is None else facts.exemplar.topic_ids
    for topic in body.get("topics") or body.get("responses") or ():
        topic_id = topic.get("topic_id") or ""
        name = facts.kept(topic.get("topic_name") or topic.get("name") or names.get(topic_id, topic_id))
        for each in (topic.get("partitions") or ()) if name else ():
            yield (name, each.get("partition_index", -1)), each


ADVERTISING = frozenset({"Metadata", "FindCoordinator", "DescribeCluster"})
"""APIs whose responses name brokers."""


# ------------------------------------------------------------------------------------------------------------
# Metadata responses -> number of partitions and replicas of topics. Holds two numbers per topic.
# ------------------------------------------------------------------------------------------------------------


APIS = frozenset({"Metadata", "DescribeTopicPartitions"})


@summed
class TopicShape(Summed):
    """The most partitions and replicas that were reported."""

    partitions: int = largest()
    replicas: int = largest()


class Topics(Bounded[str, TopicShape]):
    """Topics by name, or by ID if the name is unknown."""

    def __init__(self, limits: Limits) -> None:
        super().__init__(limits.summary_rows, TopicShape)
        self._limits = limits

    def __reduce__(self) -> tuple[object, ...]:
        return Topics, (self._limits,), None, None, iter(self.items())

    def learn(self, tally: Tally) -> None:
        """Add the topics of a response."""
        if (exemplar := tally.exemplar) is None:
            return
        for entry in (exemplar.response or {}).get("topics") or ():
            name = entry.get("name") or exemplar.topic_ids.get(entry.get("topic_id", ""))
            partitions = entry.get("partitions")
            if name and partitions:
                topic = self[name]
                topic.partitions = max(topic.partitions, len(partitions))
                topic.replicas = max(
                    topic.replicas, *(len(each.get("replica_nodes") or ()) for each in partitions)
                )
