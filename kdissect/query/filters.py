"""Filter options, as strings -> a test of exchanges. Holds the criteria, the date of the capture's first day,
and some names from exchanges that did not match, for suggestions after a typing mistake.

Criteria of one kind are combined with or, different kinds with and. Each text can be a list separated by
commas, and an element can begin with ``!``, see ``NameTest``:

api            ``Fetch``, ``find-coordinator``, ``FIND_COORDINATOR``, ``10``, former names, ``*Group``
topic          a name, an ID, or a glob: ``orders-*``; includes requests about its configs or ACLs
partition      ``orders-3``, ``orders:3``, or ``3``: of the selected topics, or of any
client         a client ID, a glob, or an address: ``10.0.0.5``, ``10.0.0.5:41234``
group          a group ID or a glob
error          ``NOT_LEADER_OR_FOLLOWER``, ``6``, or a glob: ``*`` is any error, ``serious`` any that is
               not a normal step of the protocol
kind           ``answered``, ``unanswered``, ``unacknowledged``, ``orphan``
slower_than    a latency with its unit, ``50ms``; exchanges without a response do not match
bigger_than    bytes of the request or response frame: ``1MB`` is 1,000,000, ``1MiB`` 1,048,576
since, until   ``2026-11-21T09:05:00.5Z``, a date, seconds since 1970, or ``09:05`` of the capture's first
               day; UTC without a zone. ``since`` is inclusive, ``until`` is exclusive. They are compared with
               the time of the request, or of the records (``Filter.use_record_times``).
connection     a prefix of a connection ID
"""

from __future__ import annotations

import re
import sys
from bisect import bisect_left
from datetime import UTC, datetime, timedelta, timezone
from fnmatch import translate
from functools import partial
from itertools import chain, starmap
from math import ceil, floor, isfinite
from operator import attrgetter
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from kdissect.errors import UsageError
from kdissect.exchanges import content
from kdissect.exchanges.memory import memory_plan
from kdissect.exchanges.topic_names import topic_refs
from kdissect.exchanges.undecoded import mentions_plan
from kdissect.kafka import apis, codes, vendors
from kdissect.limits import SECOND_NS
from kdissect.model import ANSWERED, KINDS, NOT_EXPECTED, PENDING, UNACKNOWLEDGED, Exchange, LatencyParts
from kdissect.names import kept
from kdissect.nearest import did_you_mean
from kdissect.phrases import between, many
from kdissect.query.where import ADDED_FIELDS, COMPARISONS, depth, is_true, names
from kdissect.sinks.plan import MAX_INT64, MIN_INT64, Conditions

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

    from kdissect.exchanges.undecoded import FieldPath
    from kdissect.model import ConnectionInfo, Frame
    from kdissect.query.where import Comparison, Where, WherePart
    from kdissect.sinks.plan import CoreTest, Identity, PartitionTest, PlanContext


if TYPE_CHECKING:
    Test = Callable[[Exchange], bool]
    TextTest = Callable[[str], bool]
    ValueTest = Callable[[Any], bool]
    Value = TypeVar("Value")

_SERIOUS = "SERIOUS"
"""Stands for all errors that are not expected."""

_FRAME_SIZE_BYTES = 4
_PARTITION = re.compile(r"(?:(?P<topic>.+)[:-])?(?P<number>\d{1,10})", re.ASCII)
_PATTERN = re.compile(r"[*?\[]")
_ELEMENT = re.compile(r"(?:\\.|[^,])+", re.DOTALL)  # elements of a list separated by commas
_ESCAPED = re.compile(r"\\(.)", re.DOTALL)
_TOPIC_ID = re.compile(r"[\w-]{22}", re.ASCII)
_MAX_NAMES = 1000  # kept of each kind: enough for suggestions, and little memory


_OF_CLIENT = frozenset(
    {"api", "api_key", "api_version", "kind", "outcome", "connection", "client", "client_id"}
    | {"client_ip", "client_port", "broker_ip", "broker_port", "hop_ip", "hop_port", "proxy", "community_id"}
    | {"client_software_name", "client_software_version", "principal", "sasl_mechanism"}
)
"""Names in an expression that stand for the same in all exchanges of a kind, API, version and client, as far
as the native core knows them.
"""
_MAX_OF_CLIENT = 63
"""Most tests of these: their results are bits of a number."""
_NUMBERS = {
    "latency": "latency_us",
    **{
        name: name
        for name in (
            *("latency_us", "request_bytes", "response_bytes", "request_transfer_us", "response_transfer_us"),
            *("total_us", "number", "packet", "correlation_id", *LatencyParts._fields, "think_us"),
        )
    },
}
"""Names that stand for numbers that the core knows, by what it calls them (core/src/sinks/conditions.rs)."""
_MENTIONS = ("topic", "topics", "group", "group_id")
"""Names that stand for names in the bodies."""
_BODIES = ("request.", "response.")
_OF_PARTS = frozenset({*LatencyParts._fields, "think_us"})
"""Names that stand for parts of the latency."""
_ERRORS = frozenset({"error", "errors", "expected_errors"})
_OF_ANY = frozenset({*COMPARISONS, "=~", "has"} - {"not in"})
"""Signs of comparisons that are true of a list if they are true of any element."""
_LEFT: CoreTest = ("left",)
"""A test that Python makes."""
_COSTS = {"of_client": 0, "number": 1, "errors": 2, "mentions": 3, "values": 3, "left": 4}
_NOTHING, _SELECTED, _EXCLUDED = range(3)
"""What a name in an exchange says of it."""
_ALL = MIN_INT64, MAX_INT64
_LAST = chr(sys.maxunicode)
_INEQUALITIES: Mapping[str, Callable[[float], tuple[int, int]]] = {
    "<": lambda constant: (MIN_INT64, ceil(constant) - 1),
    "<=": lambda constant: (MIN_INT64, floor(constant)),
    ">": lambda constant: (floor(constant) + 1, MAX_INT64),
    ">=": lambda constant: (ceil(constant), MAX_INT64),
}
"""Sign -> the whole numbers of which a comparison with a constant is true."""

_FLAWLESS: Any = Exchange(None, 0, ANSWERED, None, None, None, None, None, errors=[])  # type: ignore[arg-type]
"""Stands for all exchanges without errors."""

_LISTED = frozenset({"topic", "client", "group"})  # kinds of names that ``summary --by`` has rows for


class NameKind(NamedTuple):
    """Names of one kind that were requested, such as topics.

    Attributes:
        noun: the kind, for messages.
        texts: the requested names, as typed.
        names: returns the names of that kind in an exchange.
    """

    noun: str
    texts: Sequence[str]
    names: Callable[[Exchange], Iterable[str | None]]


class FilterNotes:
    """Notes about exchanges, to explain the result of a filter.

    Attributes:
        unmatched: names in exchanges that did not match, for each requested kind of names.
        unnamed: exchanges with topic IDs whose name is not known, if the filter compares names of topics.
        unnamed_ids: these IDs.
        first_ns, last_ns: times of exchanges outside the time range; None: there are none.
        has_time: whether an exchange is inside it.
    """

    __slots__ = ("first_ns", "has_time", "last_ns", "unmatched", "unnamed", "unnamed_ids")

    def __init__(self, kinds: int) -> None:
        self.unmatched: list[set[str]] = [set() for _ in range(kinds)]
        self.unnamed = 0
        self.unnamed_ids: set[str] = set()
        self.first_ns: int | None = None
        self.last_ns: int | None = None
        self.has_time = False

    def note_time(self, first_ns: int, last_ns: int) -> None:
        """Note times outside the time range."""
        self.first_ns = first_ns if self.first_ns is None else min(self.first_ns, first_ns)
        self.last_ns = last_ns if self.last_ns is None else max(self.last_ns, last_ns)

    def merge(self, other: FilterNotes) -> None:
        """Add the notes of the same filter in another process."""
        for unmatched, more in zip(self.unmatched, other.unmatched, strict=True):
            unmatched |= more
        self.unnamed += other.unnamed
        self.unnamed_ids |= other.unnamed_ids
        self.has_time |= other.has_time
        if other.first_ns is not None and other.last_ns is not None:
            self.note_time(other.first_ns, other.last_ns)


class _CoreTests:
    """The same criteria for the native core, as far as it can make the tests.

    Attributes:
        of_header, of_bodies: all must be true.
        of_client: the tests of an exchange that ``("of_client", place)`` stands for in them.
        mentioned: which of ``_MENTIONS``, and ``partition``, they are about.
        fields: of bodies, that they are about.
    """

    __slots__ = ("fields", "mentioned", "of_bodies", "of_client", "of_header")

    def __init__(self) -> None:
        self.of_header: list[CoreTest] = []
        self.of_bodies: list[CoreTest] = []
        self.of_client: list[Callable[[Exchange], Any]] = []
        self.mentioned: set[str] = set()
        self.fields: list[FieldPath] = []

    @property
    def decide(self) -> bool:
        """Whether they decide anything."""
        return any(test != _LEFT for test in (*self.of_header, *self.of_bodies))

    def client(self, test: Callable[[Exchange], Any]) -> CoreTest:
        """A test that depends on nothing but ``_OF_CLIENT``."""
        if len(self.of_client) == _MAX_OF_CLIENT:
            return _LEFT
        self.of_client.append(test)
        return "of_client", len(self.of_client) - 1

    def mention(self, kind: str, classify: Callable[[str, int | None], int]) -> CoreTest:
        """A test of what bodies mention. ``classify``: from a name, and the number of a partition, to
        ``_NOTHING`` or ``_SELECTED``.
        """
        self.mentioned.add(kind)
        return "mentions", kind, classify, (False, False)

    def names(self, kind: str, names: NameTest) -> CoreTest:
        """A test of all names of a kind."""
        self.mentioned.add(kind)
        return "mentions", kind, names.verdict, (names.any_in(()), names.may_exclude)

    def of(self, part: WherePart, of_values: WherePart) -> CoreTest:
        """The test that is part of an expression, see ``Where.of_values``. The cheapest come first."""
        if part.names <= _OF_CLIENT:
            return self.client(part.get)
        if part.names <= _ERRORS:
            return "errors", is_true(part.get(_FLAWLESS))
        if not part.operator and all(name in _OF_CLIENT or name.startswith(_BODIES) for name in part.names):
            return self.of_fields(part, of_values)
        if part.operator:
            tests = list(map(self.of, part.parts, of_values.parts))
            if all(test == _LEFT for test in tests):
                return _LEFT
            if part.operator == "not":
                return "not", *tests
            return part.operator, sorted(tests, key=lambda test: _COSTS.get(test[0], _COSTS["mentions"]))
        comparison, test = part.comparison, _LEFT
        if comparison is not None:
            if number := _NUMBERS.get(comparison.name):
                test = _number_test(number, comparison)
            elif comparison.name == "time":
                test = _time_test(comparison)
            elif comparison.name in _MENTIONS and _is_false_if_absent(comparison):
                test = self.mention(comparison.name, _classify(comparison))
        return self.values(part, of_values) if test == _LEFT else test

    def values(self, part: WherePart, of_values: WherePart) -> CoreTest:
        """A test of values that the core knows."""
        names = sorted(part.names)
        sources: list[tuple[str, str | int]] = []
        for name in names:
            head, _, path = name.partition(".")
            if name in _NUMBERS:
                sources.append(("number", _NUMBERS[name]))
            elif name in _MENTIONS:
                self.mentioned.add(name)
                sources.append(("mention", name))
            elif path and f"{head}." in _BODIES and ADDED_FIELDS.isdisjoint(path.split(".")):
                field = head == "request", tuple(path.split("."))
                if field not in self.fields:
                    self.fields.append(field)
                sources.append(("field", self.fields.index(field)))
            else:
                return _LEFT
        if not sources:
            return _LEFT
        is_selected = of_values.get
        comparison = part.comparison
        ranges = None if comparison is None else _ranges_of_any(comparison)
        return (
            "values",
            sources,
            ranges,
            lambda values: is_true(is_selected(dict(zip(names, values, strict=True)))),
        )

    def of_fields(self, part: WherePart, of_values: WherePart) -> CoreTest:
        """A part about fields of bodies. Most APIs do not have them: then it depends on the client."""
        comparison = part.comparison
        is_false_if_absent = comparison is not None and _is_false_if_absent(comparison)
        paths = [
            (head, path.split(".")) for head, _, path in (name.partition(".") for name in part.names) if path
        ]

        def may_have(exchange: Exchange) -> bool:
            """Of an array that lacks the field, the value is a list."""
            key = exchange.api_key
            return key is None or any(
                depth(names(message, key), path) >= (len(path) if is_false_if_absent else 1)
                for message, path in paths
            )

        def is_true_without(exchange: Exchange) -> bool:
            return not may_have(exchange) and is_true(part.get(exchange))

        without = self.client(is_true_without)
        return "or", [without, ("and", [self.client(may_have), self.values(part, of_values)])]


def _is_false_if_absent(comparison: Comparison) -> bool:
    """Whether a comparison is false of an absent value, and of a list true if it is of any element."""
    return comparison.sign in _OF_ANY and None not in comparison.constants


def _classify(comparison: Comparison) -> Callable[[str, int | None], int]:
    """The test of one name, alone or in a list."""
    is_selected = comparison.is_true
    if comparison.name == "group_id":
        return lambda name, _: _SELECTED if is_selected(name) else _NOTHING
    return lambda name, _: _SELECTED if is_selected([name]) else _NOTHING


def _number_test(number: str, comparison: Comparison) -> CoreTest:
    """Of numbers in or not in some ranges."""
    _, sign, constants, *_ = comparison
    if None in constants:
        if sign not in ("==", "!="):
            return _LEFT
        is_absent = sign == "=="
        return "number", number, [] if is_absent else [_ALL], is_absent
    whole = _whole_ranges(comparison)
    if whole is None:
        return _LEFT
    test = _in_ranges(number, whole)
    return ("not", (*test[:3], True)) if sign in ("!=", "not in") else test


def _whole_ranges(comparison: Comparison) -> list[tuple[int, int]] | None:
    """The whole numbers that a comparison selects, of ``!=`` and ``not in`` those that it does not; constants
    may have fractions. None: it is about something else.
    """
    _, sign, constants, ranges, *_ = comparison
    ranges = [*ranges, *((each, each) for each in constants)]
    if not all(map(_is_finite, chain.from_iterable(ranges))):
        return None
    if sign in _INEQUALITIES:
        return [_INEQUALITIES[sign](*constants)]
    if sign not in ("==", "in", "!=", "not in"):
        return None
    return [(ceil(first), floor(last)) for first, last in ranges]


def _ranges_of_any(comparison: Comparison) -> list[tuple[int, int]] | None:
    """The ranges, if a comparison is true of numbers in one of them, and of lists with such numbers."""
    ranges = _whole_ranges(comparison) if comparison.sign in _OF_ANY and comparison.sign != "!=" else None
    return None if ranges is None else _within_64_bits(ranges)


def _time_test(comparison: Comparison) -> CoreTest:
    """Of the time, which is compared as text, in microseconds: in or not in some ranges."""
    _, sign, constants, ranges, _, value = comparison
    if not all(type(each) is str for each in (*constants, *chain.from_iterable(ranges))):
        return _LEFT

    def first_ns(is_reached: Callable[[str], bool]) -> int:
        times_us = range(MIN_INT64 // 1000, MAX_INT64 // 1000 + 1)
        place = bisect_left(
            times_us, True, key=lambda time_us: is_reached(value(SimpleNamespace(time_ns=time_us * 1000)))
        )
        return (times_us.start + place) * 1000

    def within(first: str, last: str) -> tuple[int, int]:
        return first_ns(lambda text: text >= first), first_ns(lambda text: text > last) - 1

    if sign in _INEQUALITIES:
        (constant,) = constants
        is_past = {">=": constant.__le__, "<": constant.__le__, ">": constant.__lt__, "<=": constant.__lt__}
        border_ns = first_ns(is_past[sign])
        return _in_ranges("time_ns", [(border_ns, MAX_INT64) if ">" in sign else (MIN_INT64, border_ns - 1)])
    if sign == "startswith":
        return _in_ranges("time_ns", [within(each, f"{each}{_LAST}") for each in constants])
    if sign not in ("==", "in", "!=", "not in"):
        return _LEFT
    test = _in_ranges("time_ns", [*starmap(within, ranges), *(within(each, each) for each in constants)])
    return ("not", test) if sign in ("!=", "not in") else test


def _is_finite(end: object) -> bool:
    return type(end) is int or (type(end) is float and isfinite(end))


def _in_ranges(number: str, ranges: Iterable[tuple[int, int]]) -> CoreTest:
    return "number", number, _within_64_bits(ranges), False


def _within_64_bits(ranges: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    low, high = _ALL
    within = [(max(first, low), min(last, high)) for first, last in ranges]
    return [(first, last) for first, last in within if first <= last]


class Filter:
    """All criteria of a run; without any, everything matches.

    Attributes:
        is_about_topics: whether a criterion compares names of topics.
        is_partition: which partitions of the exchanges were requested; None: any.
        may_exclude_ids: whether it may exclude partitions by the IDs of their topics.
        notes: what was noted so far.
    """

    __slots__ = (
        "_body_tests", "_core_tests", "_header_tests", "_name_kinds", "_needs_content", "_requested",
        "_splits", "_time_ns", "_window", "is_about_topics", "is_partition", "may_exclude_ids", "notes",
    )  # fmt: skip

    def __init__(
        self,
        header_tests: Sequence[Test] = (),
        body_tests: Sequence[Test] = (),
        window: TimeWindow | None = None,
        name_kinds: Sequence[NameKind] = (),
        *,
        is_about_topics: bool = False,
        is_partition: PartitionTest | None = None,
        may_exclude_ids: bool = False,
        core_tests: _CoreTests | None = None,
        needs_content: bool = True,
        splits: bool = False,
    ) -> None:
        self._splits = splits  # whether the core must split latencies
        self._header_tests = tuple(header_tests)
        self._core_tests = core_tests
        self._needs_content = needs_content
        self._body_tests = (self._note_unnamed, *body_tests) if is_about_topics else tuple(body_tests)
        self._window = window
        self._time_ns: Callable[[Exchange], int] = attrgetter("time_ns")
        self._name_kinds = tuple(name_kind for name_kind in name_kinds if name_kind.texts)
        self._requested = frozenset(text for name_kind in name_kinds for text in name_kind.texts)
        self.is_about_topics = is_about_topics
        self.is_partition = is_partition
        self.may_exclude_ids = may_exclude_ids
        self.notes = FilterNotes(len(self._name_kinds))

    @property
    def is_empty(self) -> bool:
        """Whether everything matches."""
        return not (self._header_tests or self._body_tests or self._window)

    @property
    def needs_bodies(self) -> bool:
        """Whether ``matches`` needs decoded bodies."""
        return bool(self._body_tests)

    def use_record_times(self) -> None:
        """Compare ``since`` and ``until`` with the time at which an exchange carried its records."""
        self._time_ns = content.record_time_ns

    def begin(self, time_ns: int) -> None:
        """Set the start of the capture: clock times refer to that day; default: the first exchange."""
        if self._window is not None:
            self._window.begin(time_ns)

    def matches_header(self, exchange: Exchange) -> bool:
        """Whether the criteria that need no decoded body match; if not, the exchange need not be decoded."""
        if self._window is not None:
            time_ns = self._time_ns(exchange)
            if not self._window.contains(time_ns):
                self.notes.note_time(time_ns, time_ns)
                return False
            self.notes.has_time = True
        return all(test(exchange) for test in self._header_tests)

    def matches(self, exchange: Exchange) -> bool:
        """Whether all criteria match."""
        return self.matches_header(exchange) and all(test(exchange) for test in self._body_tests)

    @property
    def is_simple(self) -> bool:
        """Whether ``matches`` needs no more of bodies than errors."""
        return self._core_tests is not None and not self._needs_content

    @property
    def is_decidable(self) -> bool:
        """Whether the native core can decide which exchanges match, or at least of some that they do not."""
        tests = self._core_tests
        return tests is not None and (self._window is not None or tests.decide)

    def conditions(self, context: PlanContext) -> Conditions:
        """The same criteria for the native core, if this ``is_decidable``. They note the names of all
        clients, and of topics and groups if such are requested. To be called after ``begin``, if there is any
        packet.
        """
        tests = self._core_tests
        assert tests is not None

        def of_client(
            info: ConnectionInfo,
            identity: Identity,
            is_answered: bool,
            api_key: int,
            api_version: int,
            client_id: str | None,
        ) -> int:
            api, kind = apis.by_key(api_key), ANSWERED if is_answered else UNACKNOWLEDGED
            exchange = Exchange(
                info, 0, kind, None, None, api_key, api_version, None, client_id, api.name if api else None,
                0, *identity,
            )  # fmt: skip
            self.note_unmatched(exchange)  # it has no bodies, so these are names of clients
            return sum(is_true(test(exchange)) << place for place, test in enumerate(tests.of_client))

        def note_name(noun: str, name: str) -> None:
            for name_kind, unmatched in zip(self._name_kinds, self.notes.unmatched, strict=True):
                if name_kind.noun == noun and len(unmatched) < _MAX_NAMES:
                    unmatched.add(kept(name))

        return Conditions(
            tests.of_header,
            tests.of_bodies,
            of_client,
            partial(mentions_plan, frozenset(tests.mentioned), tuple(tests.fields), self._splits),
            memory_plan(context.splitters) if self._splits else None,
            context.names.name,
            context.limits.decoded_bytes,
            note_name,
            [name_kind.noun for name_kind in self._name_kinds if name_kind.noun in _MENTIONS],
            self._note_ids if self.is_about_topics else None,
            (MIN_INT64, MAX_INT64) if self._window is None else self._window.bounds_ns,
            self._time_ns is content.record_time_ns,
            None if self._window is None else self._note_times,
        )

    def _note_times(self, outside_ns: tuple[int, int] | None, is_any_inside: bool) -> None:
        if outside_ns is not None:
            self.notes.note_time(*outside_ns)
        self.notes.has_time |= is_any_inside

    def note_unmatched(self, exchange: Exchange) -> None:
        """Note the names in an exchange that did not match."""
        for name_kind, unmatched in zip(self._name_kinds, self.notes.unmatched, strict=True):
            if len(unmatched) < _MAX_NAMES:
                unmatched.update(map(kept, filter(None, name_kind.names(exchange))))

    def unmet(self) -> str:
        """The requested names that never occurred, with suggestions: ``no topic "order"; did you mean
        "orders"?``, and from when to when exchanges are if all are outside the time range. Empty if neither.
        """
        messages = []
        if not self.notes.has_time and self.notes.first_ns is not None and self.notes.last_ns is not None:
            first, last = (
                _EPOCH + timedelta(microseconds=ns // 1000)
                for ns in (self.notes.first_ns, self.notes.last_ns)
            )
            messages.append(f"the capture has exchanges from {between(first, last, digits=3)}")
        for name_kind, unmatched in zip(self._name_kinds, self.notes.unmatched, strict=True):
            if not any(map(NameTest(name_kind.texts), unmatched)):
                quoted = ", ".join(f'"{text}"' for text in name_kind.texts)
                hint = did_you_mean(name_kind.texts[0], sorted(unmatched))
                if not hint and name_kind.noun in _LISTED:
                    hint = f"; kdissect summary --by {name_kind.noun} lists {name_kind.noun}s"
                messages.append(f"no {name_kind.noun} {quoted}{hint}")
        return "; ".join(messages)

    def unnamed_topics(self) -> str:
        """How many exchanges have topic IDs that could not be compared with names. Empty if none has."""
        ids = self.notes.unnamed_ids
        if not ids:
            return ""
        count, example = many(len(ids), "topic ID"), f"{min(ids)}{', ...' if len(ids) > 1 else ''}"
        exchanges = many(self.notes.unnamed, "exchange")
        return f"the filter could not check {exchanges}: no name for {count} ({example})"

    def _note_unnamed(self, exchange: Exchange) -> bool:
        """Note topic IDs without a name; always true."""
        self._note_ids([each for each in topic_refs(exchange).keys if each not in exchange.topic_ids])
        return True

    def _note_ids(self, ids: Sequence[str]) -> None:
        """Note the topic IDs of an exchange that have no name, unless they were requested."""
        ids = [each for each in ids if each not in self._requested]
        if ids:
            self.notes.unnamed += 1
            if len(self.notes.unnamed_ids) < _MAX_NAMES:
                self.notes.unnamed_ids.update(ids)


class TimeWindow:
    """From ``since`` to ``until``; clock times are resolved with the capture's first day."""

    __slots__ = ("_end_ns", "_since", "_start_ns", "_until")

    def __init__(self, since: Sequence[Moment], until: Sequence[Moment]) -> None:
        self._since = since
        self._until = until
        self._start_ns: float | None = None
        self._end_ns: float = 0

    def begin(self, time_ns: int) -> None:
        """Fix the day of clock times; only the first call counts."""
        if self._start_ns is None:
            day_ns = time_ns - time_ns % DAY_NS
            self._start_ns = min((_on_day(moment, day_ns) for moment in self._since), default=-float("inf"))
            self._end_ns = max((_on_day(moment, day_ns) for moment in self._until), default=float("inf"))

    @property
    def bounds_ns(self) -> tuple[int, int]:
        """Its start and end, within 64 bits. Unlimited before ``begin``."""
        if self._start_ns is None:
            return MIN_INT64, MAX_INT64
        start_ns, end_ns = (max(MIN_INT64, min(each, MAX_INT64)) for each in (self._start_ns, self._end_ns))
        return int(start_ns), int(end_ns)

    def contains(self, time_ns: int) -> bool:
        """Whether a point in time is in the window."""
        if self._start_ns is None:
            self.begin(time_ns)
        assert self._start_ns is not None
        return self._start_ns <= time_ns < self._end_ns


def _on_day(moment: Moment, day_ns: int) -> int:
    return moment.ns if moment.dated else day_ns + moment.ns


def build(
    *,
    api: Iterable[str] = (),
    topic: Iterable[str] = (),
    partition: Iterable[str] = (),
    client: Iterable[str] = (),
    group: Iterable[str] = (),
    error: Iterable[str] = (),
    kind: Iterable[str] = (),
    slower_than: Iterable[str] = (),
    bigger_than: Iterable[str] = (),
    since: Iterable[str] = (),
    until: Iterable[str] = (),
    connection: Iterable[str] = (),
    where: Where | None = None,
) -> Filter:
    """A filter of these criteria; see the module docstring.

    Raises:
        UsageError: a criterion is invalid or names something unknown; the message has a suggestion.
    """
    header_tests: list[Test] = []
    body_tests: list[Test] = []
    core_tests = _CoreTests()
    of_header, of_bodies = core_tests.of_header, core_tests.of_bodies
    of_client: list[Test] = []
    if is_kind := _values(kind, _kinds):
        of_client.append(lambda exchange: is_kind(exchange.kind))
    if is_api := _values(api, _apis):
        of_client.append(lambda exchange: is_api(exchange.api))
    if ids := tuple(connection):
        of_client.append(_connection(ids))
    if clients := tuple(client):
        of_client.append(_client(clients))
    if of_client:
        of_header.append(core_tests.client(lambda exchange: all(test(exchange) for test in of_client)))
    min_ns = min(map(parse_duration, slower_than), default=None)
    if min_ns is not None:
        header_tests.append(_slower_than(min_ns))
        of_header.append(_in_ranges("latency_ns", [(min_ns + 1, MAX_INT64)]))
    min_bytes = min(map(parse_size, bigger_than), default=None)
    if min_bytes is not None:
        header_tests.append(_bigger_than(min_bytes))
        more = [(min_bytes + 1, MAX_INT64)]
        of_header.append(("or", [_in_ranges(number, more) for number in ("request_bytes", "response_bytes")]))
    is_error = _error_names(tuple(error))
    if groups := tuple(group):
        is_group = NameTest(groups)
        body_tests.append(lambda exchange: is_group.any_in(content.groups(exchange)))
        of_bodies.append(core_tests.names("group", is_group))
    topics = tuple(topic)
    partition = tuple(partition)
    partitions = _partitions(partition)
    body_tests += _topic_tests(topics, partitions, core_tests)
    if where is not None:
        (body_tests if where.needs_bodies else header_tests).append(where.matches)
        (of_bodies if where.needs_bodies else of_header).append(core_tests.of(where.whole, where.of_values))
    name_kinds = (
        NameKind("topic", topics, named_topics),
        NameKind("client", clients, client_names),
        NameKind("group", groups, content.groups),
    )
    is_about_topics = (
        bool(topics)
        or any(each.is_topic is not None for each in partitions)
        or (where is not None and not where.names.isdisjoint(("topic", "topics")))
    )
    window = _window(tuple(since), tuple(until))
    is_partition = partition_test(topics, partition) if topics or partitions else None
    needs_content = bool(body_tests)
    if is_error is not None:
        body_tests.append(_error_test(is_error))
        of_bodies.append(("errors", is_error.any_in(())))
    return Filter(
        [*of_client, *header_tests],
        body_tests,
        window,
        name_kinds,
        is_about_topics=is_about_topics,
        is_partition=is_partition,
        may_exclude_ids=any(
            names.may_exclude_ids
            for names in (NameTest(topics), *(each.is_topic for each in partitions))
            if names is not None
        ),
        core_tests=core_tests,
        needs_content=needs_content,
        splits=where is not None and not where.names.isdisjoint(_OF_PARTS),
    )


def _window(since: Sequence[str], until: Sequence[str]) -> TimeWindow | None:
    start, end = [parse_moment(text) for text in since], [parse_moment(text) for text in until]
    if start and end and len({moment.dated for moment in (*start, *end)}) == 1 and min(start) >= max(end):
        raise UsageError(f"empty time range: since {' or '.join(since)}, until {' or '.join(until)}")
    return TimeWindow(start, end) if start or end else None


class NameTest:
    """Tests names against texts: each is a name, a glob (``*``, ``?``, ``[abc]``), or a list separated by
    commas. ``!`` in front of one excludes what it matches; if all exclude, the rest matches. A backslash
    takes the special meaning from the next character. A name that equals a whole text matches. Names and
    texts of more than 1 KB are compared as they are ``kept``.

    Attributes:
        may_exclude_ids: whether it may exclude the ID of a topic, which can be any glob's.
    """

    __slots__ = ("_excluded", "_included", "may_exclude_ids")

    def __init__(self, texts: Sequence[str]) -> None:
        terms = [term for text in texts for term in _terms(text)]
        included = [term for term in terms if not term.excludes]
        excluded = [term for term in terms if term.excludes]
        self._included = _matcher(included, texts) if included or not excluded else None
        self._excluded = _matcher(excluded, ()) if excluded else None
        self.may_exclude_ids = any(
            term.glob is not None or _TOPIC_ID.fullmatch(term.text) for term in excluded
        )

    def __call__(self, name: str) -> bool:
        """Whether a name matches."""
        return self.any_in((name,))

    @property
    def may_exclude(self) -> bool:
        """Whether a name may exclude what others select."""
        return self._excluded is not None

    def verdict(self, name: str, _: int | None = None) -> int:
        """What one of several names says, see ``_NOTHING``."""
        if self._excluded is not None and self._excluded(name):
            return _EXCLUDED
        return _SELECTED if self._included is not None and self._included(name) else _NOTHING

    def any_in(self, names: Collection[str]) -> bool:
        """Whether one of several names of the same thing matches, and none is excluded."""
        if self._excluded is not None and any(map(self._excluded, names)):
            return False
        return self._included is None or any(map(self._included, names))


class _Term(NamedTuple):
    """One element of a list.

    Attributes:
        text: without the backslashes.
        glob: for ``fnmatch``; None: the text is a name.
        excludes: whether it began with ``!``.
    """

    text: str
    glob: str | None
    excludes: bool


def _terms(text: str) -> list[_Term]:
    """The elements of a list."""
    return [_term(element) for element in _ELEMENT.findall(text)]


def _term(element: str) -> _Term:
    excludes = element.startswith("!")
    element = element.removeprefix("!")
    is_glob = _PATTERN.search(_ESCAPED.sub("", element)) is not None
    glob = _ESCAPED.sub(lambda escaped: f"[{escaped[1]}]" if escaped[1] in "*?[" else escaped[1], element)
    return _Term(_ESCAPED.sub(r"\1", element), glob if is_glob else None, excludes)


def _matcher(terms: Sequence[_Term], texts: Sequence[str]) -> TextTest:
    exact = frozenset(map(kept, (*texts, *(term.text for term in terms))))
    globs = [translate(term.glob) for term in terms if term.glob is not None]
    if not globs:
        return lambda text: kept(text) in exact
    matches = re.compile("|".join(globs)).match
    return lambda text: kept(text) in exact or matches(text) is not None or matches(kept(text)) is not None


def _values(texts: Iterable[str], to_value: Callable[[_Term], Iterable[Value]]) -> ValueTest | None:
    """A test of values that are known by name, such as APIs; None: there are no texts."""
    included: set[Any] = set()
    excluded: set[Any] = set()
    terms = [term for text in texts for term in _terms(text)]
    for term in terms:
        (excluded if term.excludes else included).update(to_value(term))
    if not terms:
        return None
    if not included:
        return lambda value: value not in excluded
    return (included - excluded).__contains__


def _known(term: _Term, names: Sequence[str], noun: str) -> list[str]:
    """The known names that a glob matches, in any case.

    Raises:
        UsageError: there is none.
    """
    assert term.glob is not None
    matches = re.compile(translate(term.glob), re.IGNORECASE).match
    matching = [name for name in names if matches(name)]
    if not matching:
        raise UsageError(f'no {noun} matches "{term.text}"')
    return matching


def _apis(term: _Term) -> list[str]:
    if term.glob is not None:
        return _known(term, [*apis.names(), *vendors.names()], "API name")
    return vendors.find(term.text) or [apis.find(term.text).name]


def _kinds(term: _Term) -> list[str]:
    if term.glob is not None:
        return _known(term, KINDS, "kind")
    if (kind := term.text.lower()) in (PENDING, NOT_EXPECTED):
        raise UsageError(f"{kind} is an outcome, not a kind; use -Y 'outcome == \"{kind}\"'")
    if kind not in KINDS:
        hint = did_you_mean(term.text, KINDS) or f"; known: {', '.join(KINDS)}"
        raise UsageError(f'unknown kind "{term.text}"{hint}')
    return [kind]


def _connection(texts: Sequence[str]) -> Test:
    is_connection = NameTest([f"{prefix}*" for text in texts for prefix in _ELEMENT.findall(text)])
    return lambda exchange: is_connection(exchange.connection.id)


def _slower_than(min_ns: int) -> Test:
    def is_slower(exchange: Exchange) -> bool:
        request, response = exchange.request_frame, exchange.response_frame
        return request is not None and response is not None and response.start_ns - request.end_ns > min_ns

    return is_slower


def _bigger_than(min_bytes: int) -> Test:
    def is_bigger(frame: Frame | None) -> bool:
        return frame is not None and frame.size + _FRAME_SIZE_BYTES > min_bytes

    return lambda exchange: is_bigger(exchange.request_frame) or is_bigger(exchange.response_frame)


def _client(texts: Sequence[str]) -> Test:
    is_name = NameTest(texts)
    return lambda exchange: is_name.any_in(client_names(exchange))


def client_names(exchange: Exchange) -> list[str]:
    """The names of a client: client ID, IP address, address and port."""
    end = exchange.connection.client
    return [name for name in (exchange.client_id, end.ip, str(end)) if name is not None]


def _error_names(texts: Sequence[str]) -> NameTest | None:
    """A test of names of errors; a glob also matches errors newer than kdissect. None: any match."""
    return NameTest([_error_element(term) for text in texts for term in _terms(text)]) if texts else None


def _error_test(is_error: NameTest) -> Test:
    """A test of the errors of a response."""

    def has_any(exchange: Exchange) -> bool:
        names = content.errors(exchange)
        is_serious = len(names) > len(exchange.expected_errors)
        return is_error.any_in([*names, _SERIOUS] if is_serious else names)

    return has_any


def _error_element(term: _Term) -> str:
    if term.text.upper() == _SERIOUS:
        name = _SERIOUS
    elif term.glob is None:
        name = codes.error_name(codes.error_code(term.text))
    else:
        _known(term, codes.error_names(), "error name")
        name = term.glob.upper()
    return f"!{name}" if term.excludes else name


class _Partition(NamedTuple):
    """A requested partition; without a topic, of the selected topics."""

    is_topic: NameTest | None
    number: int


def _partitions(texts: Iterable[str]) -> list[_Partition]:
    return [_partition(element) for text in texts for element in _ELEMENT.findall(text)]


def _partition(text: str) -> _Partition:
    match = _PARTITION.fullmatch(text)
    if match is None:
        raise UsageError(f'invalid partition "{text}": use 3 or orders-3')
    return _Partition(NameTest([match["topic"]]) if match["topic"] else None, int(match["number"]))


def _topic_tests(topics: Sequence[str], selected: Sequence[_Partition], core_tests: _CoreTests) -> list[Test]:
    is_selected_topic = NameTest(topics) if topics else None
    tests: list[Test] = []
    if is_selected_topic is not None:
        tests.append(lambda exchange: is_selected_topic.any_in(named_topics(exchange)))
        core_tests.of_bodies.append(core_tests.names("topic", is_selected_topic))
    if selected:

        def classify(topic: str, number: int | None) -> int:
            is_selected = number is not None and _is_selected((topic,), number, selected, is_selected_topic)
            return _SELECTED if is_selected else _NOTHING

        core_tests.of_bodies.append(core_tests.mention("partition", classify))
        tests.append(
            lambda exchange: any(
                _is_selected((topic,), number, selected, is_selected_topic)
                for topic, number in content.partitions(exchange)
            )
        )
    return tests


def partition_test(topics: Sequence[str], partitions: Sequence[str]) -> PartitionTest:
    """A test whether a partition is selected, from the same texts as ``build``.

    Raises:
        UsageError: invalid partition.
    """
    is_selected_topic = NameTest(topics) if topics else None
    selected = _partitions(partitions)

    def is_selected(names: Sequence[str], number: int) -> bool:
        if selected:
            return _is_selected(names, number, selected, is_selected_topic)
        return is_selected_topic is None or is_selected_topic.any_in(names)

    return is_selected


def named_topics(exchange: Exchange) -> list[str]:
    """Topics as shown, IDs of resolved topics, and topics whose configs or ACLs the request is about."""
    return [*content.topics(exchange), *exchange.topic_ids, *content.resource_topics(exchange)]


def _is_selected(
    names: Collection[str], number: int, selected: Sequence[_Partition], is_selected_topic: NameTest | None
) -> bool:
    for partition in selected:
        is_topic = partition.is_topic or is_selected_topic
        if partition.number == number and (is_topic is None or is_topic.any_in(names)):
            return True
    return False


# ------------------------------------------------------------------------------------------------------------
# ``50ms``, ``1MB``, ``2026-11-21T09:05Z`` -> integers.
# ------------------------------------------------------------------------------------------------------------


DAY_NS = 86_400 * SECOND_NS

_DURATIONS = {
    "ns": 1,
    "us": 1000,
    "µs": 1000,
    "ms": 1_000_000,
    "s": SECOND_NS,
    "m": 60 * SECOND_NS,
    "min": 60 * SECOND_NS,
    "h": 3600 * SECOND_NS,
    "d": DAY_NS,
}
# SI and IEC: k is 1000, Ki is 1024. Case-insensitive: millibytes and bits are unlikely.
_SIZES = {
    letter + binary + byte: (1024 if binary else 1000) ** power
    for power, letter in enumerate(("", "k", "m", "g", "t"))
    for binary in ("", "i")
    for byte in ("", "b")
    if letter or not binary
}

_AMOUNT = re.compile(r"\s*(?P<number>\d{1,18}(?:\.\d{1,9})?)\s*(?P<unit>[a-zµ]*)\s*", re.IGNORECASE)
_TIME = re.compile(
    r"\s*(?:(?P<date>\d{4}-\d\d-\d\d)[T ])?"
    r"(?P<hour>\d\d?):(?P<minute>\d\d)(?::(?P<second>\d\d)(?:[.,](?P<fraction>\d{1,9}))?)?"
    r"\s*(?:(?P<utc>Z)|(?P<sign>[+-])(?P<east>\d\d):?(?P<minutes>\d\d))?\s*",
    re.ASCII,
)
_DATE = re.compile(r"\s*\d{4}-\d\d-\d\d\s*", re.ASCII)
_SINCE_1970 = re.compile(r"\s*@?(?P<seconds>\d{9,11})(?:\.(?P<fraction>\d{1,9}))?\s*", re.ASCII)

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_FIRST_DAY = "1970-01-01"


class Moment(NamedTuple):
    """A point in time.

    Attributes:
        ns: nanoseconds since 1970; without a date, since midnight UTC (negative or more than a day in some
            zones).
        dated: whether the text had a date.
    """

    ns: int
    dated: bool


def parse_duration(text: str) -> int:
    """``50ms`` -> nanoseconds.

    Raises:
        UsageError: not a number followed by a unit of time.
    """
    ns = _parse_amount(text, _DURATIONS)
    if ns is None:
        raise UsageError(
            f'invalid duration "{text}": use a number and a unit: 50ms, 1.5s, 2m (units: '
            f"{', '.join(_DURATIONS)})"
        )
    return ns


def parse_size(text: str) -> int:
    """``1MB`` -> bytes.

    Raises:
        UsageError: not a number, with or without a unit of size.
    """
    size = _parse_amount(text, _SIZES)
    if size is None:
        raise UsageError(f'invalid size "{text}": use 1000, 64KB (1000 bytes each), 1MiB (1024 x 1024 bytes)')
    return size


def convert_amount(unit: str, text: str) -> float:
    """``100ms``, ``64KB`` -> the number of ``unit``: ``us``, ``ms``, ``ns``, ``s`` or ``bytes``.

    Raises:
        UsageError: not a duration, or for bytes not a size.
    """
    amount, scale = (parse_size(text), 1) if unit == "bytes" else (parse_duration(text), _DURATIONS[unit])
    return amount / scale if amount % scale else amount // scale


def _parse_amount(text: str, units: Mapping[str, int]) -> int | None:
    from decimal import Decimal  # rarely needed, and slow to import

    match = _AMOUNT.fullmatch(text)
    unit = None if match is None else units.get(match["unit"].lower())
    return None if match is None or unit is None else int(Decimal(match["number"]) * unit)


def parse_moment(text: str) -> Moment:
    """ISO 8601 (UTC unless it has a zone), a clock time, or seconds since 1970 (at least 9 digits).

    Raises:
        UsageError: none of these, or no such day or hour.
    """
    if match := _SINCE_1970.fullmatch(text):
        return Moment(int(match["seconds"]) * SECOND_NS + _fraction_ns(match["fraction"]), dated=True)
    match = _TIME.fullmatch(f"{text.strip()}T00:00" if _DATE.fullmatch(text) else text)
    if match is None:
        forms = "2026-11-21T09:05:00Z, 2026-11-21, 09:05:00, or seconds since 1970"
        raise UsageError(f'invalid time "{text}": use {forms}')
    east = timedelta(hours=int(match["east"] or 0), minutes=int(match["minutes"] or 0))
    try:
        day = datetime.strptime(match["date"] or _FIRST_DAY, "%Y-%m-%d")  # noqa: DTZ007  (the zone is set below)
        clock = day.replace(
            hour=int(match["hour"]),
            minute=int(match["minute"]),
            second=int(match["second"] or 0),
            tzinfo=timezone(-east if match["sign"] == "-" else east),
        )
    except ValueError as error:
        raise UsageError(f'invalid time "{text}": {error}') from None
    since_1970 = clock - _EPOCH
    seconds = since_1970.days * 86_400 + since_1970.seconds
    return Moment(seconds * SECOND_NS + _fraction_ns(match["fraction"]), dated=match["date"] is not None)


def _fraction_ns(digits: str | None) -> int:
    return int((digits or "0").ljust(9, "0"))


# ------------------------------------------------------------------------------------------------------------
# ``9092``, ``9092-9095``, ``tcp.port==9093,kafka`` -> ports.
# ------------------------------------------------------------------------------------------------------------


_DECODE_AS = re.compile(r"(?:tcp\.port==)?(?P<ports>[\d,-]+?)(?:,(?P<protocol>[a-z]\w*))?", re.IGNORECASE)
_PORTS = re.compile(r"(\d{1,5})(?:-(\d{1,5}))?")
_MAX_PORT = 65_535


def parse_ports(text: str) -> frozenset[int]:
    """``9092``, ``9092,9192``, ``9092-9095``.

    Raises:
        UsageError: none of these.
    """
    ports: set[int] = set()
    for part in text.split(","):
        match = _PORTS.fullmatch(part.strip())
        first, last = (int(match[1]), int(match[2] or match[1])) if match else (0, 0)
        if not 1 <= first <= last <= _MAX_PORT:
            raise UsageError(f'invalid port "{text}": use 9092, 9092,9192 or 9092-9095')
        ports.update(range(first, last + 1))
    return frozenset(ports)


def parse_port_rule(text: str) -> frozenset[int]:
    """``tcp.port==9093,kafka`` as in tshark, or only the ports.

    Raises:
        UsageError: not such a rule.
    """
    match = _DECODE_AS.fullmatch(text.replace(" ", ""))
    if match is None:
        raise UsageError(f'invalid rule "{text}": use tcp.port==9093,kafka')
    if (match["protocol"] or "kafka").lower() != "kafka":
        raise UsageError(f'unsupported protocol "{match["protocol"]}": use tcp.port==9093,kafka')
    return parse_ports(match["ports"])
