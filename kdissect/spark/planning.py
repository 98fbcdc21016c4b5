"""What is asked for -> what each task reads. Holds nothing.

none          one task reads all captures
connections   every task reads all captures, and dissects its share of the connections
files         a task reads a file, and those just before it in its folder for what began there. An exchange
              is of the task that owns the file which has the last of its bytes (owning.py)

Rows are the same by each way, but for ``files``: a connection that several of them captured at the same time
counts several times; those of which the look-back does not reach a connection's beginning know it by another
id and number, and not what it told at its start. A request whose answer comes after more files than the
look-back is ``given_up`` (in ``anomalies``), its answer an orphan.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from kdissect.capture.inputs import captures
from kdissect.capture.reader import Readable, open_capture
from kdissect.errors import CaptureError, UsageError
from kdissect.exchanges.learned import LearnedFacts
from kdissect.limits import MIB
from kdissect.net.tcp import Shard, cores
from kdissect.pipeline import Dissection
from kdissect.spark.options import AUTO, CONNECTIONS, FILES, NONE

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kdissect.limits import Limits
    from kdissect.options import Options
    from kdissect.spark.options import SourceOptions


ALONE_BYTES = 256 * MIB
"""Captures of together so many bytes are read by one task, unless it is said otherwise: tasks cost too."""

PART_BYTES = 128 * MIB
"""Of captures, for each part: dissected in a minute."""

_MOST_PARTS = 64
"""Tasks of ``connections``, unless it is said otherwise: each reads all captures."""

_BY_FILE = frozenset({"exchanges", "records", "partitions", "groups", "anomalies", "captures"})


@dataclass(frozen=True, slots=True)
class Part:
    """What a task reads.

    Attributes:
        paths: the captures, in order of time.
        own: those of them whose exchanges are the task's own; empty: all.
        lost: those of them that no task reads behind this one.
        begins: whether the captures begin where these do.
        all_begin: whether that is so of all parts.
        is_last: whether they end where these do.
        share: of the connections; None: all.
        first_ns: of the first packet of all tasks; None: there is none.
        learned: what all captures say about topic ids; None: this task finds out itself.
        firsts_ns: of the first packet of each own file, where another file may take its place meanwhile.
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
    firsts_ns: tuple[int, ...] = ()


def plan(options: SourceOptions, shown: Sequence[str]) -> list[Part]:
    """Share the work out.

    Args:
        options: what is asked for.
        shown: the columns.

    Raises:
        UsageError: it cannot be shared that way.
        CaptureError: none of the captures can be read.
    """
    if not options.paths:
        raise UsageError('no path given; use spark.read.format("kdissect").load("captures/")')
    paths = captures(options.paths)
    timed = _in_order(paths, options.limits)
    first_ns = min((time_ns for time_ns, _ in timed), default=None)
    size = sum(path.stat().st_size for path in map(Path, paths) if path.is_file())
    # The driver's cores are those of all tasks on one machine; of a cluster they tell nothing.
    count = options.parts or max(cores(), min(-(-size // PART_BYTES), _MOST_PARTS))
    split = _split(options, size, count)
    if options.table == "captures" and split != NONE:
        return [Part((path,)) for path in paths]
    if split == NONE:
        return [Part(paths, first_ns=first_ns)]
    learned = learned_from(paths, options) if options.needs_names(shown) else LearnedFacts(options.limits)
    if split == CONNECTIONS:
        return [
            Part(paths, shard=Shard(number, count), first_ns=first_ns, learned=learned)
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
    """A part for each file, or for so many of them as a task shall have.

    Args:
        paths: of files that follow each other.
        options: says how far parts look back.
        before: how many of them are there to be looked back at only.
        gone: how many more there were before them.
        after: how many behind them were read already: nobody will look back from these.
        ends: whether the captures end with the last of them.
        first_ns: see ``Part``.
        learned: likewise.

    Raises:
        UsageError: there is no such table by file.
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
    """Time of a file's first packet; None where it has none."""
    try:
        with open_capture(path, limits=limits) as capture:
            first = next(iter(capture), None)
    except CaptureError:
        return None
    return None if first is None else first.time_ns


def _in_order(paths: Sequence[str], limits: Limits) -> list[tuple[int, str]]:
    """The files that have packets, by the time of their first.

    Raises:
        CaptureError: none of them can be read.
    """
    timed = [(time_ns, path) for path in paths if (time_ns := first_time_ns(path, limits)) is not None]
    if not timed:
        with open_capture(*paths, limits=limits) as capture:  # says what is wrong with them
            next(iter(capture), None)
    return sorted(timed)


def _split(options: SourceOptions, size: int, count: int) -> str:
    if options.split != AUTO:
        # each id stands once in its table, whichever connections tell it
        return NONE if options.split == CONNECTIONS and options.table == "topic_ids" else options.split
    if options.table == "captures":
        return FILES
    return NONE if count == 1 or size <= ALONE_BYTES or options.table == "topic_ids" else CONNECTIONS


# ------------------------------------------------------------------------------------------------------------
# Captures -> the facts that cross connections, which several tasks that read them apart must know first.
# ------------------------------------------------------------------------------------------------------------


def learned_from(paths: Sequence[str], options: Options, shard: Shard | None = None) -> LearnedFacts:
    """What captures say."""
    facts = LearnedFacts(options.limits)
    try:
        with open_capture(*paths, limits=options.limits) as capture:
            Dissection(Readable(capture.packet_blocks()), options, shard=shard).learn(facts)
    except CaptureError:  # there is nothing in them; who reads them says why
        pass
    return facts
