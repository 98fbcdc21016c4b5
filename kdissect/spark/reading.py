"""A ``Part`` -> Arrow record batches of the table: the work of one task. Holds what a dissection and a batch
hold; and between tasks that each read all captures, the facts learned from these.
"""

from __future__ import annotations

import pickle
import warnings
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, cast

import pyarrow as pa

from kdissect.capture import stores
from kdissect.capture.reader import Readable, open_capture
from kdissect.capture.source import Source
from kdissect.errors import CaptureError
from kdissect.exchanges.learned import LearnedFacts
from kdissect.options import WHOLE
from kdissect.phrases import many
from kdissect.pipeline import Dissection, learned_from
from kdissect.sinks.columns import Columns
from kdissect.sinks.sink import Demand
from kdissect.spark.batches import TableBatches, columns_of
from kdissect.spark.options import FAILFAST
from kdissect.spark.owning import OwnExchanges
from kdissect.tables import arrow
from kdissect.tables.columns import filter_of
from kdissect.tables.rows import needs_log
from kdissect.tls.keylog import searchable

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence

    from kdissect.capture.reader import Capture
    from kdissect.model import Exchange, Packet
    from kdissect.query.filters import Filter
    from kdissect.spark.options import SourceOptions
    from kdissect.spark.planning import Part

    Selects = Callable[[Exchange], bool]


def read(
    part: Part,
    options: SourceOptions,
    columns: Sequence[str],
    masks: Sequence[Callable[[Any], Any]] = (),
) -> Iterator[Any]:
    """Yield the rows of a part as record batches.

    Args:
        part: what to read.
        options: options of the data source.
        columns: names of the table's columns to include, in order.
        masks: for each batch, which rows to include, as an Arrow array of booleans.
    """
    options = replace(options, pcapng_files=searchable(part.paths))
    if part.key_log is not None:
        part.key_log.add_captures(options.pcapng_files)
    learned = None if part.shard is None else LearnedFacts(options.limits)
    needs_facts = options.names == WHOLE or (part.shard is not None and options.needs_facts(columns))
    if needs_facts and options.table != "captures":  # for these, nothing is dissected
        learned = _learned(part, options)
    own = columns_of(
        options.table, [name for name in columns if name != options.corrupt_column], options.bodies
    )
    batches = TableBatches(
        {options.table: own},
        options,
        rows=options.batch_rows,
        bytes=options.batch_bytes,
    )
    settings = {
        "observer": batches.log if needs_log((options.table,)) else None,
        "learned": learned,
        "shard": part.shard,
        "key_log": part.key_log,
    }
    problems = list(part.problems)
    schema = arrow.schema(own)
    if has_corrupt := options.corrupt_column in columns:
        schema = schema.insert(
            columns.index(options.corrupt_column), pa.field(options.corrupt_column, pa.string())
        )
    for _, batch in (_of_own if part.own else _of_all)(part, options, batches, settings, problems):
        for mask in masks:
            batch = batch.filter(mask(batch))
        if batch.num_rows:
            yield _with_nulls(batch, schema) if has_corrupt else batch
    if part.shard is not None and part.shard.number:
        return  # all shards read the same files
    if problems and options.table != "captures":
        more = f" and {len(problems) - 1:,} more" if len(problems) > 1 else ""
        warnings.warn(f"{many(len(problems), 'damaged capture')}: {problems[0]}{more}", stacklevel=1)
    if problems and has_corrupt and not masks:
        yield pa.RecordBatch.from_pylist([{options.corrupt_column: each} for each in problems], schema)


_FACTS: dict[bytes, bytes] = {}
"""What a task learned from captures that all tasks of its query read, by query, both pickled: at most one.
Spark runs several tasks in one process, one after the other.
"""


def _learned(part: Part, options: SourceOptions) -> LearnedFacts:
    """The facts learned from the captures of a part.

    Raises:
        CaptureError: not all could be read, see ``_check_read``.
    """
    query = None
    if part.shard is not None:
        with suppress(OSError):  # reported when the file is opened
            statuses = [stores.status(path) for path in part.paths]
            query = pickle.dumps((part.paths, statuses, options, part.key_log))
    if query in _FACTS:
        facts: LearnedFacts = pickle.loads(_FACTS[query])  # a new object, because a dissection adds to it
        return facts
    opened: list[Capture] = []

    def watch(packets: Iterable[Any], capture: Capture) -> Iterable[Any]:
        opened.append(capture)
        return packets

    facts = learned_from(part.paths, options, watch=watch, key_log=part.key_log)
    failures = [source.name for capture in opened for source in capture.sources if source.failed]
    _check_read(failures, (), options)
    if query is not None and opened and not failures:
        _FACTS.clear()
        _FACTS[query] = pickle.dumps(facts)
    return facts


def _with_nulls(batch: Any, schema: Any) -> Any:
    """The batch with the columns of the schema that it lacks, null."""
    known = dict(zip(batch.schema.names, batch.columns, strict=True))
    arrays = [known.get(field.name, pa.nulls(batch.num_rows, field.type)) for field in schema]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _of_all(
    part: Part,
    options: SourceOptions,
    batches: TableBatches,
    settings: Mapping[str, Any],
    problems: list[str],
) -> Iterator[tuple[str, Any]]:
    """The rows of all files of a part, whose packets are merged by time. Adds their problems to a list.

    Raises:
        CaptureError: none of the files can be read.
    """
    failures: list[str] = []
    try:
        with open_capture(*part.paths, limits=options.limits) as capture:
            problems += yield from _of_capture(capture, options, batches, settings)
            failures = [source.name for source in capture.sources if source.failed]
    except CaptureError as error:
        if options.table != "captures":
            raise
        with suppress(CaptureError):
            yield from batches.close([Source(path, options.limits) for path in part.paths], [str(error)])
    _check_read(failures, problems, options)


def _check_read(failures: Sequence[str], problems: Sequence[str], options: SourceOptions) -> None:
    """Fail the task, so that Spark repeats it, if files could not be read to their ends.

    Args:
        failures: the files for which an I/O error, not damage, is the reason.
        problems: of all files, damage included.
        options: of the data source.

    Raises:
        CaptureError: there are some, and data loss or, for damage, ``mode`` says that they matter.
    """
    if problems and options.mode == FAILFAST and options.table != "captures":
        raise CaptureError(f"{problems[0]}; mode=PERMISSIVE leaves out what is damaged")
    if failures and options.fail_on_data_loss:
        raise CaptureError(f"cannot read all of {', '.join(failures)}; failOnDataLoss=false ignores that")


def _of_capture(
    capture: Capture, options: SourceOptions, batches: TableBatches, settings: Mapping[str, Any]
) -> Generator[tuple[str, Any], None, list[str]]:
    """Yield the rows; return the problems of the files."""
    if options.table == "captures":
        readable = Readable(capture)
        for _ in batches.log.watch(cast("Iterable[Packet]", readable)):
            pass
    else:
        readable = Readable(capture.packet_blocks())
        dissection = Dissection(readable, options, **settings)
        criteria = filter_of(options)
        sink = Columns(batches, Demand.of(options, criteria))
        yield from _filled(batches, partial(dissection.into, sink), capture.first_ns, criteria)
    problems = [*capture.warnings, *([] if readable.fault is None else [readable.fault])]
    yield from batches.close(capture.sources, problems)
    return problems


def _of_own(
    part: Part,
    options: SourceOptions,
    batches: TableBatches,
    settings: Mapping[str, Any],
    problems: list[str],
) -> Iterator[tuple[str, Any]]:
    """The rows of the part's own files, read one after the other. Adds the problems of these to a list."""
    own = OwnExchanges(part, batches.log)
    dissection = Dissection(own.packets(options.limits), options, **{**settings, "observer": own})
    sink = Columns(batches, Demand.of(options, one_by_one=True))  # the steps have all exchanges

    def into(selects: Selects) -> Iterator[None]:
        return dissection.into(sink, lambda exchange: own.has(exchange) and selects(exchange), own.watch)

    yield from _filled(batches, into, part.first_ns, filter_of(options))
    yield from batches.close()
    problems += own.problems
    _check_read(own.failures, own.problems, options)


def _filled(
    batches: TableBatches,
    into: Callable[[Selects], Iterator[None]],
    first_ns: int | None,
    criteria: Filter,
) -> Iterator[tuple[str, Any]]:
    """The batches that are full while exchanges that match go into them."""
    if first_ns is not None:
        criteria.begin(first_ns)
    for _ in into(criteria.matches):
        yield from batches.filled()
    if unnamed := criteria.unnamed_topics():
        warnings.warn(unnamed, stacklevel=1)  # on the worker's stderr
