"""``SourceOptions`` -> the ``Part`` that each task reads, depending on the option ``split``.

none          one task reads all captures
connections   every task reads all captures, and dissects its shard of the connections. For the names of topic
              IDs a process reads them once more, for all its tasks, and skips most messages
files         a task reads a file, and the ``lookback`` files before it in its directory for context, also
              for the names of topic IDs. An exchange belongs to the task that owns the file with the
              exchange's last byte (owning.py)

All three give the same rows; docs/spark.md lists the exceptions of ``files``.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import pairwise
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple

from kdissect.capture import stores
from kdissect.capture.inputs import NOTHING, candidates
from kdissect.capture.reader import first_time_ns, open_capture
from kdissect.errors import CaptureError, UsageError
from kdissect.limits import MIB
from kdissect.net.tcp import Shard, cores
from kdissect.spark.options import AUTO, CONNECTIONS, FAILFAST, FILES, NONE
from kdissect.tables.whole import WHOLE_TABLES
from kdissect.tls.keylog import read_key_logs, searchable

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence

    from kdissect.capture.inputs import Candidate
    from kdissect.limits import Limits
    from kdissect.options import Options
    from kdissect.spark.options import SourceOptions
    from kdissect.tls.keylog import KeyLog


ALONE_BYTES = 256 * MIB
"""Total size of captures up to which one task reads them by default: tasks have a cost."""

PART_BYTES = 128 * MIB
"""Size of captures per part; takes up to ten seconds to dissect, without the native core a minute."""

_MAX_PARTS = 64
"""Default maximum of tasks with ``connections``: each reads all captures."""

OPEN_BYTES = 4 * MIB
"""What opening a file costs, in bytes that could be read in the same time (as Spark's own sources assume)."""
_MIN_PARTS = 64
"""Files share a task only if there are more tasks than these otherwise."""
_OPEN_FILES = 16
_UNDIVIDED = frozenset({"topic_ids", *WHOLE_TABLES})
"""Tables whose rows depend on several connections."""
_BY_FILE = frozenset({"exchanges", "records", "partitions", "groups", "topic_ids", "anomalies", "captures"})


@dataclass(frozen=True, slots=True)
class Part:
    """What a task reads.

    Attributes:
        paths: the captures to read, in order of time; empty: all of the query.
        own: those whose exchanges belong to the task; empty: all of them.
        lost: those that no later task reads.
        begins: whether no capture precedes ``paths``.
        all_begin: whether ``begins`` is true for all parts.
        is_last: whether no capture follows ``paths``.
        shard: the connections to dissect; None: all.
        first_ns: time of the first packet of all parts; None: that of ``paths``.
        key_log: secrets of TLS sessions, besides those inside captures; None: there are none.
        firsts_ns: time of the first packet of each own file, to detect that the file has been replaced; empty
            if that cannot happen.
        problems: of files that no task reads, because they have no packet.
    """

    paths: tuple[str, ...] = ()
    own: tuple[str, ...] = ()
    lost: frozenset[str] = frozenset()
    begins: bool = True
    all_begin: bool = False
    is_last: bool = True
    shard: Shard | None = None
    first_ns: int | None = None
    key_log: KeyLog | None = None
    firsts_ns: tuple[int, ...] = ()
    problems: tuple[str, ...] = ()


def key_log_of(options: Options, paths: Sequence[str]) -> KeyLog | None:
    """Read the key logs, so that tasks need not, and with them the secrets inside these captures. None if
    there are no key logs.

    Raises:
        CaptureError: a key log cannot be read.
    """
    return read_key_logs(options.key_logs, searchable(paths), options.limits) if options.key_logs else None


class Captures(NamedTuple):
    """The captures of a query, which only tasks open.

    Attributes:
        files: names, and what is known of the files.
        sizes: of the files, in bytes.
        key_log: secrets of TLS sessions; None: only captures have some.
    """

    files: dict[str, Candidate]
    sizes: dict[str, int]
    key_log: KeyLog | None

    @property
    def bytes(self) -> int:
        """Their total size."""
        return sum(self.sizes.values())


def find(options: SourceOptions) -> Captures:
    """List the captures.

    Raises:
        UsageError: there is no path, or a glob matches nothing.
        CaptureError: there is no file, or a key log cannot be read.
    """
    if not options.paths:
        raise UsageError('no path given; use spark.read.format("kdissect").load("captures/")')
    files, sizes = selected(candidates(options.paths), options), dict[str, int]()
    for name, candidate in files.items():
        with suppress(OSError):  # reported when it is opened
            sizes[name] = (candidate.status or stores.status(name)).size or 0
    return Captures(files, sizes, key_log_of(options, ()))


def selected(files: dict[str, Candidate], options: SourceOptions) -> dict[str, Candidate]:
    """The files that the options select.

    Raises:
        CaptureError: there are none.
    """
    chosen = {name: each for name, each in files.items() if options.selects(name, each.status)}
    if not chosen:
        raise CaptureError(
            "no file matches pathGlobFilter, modifiedAfter and modifiedBefore"
            if files
            else f"{', '.join(options.paths)}: {NOTHING}"
        )
    return chosen


def plan(options: SourceOptions, captures: Captures) -> list[Part]:
    """Divide the work among tasks. Only with ``files``, and a look-back, are files opened, to order them.

    Raises:
        UsageError: the table cannot be divided as the options require.
        CaptureError: none of the captures can be read.
    """
    # All tasks share the driver's cores on a single machine; on a cluster that number is meaningless.
    count = options.tasks or max(cores(), min(-(-captures.bytes // PART_BYTES), _MAX_PARTS))
    split = _split(options, captures.bytes, count)
    if split == NONE:
        return [Part()]
    if options.table == "captures":
        paths = tuple(captures.files)
        runs = _runs([captures.sizes.get(path, 0) for path in paths], options.files_per_task)
        return [Part(paths[start:end]) for start, end in runs]
    if split == CONNECTIONS:
        return [Part(shard=Shard(number, count)) for number in range(count)]
    timed, problems = _in_order(captures.files, options)
    directories: dict[str, list[str]] = {}
    for _, path in timed:
        directories.setdefault(path.rpartition("/")[0], []).append(path)
    first_ns = timed[0][0] if timed else None
    parts = [
        part
        for own in directories.values()
        for part in by_files(own, options, sizes=captures.sizes, first_ns=first_ns)
    ]
    if parts and problems:
        parts[0] = replace(parts[0], problems=tuple(problems))
    return parts


def _runs(sizes: Sequence[int], count: int | None) -> list[tuple[int, int]]:
    """Divide files into consecutive runs: the index of the first, and that after the last of each.

    Args:
        sizes: of the files, in bytes.
        count: files of each run; None: those of about ``PART_BYTES``, unless there would be few runs.
    """
    if count is not None:
        return [(start, min(start + count, len(sizes))) for start in range(0, len(sizes), count)]
    costs = [size + OPEN_BYTES for size in sizes]
    max_cost, starts, cost = min(PART_BYTES, sum(costs) // _MIN_PARTS), list[int](), 0
    for place, each in enumerate(costs):
        if not starts or cost + each > max_cost:
            starts.append(place)
            cost = 0
        cost += each
    return list(pairwise([*starts, len(sizes)]))


def by_files(
    paths: Sequence[str],
    options: SourceOptions,
    *,
    sizes: Mapping[str, int] = MappingProxyType({}),
    before: int = 0,
    gone: int = 0,
    after: int = 0,
    ends: bool = True,
    first_ns: int | None = None,
) -> list[Part]:
    """A part for each run of files (``_runs``).

    Args:
        paths: consecutive files.
        options: the options of the data source.
        sizes: of the files, in bytes, as far as known.
        before: number of leading files that are only read as look-back.
        gone: number of files before those that no longer exist.
        after: number of files following ``paths`` that were read before, so no task has them as look-back.
        ends: whether the captures end with the last of the files.
        first_ns: see ``Part``.

    Raises:
        UsageError: the table cannot be read file by file.
    """
    if options.table not in _BY_FILE:
        raise UsageError(
            f"{options.table} covers all files together, not each file; known: {', '.join(sorted(_BY_FILE))}"
            "; for streams see kdissect.spark.stream_connections"
        )
    parts = []
    runs = _runs([sizes.get(path, 0) for path in paths[before:]], options.files_per_task)
    bounds = [(before + start, before + end) for start, end in runs]
    all_begin = ends and before == gone == 0 and all(start <= options.lookback for start, _ in bounds)
    for start, end in bounds:
        own = tuple(paths[start:end])
        window = tuple(paths[max(0, start - options.lookback) : end])
        behind = after if end == len(paths) else 0
        parts.append(
            Part(
                window,
                own=own,
                lost=frozenset(window[: max(0, len(window) - options.lookback + behind)]),
                begins=gone == 0 and start <= options.lookback,
                all_begin=all_begin,
                is_last=ends and end == len(paths),
                first_ns=first_ns,
            )
        )
    return parts


def first_times_ns(paths: Collection[str], limits: Limits) -> Iterator[int | None]:
    """Time of each file's first packet; None if it has none, or cannot be read."""

    def first_ns(path: str) -> int | None:
        try:
            return first_time_ns(path, limits)
        except CaptureError:
            return None

    with ThreadPoolExecutor(_OPEN_FILES) as pool:  # because of stores
        yield from pool.map(first_ns, paths)


def _in_order(
    files: Mapping[str, Candidate], options: SourceOptions
) -> tuple[list[tuple[int, str]], list[str]]:
    """The files that have packets, in order of their first packets' time; problems of the others.

    Raises:
        CaptureError: none of them can be read, or one cannot be and ``mode`` says that this matters.
    """
    times_ns = dict(zip(files, first_times_ns(files, options.limits), strict=True))
    timed = [(time_ns, path) for path, time_ns in times_ns.items() if time_ns is not None]
    problems = []
    for path in [path for path, time_ns in times_ns.items() if time_ns is None]:
        try:
            with open_capture(path, limits=options.limits) as capture:
                next(iter(capture), None)
                problems += capture.warnings
        except CaptureError as error:
            if not timed or options.mode == FAILFAST:
                raise
            problems.append(str(error))
    return sorted(timed), problems


def _split(options: SourceOptions, size: int, count: int) -> str:
    if options.split != AUTO:
        return NONE if options.split == CONNECTIONS and options.table in _UNDIVIDED else options.split
    if options.table == "captures":
        return FILES
    return NONE if count == 1 or size <= ALONE_BYTES or options.table in _UNDIVIDED else CONNECTIONS
