"""``SourceOptions`` -> the ``Part`` that each task reads, depending on the option ``split``.

none          one task reads all captures
connections   every task reads all captures, and dissects its shard of the connections
files         a task reads a file, and the ``lookback`` files before it in its directory for context. An
exchange
              belongs to the task that owns the file with the exchange's last byte (owning.py)

All three give the same rows, with exceptions for ``files``. A connection that is in several concurrent
captures is counted for each. A task whose look-back does not reach the start of a connection gives it another
ID, numbers its exchanges differently, and does not know what its handshakes contained. A request whose
response is more files later than the look-back reaches is ``given_up`` (in ``anomalies``), its response an
orphan.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from kdissect.capture import stores
from kdissect.capture.inputs import captures
from kdissect.capture.reader import open_capture
from kdissect.errors import CaptureError, UsageError
from kdissect.exchanges.learned import LearnedFacts
from kdissect.limits import MIB
from kdissect.net.tcp import Shard, cores
from kdissect.options import WHOLE
from kdissect.pipeline import learned_from
from kdissect.spark.options import AUTO, CONNECTIONS, FILES, NONE
from kdissect.tls.keylog import read_key_logs, searchable

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kdissect.limits import Limits
    from kdissect.options import Options
    from kdissect.spark.options import SourceOptions
    from kdissect.tls.keylog import KeyLog


ALONE_BYTES = 256 * MIB
"""Total size of captures up to which one task reads them by default: tasks have a cost."""

PART_BYTES = 128 * MIB
"""Size of captures per part; takes about a minute to dissect."""

_MOST_PARTS = 64
"""Default maximum of tasks with ``connections``: each reads all captures."""

_BY_FILE = frozenset({"exchanges", "records", "partitions", "groups", "anomalies", "captures"})


@dataclass(frozen=True, slots=True)
class Part:
    """What a task reads.

    Attributes:
        paths: the captures to read, in order of time.
        own: those whose exchanges belong to the task; empty: all of them.
        lost: those that no later task reads.
        begins: whether no capture precedes ``paths``.
        all_begin: whether ``begins`` is true for all parts.
        is_last: whether no capture follows ``paths``.
        shard: the connections to dissect; None: all.
        first_ns: time of the first packet of all parts; None: there is none.
        learned: facts learned from all captures; None: the task learns from the captures it reads.
        key_log: secrets of TLS sessions; None: the task uses those that its captures have inside.
        firsts_ns: time of the first packet of each own file, to detect that the file has been replaced; empty
            if that cannot happen.
    """

    paths: tuple[str, ...]
    own: tuple[str, ...] = ()
    lost: frozenset[str] = frozenset()
    begins: bool = True
    all_begin: bool = False
    is_last: bool = True
    shard: Shard | None = None
    first_ns: int | None = None
    learned: LearnedFacts | None = None
    key_log: KeyLog | None = None
    firsts_ns: tuple[int, ...] = ()


def key_log_of(options: Options, paths: Sequence[str]) -> KeyLog | None:
    """Read the key logs, so that tasks need not, and with them the secrets inside these captures. None if
    there are no key logs.

    Raises:
        CaptureError: a key log cannot be read.
    """
    return read_key_logs(options.key_logs, searchable(paths)) if options.key_logs else None


def plan(options: SourceOptions, shown: Sequence[str]) -> list[Part]:
    """Divide the work among tasks.

    Args:
        options: the options of the data source.
        shown: names of the selected columns.

    Raises:
        UsageError: the table cannot be divided as the options require.
        CaptureError: none of the captures, or a key log, can be read.
    """
    if not options.paths:
        raise UsageError('no path given; use spark.read.format("kdissect").load("captures/")')
    paths = tuple(filter(options.selects, captures(options.paths)))
    if not paths:
        raise CaptureError("no file matches pathGlobFilter, modifiedAfter and modifiedBefore")
    key_log = key_log_of(options, paths)
    return [replace(part, key_log=key_log) for part in _parts(options, shown, paths, key_log)]


def _parts(
    options: SourceOptions, shown: Sequence[str], paths: Sequence[str], key_log: KeyLog | None
) -> list[Part]:
    timed = _in_order(paths, options.limits)
    first_ns = min((time_ns for time_ns, _ in timed), default=None)
    size = sum(stores.size(path) or 0 for path in paths)
    # All tasks share the driver's cores on a single machine; on a cluster that number is meaningless.
    count = options.parts or max(cores(), min(-(-size // PART_BYTES), _MOST_PARTS))
    split = _split(options, size, count)
    if options.table == "captures" and split != NONE:
        return [Part((path,)) for path in paths]
    if split == NONE:
        return [Part(tuple(paths), first_ns=first_ns)]
    needs_facts = options.names == WHOLE or options.end_to_end or options.needs_names(shown)
    learned = LearnedFacts(options.limits)
    if needs_facts:
        learned = learned_from(paths, replace(options, pcapng_files=searchable(paths)), key_log=key_log)
    if split == CONNECTIONS:
        return [
            Part(tuple(paths), shard=Shard(number, count), first_ns=first_ns, learned=learned)
            for number in range(count)
        ]
    folders: dict[Path, list[str]] = {}
    for _, path in timed:
        folders.setdefault(Path(path).parent, []).append(path)
    return [
        part
        for own in folders.values()
        for part in by_files(own, options, first_ns=first_ns, learned=learned)
    ]


def by_files(
    paths: Sequence[str],
    options: SourceOptions,
    *,
    before: int = 0,
    gone: int = 0,
    after: int = 0,
    ends: bool = True,
    first_ns: int | None = None,
    learned: LearnedFacts | None = None,
) -> list[Part]:
    """A part for each file, or for every ``files_per_task`` files.

    Args:
        paths: consecutive files.
        options: the options of the data source.
        before: number of leading files that are only read as look-back.
        gone: number of files before those that no longer exist.
        after: number of files following ``paths`` that were read before, so no task has them as look-back.
        ends: whether the captures end with the last of the files.
        first_ns: see ``Part``.
        learned: see ``Part``.

    Raises:
        UsageError: the table cannot be read file by file.
    """
    if options.table not in _BY_FILE:
        raise UsageError(
            f"{options.table} covers all files together, not each file; known: {', '.join(sorted(_BY_FILE))}"
        )
    parts = []
    starts = range(before, len(paths), options.files_per_task)
    all_begin = ends and before == gone == 0 and all(start <= options.lookback for start in starts)
    for start in starts:
        own = tuple(paths[start : start + options.files_per_task])
        end = start + len(own)
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
                learned=learned,
            )
        )
    return parts


def first_time_ns(path: str, limits: Limits) -> int | None:
    """Time of a file's first packet; None if it has none."""
    try:
        with open_capture(path, limits=limits) as capture:
            first = next(iter(capture), None)
    except CaptureError:
        return None
    return None if first is None else first.time_ns


def _in_order(paths: Sequence[str], limits: Limits) -> list[tuple[int, str]]:
    """The files that have packets, in order of their first packets' time.

    Raises:
        CaptureError: none of them can be read.
    """
    timed = [(time_ns, path) for path in paths if (time_ns := first_time_ns(path, limits)) is not None]
    if not timed:
        with open_capture(*paths, limits=limits) as capture:  # raises the reason
            next(iter(capture), None)
    return sorted(timed)


def _split(options: SourceOptions, size: int, count: int) -> str:
    if options.split != AUTO:
        # a topic ID has one row, whichever connections it was learned from
        return NONE if options.split == CONNECTIONS and options.table == "topic_ids" else options.split
    if options.table == "captures":
        return FILES
    return NONE if count == 1 or size <= ALONE_BYTES or options.table == "topic_ids" else CONNECTIONS
