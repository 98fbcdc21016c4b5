"""Captures -> the tables of an export, written by the workers of Spark. See ``decode``.

    ranges.py     files          -> ranges that tasks can read
    shuffle.py    a range        -> a row for each packet, with the part that its connection is in
      Spark       sorts the rows of each part by time, and keeps them on disk
    parts.py      a part         -> which names of topic ids it teaches; with those of all parts -> its tables

What is small goes in one task, which does what ``kdissect export`` does. Holds what the tasks told: of each
range and part some numbers, the names of topic ids, and the names of the files.
"""

from __future__ import annotations

import json
import pickle
from collections import Counter
from contextlib import contextmanager
from dataclasses import fields, replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple
from uuid import uuid4

from kdissect.analysis.census import Census
from kdissect.capture import inputs
from kdissect.errors import OutputError
from kdissect.files import PRIVATE
from kdissect.limits import DEFAULT, MIB, Limits
from kdissect.sinks import manifest
from kdissect.sinks.folderlock import locked
from kdissect.sinks.tablefiles import Listing, cannot_write, own_files
from kdissect.sinks.tables import others
from kdissect.sinks.tables.catalogue import RECORDS, TABLES
from kdissect.sinks.values import timestamp
from kdissect.spark import parts, shuffle
from kdissect.spark.arrival import Arrivals
from kdissect.spark.parts import CAPTURES, TOPIC_IDS, Job, Read
from kdissect.spark.planning import PART_BYTES
from kdissect.spark.ranges import RANGE_BYTES, find_ranges

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping, Sequence

    from pyspark.sql import DataFrame, SparkSession

    from kdissect.analysis.naming import Taught
    from kdissect.capture.source import Source
    from kdissect.sinks.tablefiles import TableFiles
    from kdissect.spark.parts import PartTold, TeachingTold
    from kdissect.spark.ranges import Found
    from kdissect.spark.shuffle import RangeTold

AUTO, SINGLE, SHUFFLE = "auto", "single", "shuffle"
SPLITS = (AUTO, SINGLE, SHUFFLE)
SINGLE_BYTES = 256 * MIB
"""Captures that one task reads sooner than several are started and their rows are sorted."""

_EXACT_BYTES = 256 * MIB
"""Captures that are smaller than this are counted segment by segment: at most 60 MB of numbers."""
_SHARE = "DIR must be on storage that the driver and all workers share"
_BATCH_BYTES = 8 * MIB
_BATCH_BOUND = "spark.sql.execution.arrow.maxBytesPerBatch"


class Decoded(NamedTuple):
    """What was written.

    Attributes:
        split: how it was done: ``single`` or ``shuffle``.
        tasks: how many wrote files.
        rows: by table; empty where the folder held all of it already.
        files, bytes: of all tables.
        packets: read.
        warnings: what was odd about the captures.
        notices: sentences about connections, for a person.
        counts: what ``Dissection.counts`` counts, of all tasks together, and ``unresolved topic ids``.
        skipped: packets that were not looked at, by reason.
    """

    split: str
    tasks: int
    rows: dict[str, int]
    files: int
    bytes: int
    packets: int
    warnings: list[str]
    notices: list[str]
    counts: Counter[str]
    skipped: Counter[str]


def decode(
    session: SparkSession,
    captures: Sequence[str],
    folder: Path,
    *,
    form: str = "parquet",
    compression: str | None = None,
    tables: Sequence[str] | None = None,
    bodies: str = "both",
    split: str = AUTO,
    partition_by: Sequence[str] = ("date",),
    rotate_bytes: int = 256_000_000,
    overwrite: bool = False,
    criteria: Mapping[str, Sequence[str]] | None = None,
    where: str | None = None,
    ports: Collection[int] = (),
    kafka_ports: Collection[int] = (),
    show_secrets: bool = False,
    limits: Limits = DEFAULT,
    range_bytes: int = RANGE_BYTES,
    tasks: int | None = None,
    mode: int = PRIVATE,
) -> Decoded:
    """Dissect captures on the workers of a session, and write their tables, as ``kdissect export`` does.

    Captures and folder have to be where all workers see them, under the same names; that is checked before
    anything is read, and of each file again when it was written.

    Args:
        session: of Spark, classic or Connect.
        captures: names of files, folders and patterns.
        folder: of the tables.
        form: ``jsonl`` or ``parquet``.
        compression: ``none``, ``gz`` or ``zst``; None: zst for Parquet, none for JSON lines.
        tables: names; None: all but ``records``.
        bodies: ``none``, ``request``, ``response`` or ``both``.
        split: ``single``: one task; ``shuffle``: any number; ``auto``: what is large is shuffled.
        partition_by: columns that folders are named after: ``date``, ``api``.
        rotate_bytes: a file that has so many is finished.
        overwrite: remove another export that the folder holds.
        criteria: the filters of ``analysis.filters.build``, by name.
        where: a ``--where`` expression.
        ports: look only at connections with one of these.
        kafka_ports: connections with one of these are Kafka.
        show_secrets: leave credentials in the bodies.
        limits: bounds.
        range_bytes: captures are read by tasks in pieces of about so many bytes.
        tasks: that write tables; None: by the size of the captures.
        mode: permissions of the files; those who may read them may open the folders that are made.

    Raises:
        UsageError: something that was asked for does not exist.
        CaptureError: no capture can be read.
        OutputError: the tables cannot be written, or workers write them to folders of their own.
        SparkError: a worker does not see the captures that this process sees.
    """
    folder = Path(inputs.local(str(folder)))
    names = inputs.captures(captures, but=folder)
    found = find_ranges(names, limits, range_bytes)
    size = sum(Path(name).stat().st_size for name in found.paths)
    if split == AUTO:
        split = SINGLE if size <= SINGLE_BYTES else SHUFFLE
    wanted = [name for name in TABLES if name in (tables or TABLES.keys() - {RECORDS})]
    job = Job(
        tuple(found.paths),
        found.first_ns,
        folder.absolute(),
        form,
        compression,
        tuple(wanted),
        bodies,
        tuple(partition_by),
        rotate_bytes,
        {name: tuple(texts) for name, texts in (criteria or {}).items() if texts},
        where,
        frozenset(ports),
        frozenset(kafka_ports),
        show_secrets,
        limits,
        mode,
    )
    job.wanted()  # raises here what would be raised by every task
    described = _described(job, names)
    with locked(job.folder, mode):
        left = manifest.missing(job.folder, wanted, described, overwrite=overwrite)
        if not left:
            return Decoded(split, 0, {}, 0, 0, 0, found.faults, [], Counter(), Counter())
        cores = _cores(session, job.folder)
        job = replace(job, tables=tuple(left))
        files = {name: job.files(name) for name in left}
        for name, each in files.items():
            manifest.begin(job.folder / name, each, job.format(), described)
        started = datetime.now(UTC)
        with _settings(session):
            if split == SINGLE:
                told, read = _single(session, job, found)
            else:
                count = tasks or max(2 * cores, -(-size // PART_BYTES))
                told, read = _shuffled(session, job, found, count, 1 + size // _EXACT_BYTES)
        return _finished(job, described, split, files, told, _with_unread(read, found), started)


def _single(session: SparkSession, job: Job, found: Found) -> tuple[list[PartTold], Read]:
    frame = session.range(0, 1, 1, 1)
    (told,) = _told(frame, partial(parts.write_alone, job, found.files))
    return [told], told.read


def _shuffled(
    session: SparkSession, job: Job, found: Found, count: int, every: int
) -> tuple[list[PartTold], Read]:
    ranges = found.ranges
    read = partial(shuffle.read_ranges, ranges, found.files, count, job.limits, every)
    rows = session.range(0, len(ranges), 1, len(ranges)).mapInArrow(read, shuffle.COLUMNS)
    rows = rows.repartitionById(count + 1, "part").sortWithinPartitions(*shuffle.ORDER)
    rows = rows.persist(_disk())
    try:
        lessons: list[TeachingTold] = _told(rows, partial(parts.teach, job))
        told = sorted((each for lesson in lessons for each in lesson.ranges), key=lambda each: each.place)
        arrivals = Arrivals.of(told, every)
        write = partial(parts.write, job, arrivals, _taught(lessons))
        return _told(rows, write), _read(job, told)
    finally:
        rows.unpersist()


def _read(job: Job, told: Sequence[RangeTold]) -> Read:
    """What was told of the ranges of each file, as one that reads all of it would tell."""
    sources: dict[str, Source] = {}
    census = Census(job.limits)
    warnings: list[str] = []
    skipped: Counter[str] = Counter()
    for each in told:
        name, source = each.range.path, each.source
        first = sources.setdefault(name, source)
        first.bytes_read = source.bytes_read
        first.interfaces.update(source.interfaces)
        first.statistics.update(source.statistics)
        census.add(each.census)
        warnings += source.warnings
        if each.fault is not None:
            warnings.append(each.fault)
        skipped += each.skipped
    for name, source in sources.items():
        source.packets = census.files[name].packets if name in census.files else 0
    return Read(list(sources.values()), census, list(dict.fromkeys(warnings)), skipped)


def _with_unread(read: Read, found: Found) -> Read:
    """The files too that no task was given."""
    sources, warnings = [*read.sources, *found.unread], [*found.faults, *read.warnings]
    return read._replace(sources=sources, warnings=warnings)


def _taught(lessons: Sequence[TeachingTold]) -> Taught:
    """Topic ids: of each the name that was taught first."""
    taught: dict[str, tuple[str, int]] = {}
    for lesson in lessons:
        for topic_id, (name, time_ns) in lesson.taught.items():
            if topic_id not in taught or time_ns < taught[topic_id][1]:
                taught[topic_id] = name, time_ns
    return taught


def _finished(
    job: Job,
    described: manifest.Job,
    split: str,
    files: Mapping[str, TableFiles],
    told: Sequence[PartTold],
    read: Read,
    started: datetime,
) -> Decoded:
    """Write the tables that no part can write, and what stands beside all of them."""
    parts_told = sorted(told, key=lambda each: each.part)
    _check_written(job, parts_told)
    for name, own in files.items():
        written = [file for each in parts_told for file in each.files.get(name, ())]
        own.go_on(len(written), Listing(job.limits.export_listed, written))
    if TOPIC_IDS in files:
        _write_topics(files[TOPIC_IDS], parts_told)
    if CAPTURES in files:
        for row in others.captures(read.sources, read.census, read.warnings):
            files[CAPTURES].feed(row)
    span = read.census.span_ns
    packets = sum(file.packets for file in read.census.files.values())
    clock = {
        "started": started.isoformat(timespec="seconds"),
        "first_packet": None if span is None else timestamp(span[0]),
        "last_packet": None if span is None else timestamp(span[1]),
    }
    end = {"complete": True, "clock": clock, "packets": packets, "warnings": read.warnings}
    for name, own in files.items():
        own.close()
        _keep(job.folder / name, {file.path for file in own.files})
        manifest.write(job.folder / name, own, job.format(), described, end)
    counts = sum((each.counts for each in parts_told), Counter[str]())
    counts["packets"] = packets
    counts["unresolved topic ids"] = len(set().union(*(each.unresolved for each in parts_told)))
    notices = [notice for each in parts_told for notice in each.notices]
    return Decoded(
        split,
        len(parts_told),
        {name: own.files.rows for name, own in files.items()},
        sum(len(own.files) for own in files.values()),
        sum(own.files.bytes for own in files.values()),
        packets,
        read.warnings,
        notices[: job.limits.notices],
        counts,
        read.skipped,
    )


def _check_written(job: Job, told: Sequence[PartTold]) -> None:
    """See whether the files that workers have written are in the folder.

    Raises:
        OutputError: one is not, or has another size.
    """
    for part in told:
        for name, files in part.files.items():
            for file in files:
                path = job.folder / name / file.path
                if not path.is_file() or path.stat().st_size != file.bytes:
                    raise OutputError(f"worker {part.host} wrote {path}, which is not here; {_SHARE}")


def _write_topics(files: TableFiles, told: Sequence[PartTold]) -> None:
    """The first row of each pair of id and name, in the order of all parts."""
    seen = set()
    for _, pair, values in sorted(topic for each in told for topic in each.topics):
        if pair not in seen:
            seen.add(pair)
            files.feed(values)


def _keep(folder: Path, known: Collection[str]) -> None:
    """Remove files that tasks have left which failed, and were run again."""
    for path in list(own_files(folder)):
        if path.relative_to(folder).as_posix() not in known:
            path.unlink()


def _told(frame: DataFrame, work: Callable[[Iterator[Any]], Iterator[Any]]) -> list[Any]:
    """Do something with each partition; get what tasks tell of it."""
    rows = frame.mapInArrow(work, parts.COLUMNS).collect()
    return [pickle.loads(row[0]) for row in rows]  # which a task of ours made


@contextmanager
def _settings(session: SparkSession) -> Iterator[None]:
    """Let no worker get more at once than it should hold: a row can have 64 KiB."""
    before = session.conf.get(_BATCH_BOUND, None)
    session.conf.set(_BATCH_BOUND, str(_BATCH_BYTES))
    try:
        yield
    finally:
        if before is None:
            session.conf.unset(_BATCH_BOUND)
        else:
            session.conf.set(_BATCH_BOUND, before)


def _cores(session: SparkSession, folder: Path) -> int:
    """How many tasks run at a time: as many as Spark makes of what it can divide as it likes. Each sees
    whether it can find what this process writes to a folder.

    Raises:
        OutputError: one does not.
    """
    token = folder / f".kdissect-{uuid4().hex}"  # a new name: no network file system has it cached as missing
    try:
        token.touch()
    except OSError as error:
        raise cannot_write(folder, error) from None
    try:
        seen = _told(session.range(10_000), partial(parts.see, token))
    finally:
        token.unlink(missing_ok=True)
    blind = sorted({host for host, sees in seen if not sees})
    if blind:
        more = f" and {len(blind) - 3:,} more" if len(blind) > 3 else ""
        raise OutputError(f"{folder}: not shared with {', '.join(blind[:3])}{more}; {_SHARE}")
    return len(seen)


def _disk() -> Any:
    from pyspark import StorageLevel

    return StorageLevel.DISK_ONLY


def _described(job: Job, names: Sequence[str]) -> manifest.Job:
    """What the tables are made of, as JSON has it."""
    options = ("form", "compression", "bodies", "partition_by", "rotate_bytes", "criteria", "where", "ports")
    own = ("kafka_ports", "show_secrets")
    told = {name: value for name in (*options, *own) if (value := getattr(job, name))}
    changed = {
        bound.name: value
        for bound in fields(job.limits)
        if (value := getattr(job.limits, bound.name)) != bound.default
    }
    captures = [_capture(Path(name)) for name in names if Path(name).is_file()]
    made: manifest.Job = json.loads(
        json.dumps({"captures": captures, "options": told, "limits": changed}, default=sorted)
    )
    return made


def _capture(path: Path) -> dict[str, Any]:
    status = path.stat()
    modified = datetime.fromtimestamp(status.st_mtime, UTC)
    return {"path": str(path), "bytes": status.st_size, "modified": modified.isoformat()}
