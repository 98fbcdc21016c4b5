"""Filter options for records, as strings -> a test of a record. Holds the criteria, and for ``unique`` topic,
partition and offset of the last ``limits.unique_records`` records.

topic, partition   as in filters.py: an exchange that matches there can have records of other topics too
key                a string or a glob; in Kafka's internal topics, of any string in the key
header             ``trace-id``, ``trace-id=4bf9*``: name, or name and value, of a header
trace              the trace ID in its headers, or a glob
schema             the ID or GUID of the registered schema of its value or key
offset             ``5``, ``5..``, ``..9``, ``5..9``, both ends included; unknown offsets do not match
grep               a regular expression over the bytes of key or value; what is decoded is searched as JSON
where              an expression over the columns of a record
control            only, or no, control records
produced, fetched  sent by a client, sent by a broker; both: either
unique             only the first with the same topic, partition and offset
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, NamedTuple

import orjson

from kdissect.errors import UsageError
from kdissect.limits import DEFAULT
from kdissect.model import Embedded, Redacted
from kdissect.names import Recent, kept
from kdissect.query.filters import NameTest, partition_test
from kdissect.query.where import PatternError, compile_pattern

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from kdissect.exchanges.partition_records import CarriedRecord, PartitionRecords
    from kdissect.kafka.internal.topics import Payload
    from kdissect.limits import Limits
    from kdissect.query.where import Search, Where

    RecordTest = Callable[[CarriedRecord], bool]

_RANGE = re.compile(r"(?P<first>\d{1,19})?(?P<dots>\.\.)?(?P<last>\d{1,19})?", re.ASCII)
_LARGEST_OFFSET = 0x7FFFFFFFFFFFFFFF
_SHOWN = 60  # characters of a pattern in an error message
_ALONE = frozenset(
    {"topic", "topic_id", "partition", "offset", "key", "key_encoding", "value", "value_encoding", "headers"}
    | {"key_schema_id", "key_schema_guid", "schema_id", "schema_guid", "trace_id", "span_id", "trace_format"}
    | {"control", "control_type"}
)
"""Columns of a record that say nothing of its exchange or batch."""


class RecordCriteria(NamedTuple):
    """The criteria as strings, see above; one kind is combined with or, different kinds with and."""

    topics: Sequence[str] = ()
    partitions: Sequence[str] = ()
    keys: Sequence[str] = ()
    headers: Sequence[str] = ()
    offsets: Sequence[str] = ()
    traces: Sequence[str] = ()
    schemas: Sequence[str] = ()
    patterns: Sequence[str] = ()
    where: Where | None = None
    control: bool | None = None
    produced: bool = False
    fetched: bool = False
    unique: bool = False


class RecordFilter:
    """All criteria of a run; without any, everything matches.

    Attributes:
        is_partition: whether records of a partition can match, given the known names of its topic, and its
            number. None: of all.

    Raises:
        UsageError: invalid criterion.
    """

    def __init__(self, criteria: RecordCriteria, limits: Limits = DEFAULT) -> None:
        has_partitions = criteria.topics or criteria.partitions
        self.is_partition = partition_test(criteria.topics, criteria.partitions) if has_partitions else None
        self._directions = {True: criteria.produced, False: criteria.fetched}
        self._has_direction = criteria.produced or criteria.fetched
        self._tests = tuple(_tests(criteria))
        names = () if criteria.where is None else criteria.where.names
        self._has_others = any(name.partition(".")[0] not in _ALONE for name in names)
        self._seen = _Seen(limits) if criteria.unique else None

    @property
    def is_simple(self) -> bool:
        """Whether what the core gets decides which records match: the attributes of a ``RecordSource``."""
        return not self._has_others

    @property
    def directions(self) -> tuple[bool, bool]:
        """Whether records that were produced can match, and those that were fetched."""
        return (self._directions[True], self._directions[False]) if self._has_direction else (True, True)

    def selects(self, record: CarriedRecord) -> bool:
        """Whether a record of which no more is known than ``record_alone`` matches, if this ``is_simple``."""
        return all(test(record) for test in self._tests)

    @property
    def has_tests(self) -> bool:
        """Whether ``selects`` selects some."""
        return bool(self._tests)

    @property
    def is_first(self) -> Callable[[str], bool] | None:
        """See ``RecordSource``; for records that ``selects`` selects."""
        return None if self._seen is None else self._seen.is_first

    @property
    def matches_all(self) -> bool:
        """Whether every record matches."""
        return not self._tests and self._seen is None

    @property
    def forgotten(self) -> int:
        """How many records ``unique`` had to forget; repetitions of these match again."""
        return self._seen.forgotten if self._seen is not None else 0

    def matches_partition(self, partition: PartitionRecords) -> bool:
        """Whether a record of this partition and direction can match; if not, they need not be decoded."""
        if self._has_direction and not self._directions[partition.produced]:
            return False
        is_partition, number = self.is_partition, -1 if partition.partition is None else partition.partition
        return is_partition is None or is_partition(partition.names or ("",), number)

    def matches(self, record: CarriedRecord) -> bool:
        """Whether all other criteria match."""
        if not self.selects(record):
            return False
        return self._seen is None or self._seen.is_first(_position(record))


class _Seen:
    """Positions of records that already matched, the oldest of which are forgotten."""

    def __init__(self, limits: Limits) -> None:
        self._positions: Recent[tuple[str, str], None] = Recent(limits.unique_records)

    @property
    def forgotten(self) -> int:
        """How many positions were forgotten."""
        return self._positions.forgotten

    def is_first(self, position: str) -> bool:
        """Whether no record of this position was seen; always true without an offset. See ``_position``."""
        topic, partition, offset = position.rsplit("\t", 2)
        if not offset[-1:].isdigit() or not topic:
            return True
        key = kept((topic, f"{partition}\t{offset}"))
        if key in self._positions:
            return False
        self._positions.keep(key, None)
        return True


def _position(record: CarriedRecord) -> str:
    """Topic, partition and offset, as the native core writes them."""
    partition = record.source
    return f"{next(iter(partition.names), '')}\t{partition.partition}\t{record.offset}"


def _tests(criteria: RecordCriteria) -> list[RecordTest]:
    tests: list[RecordTest] = []
    if (control := criteria.control) is not None:
        tests.append(lambda record: (record.control is not None) is control)
    if ranges := [_range(part) for text in criteria.offsets for part in text.split(",")]:
        tests.append(
            lambda record: record.offset is not None and any(record.offset in each for each in ranges)
        )
    if criteria.keys:
        is_key = NameTest(criteria.keys)
        tests.append(lambda record: is_key.any_in(_texts(record.key)))
    if criteria.headers:
        are_headers = [_header_test(text) for text in criteria.headers]
        tests.append(lambda record: any(test(record) for test in are_headers))
    if criteria.traces:
        is_trace = NameTest(criteria.traces)
        tests.append(lambda record: (trace := record.trace) is not None and is_trace(trace.id))
    if criteria.schemas:
        is_schema = NameTest(criteria.schemas)
        tests.append(
            lambda record: is_schema.any_in(
                [str(each) for each in (record.schema, record.key_schema) if each is not None]
            )
        )
    if criteria.patterns:
        searches = [_search(pattern) for pattern in criteria.patterns]
        tests.append(
            lambda record: any(
                search(data) is not None
                for data in (_bytes(record.key), _bytes(record.value))
                if data is not None
                for search in searches
            )
        )
    if criteria.where is not None:
        tests.append(criteria.where.matches)
    return tests


def _search(pattern: str) -> Search:
    """A pattern of ASCII characters matches bytes, any other one matches characters of UTF-8."""
    try:
        return compile_pattern(pattern, in_bytes=pattern.isascii())
    except PatternError as error:
        raise UsageError(f'--grep "{pattern[:_SHOWN]}": {error}') from None


def _bytes(payload: Payload) -> bytes | None:
    """What --grep searches: bytes, or JSON of what is decoded; nothing of a credential."""
    if isinstance(payload, Embedded):
        return orjson.dumps(payload.decoded, default=_plain, option=orjson.OPT_NON_STR_KEYS)
    return payload if isinstance(payload, bytes) else None


def _plain(value: Any) -> Any:
    return {"withheld": value.length} if isinstance(value, Redacted) else None


def _range(text: str) -> range:
    match = _RANGE.fullmatch(text.strip())
    if match is None or not (match["first"] or match["last"]) or (match["last"] and not match["dots"]):
        raise UsageError(f'invalid offset "{text}": use 5, 5..9, 5.. or ..9')
    first = int(match["first"] or 0)
    last = int(match["last"] or _LARGEST_OFFSET) if match["dots"] else first
    if first > last:
        raise UsageError(f"the range {text} is empty")
    return range(first, last + 1)


def _header_test(text: str) -> RecordTest:
    name, has_value, pattern = text.partition("=")
    is_name = NameTest([name])
    is_value = NameTest([pattern]) if has_value else None

    def test(record: CarriedRecord) -> bool:
        return any(
            is_name(key) and (is_value is None or is_value.any_in(_texts(value)))
            for key, value in record.headers
        )

    return test


def _texts(payload: Payload) -> list[str]:
    """The strings to compare with globs: the value, or the strings inside it; none for null or
    credentials.
    """
    if isinstance(payload, bytes):
        return [payload.decode("utf-8", "backslashreplace")]
    if isinstance(payload, Embedded):
        return [
            value for name, value in payload.decoded.items() if isinstance(value, str) and name[:1] != "_"
        ]
    return []
