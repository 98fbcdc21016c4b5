"""Captures -> exchanges, tables and summaries for programs in Python: what ``kdissect.read`` and
``kdissect.summarize`` return. Holds what a dissection does, and the rows of the next Arrow batch.
"""

from __future__ import annotations

import os
import sys
import warnings
from contextlib import closing, contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from kdissect.capture.inputs import STDIN, captures
from kdissect.capture.reader import open_capture
from kdissect.errors import UsageError
from kdissect.limits import DEFAULT, SECOND_NS, Limits
from kdissect.options import WHOLE, WINDOW, Options
from kdissect.pipeline import learned_from
from kdissect.runs.run import Here, Query, Run, Selection, faults_named
from kdissect.sinks.columns import Columns
from kdissect.stats import summarizer
from kdissect.stats.traffic import BY
from kdissect.tables.columns import filter_of
from kdissect.tls.keylog import searchable

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Sequence

    from kdissect.model import Exchange
    from kdissect.stats.document import Summary
    from kdissect.stats.survey import Survey
    from kdissect.tables.arrow import ExchangeBatches

    Path = str | os.PathLike[str]


class Exchanges:
    """The exchanges of captures. Each use reads the captures anew: iterating, or making a table.

    A table has the columns of ``read --json`` (docs/columns.md), or those that are named; a row is an
    exchange, in order of completion. It is made in batches, which ``to_arrow`` returns one by one. Python's
    warnings say what could not be read.

    Args:
        paths: of the captures.
        options: what to dissect, and which exchanges to select.
    """

    def __init__(self, paths: tuple[str, ...], options: Options) -> None:
        self._paths = paths
        self._options = options
        _query(paths, options)  # for each use again: a filter counts what it matches

    def __iter__(self) -> Iterator[Exchange]:
        with _opened(_query(self._paths, self._options)) as run:
            selects = Selection.of(run.query)
            yield from run.dissection if selects is None else filter(selects, run.dissection)

    def __repr__(self) -> str:
        where = self._options.where
        paths = ", ".join(map(repr, self._paths[:3])) + ", ..." * (len(self._paths) > 3)
        return f"<Exchanges of {paths}{'' if where is None else f' where {where}'}>"

    def to_arrow(self, columns: Iterable[str] | None = None) -> Any:
        """The exchanges as a ``pyarrow.RecordBatchReader``, which reads the captures while it is read.

        Args:
            columns: their names, in order; None: all.

        Raises:
            UsageError: there is no such column, or no pyarrow.
            CaptureError: no packet can be read; while the batches are read.
        """
        pyarrow = _need("pyarrow", "to_arrow")
        from kdissect.tables.arrow import ExchangeBatches

        batches = ExchangeBatches(columns, self._options.limits)
        return pyarrow.RecordBatchReader.from_batches(batches.schema, self._batches(batches))

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
        """For libraries that take Arrow streams: ``polars.DataFrame(exchanges)``."""
        return self.to_arrow().__arrow_c_stream__(requested_schema)

    def to_pandas(self, columns: Iterable[str] | None = None) -> Any:
        """The exchanges as a ``pandas.DataFrame``. Arguments and errors as for ``to_arrow``."""
        _need("pandas", "to_pandas")
        return self.to_arrow(columns).read_pandas()

    def to_polars(self, columns: Iterable[str] | None = None) -> Any:
        """The exchanges as a ``polars.DataFrame``. Arguments and errors as for ``to_arrow``."""
        return _need("polars", "to_polars").DataFrame(self.to_arrow(columns))

    def summarize(
        self,
        *,
        by: Iterable[str] = (),
        parts: Iterable[str] | None = None,
        interval_s: float = 0,
        slowest: int = 10,
    ) -> Summary:
        """See ``kdissect.summarize``."""
        limits = self._options.limits
        counter = summarizer.Summarizer(
            limits,
            by=frozenset(by),
            parts=frozenset(summarizer.PARTS if parts is None else parts),
            interval_ns=round(interval_s * SECOND_NS),
            slowest=slowest,
        )
        query = _query(self._paths, replace(self._options, names=WHOLE))
        sink = counter.sink(query.options, query.filter)
        with _opened(query, sink.connections) as run:
            run.into(sink)
            totals = run.totals
            check = totals.check_document(sink.connections)
            return counter.close(self._paths, totals.counts, totals.skipped, check)

    def _batches(self, batches: ExchangeBatches) -> Iterator[Any]:
        with _opened(_query(self._paths, self._options)) as run:
            sink = Columns(batches, run.demand())
            with closing(run.dissection.into(sink, Selection.of(run.query))) as turns:
                for _ in turns:
                    yield from batches.filled()
            yield from batches.close()


def _query(paths: tuple[str, ...], options: Options) -> Query:
    query = Query(paths, options, filter_of(options), no_progress=True, are_files=True)
    if query.filter.is_about_topics:
        query = replace(query, options=replace(options, names=WHOLE))
    return query.with_fields(())


@contextmanager
def _opened(query: Query, observer: Survey | None = None) -> Iterator[Run]:
    with faults_named(query):
        learned = learned_from(query.paths, query.options) if query.options.names == WHOLE else None
        with open_capture(*query.paths, limits=query.limits) as capture:
            run = Run(query, capture, capture.packet_blocks(), sys.stdout)
            run.place = Here(run, observer=observer, learned=learned)
            with faults_named(query, run.readable):
                yield run
            for problem in run.totals.problems:
                warnings.warn(problem, stacklevel=4)


def read(
    paths: Path | Iterable[Path],
    *,
    where: str | None = None,
    names: str = WINDOW,
    ports: Collection[int] = (),
    kafka_ports: Collection[int] = (),
    key_logs: Sequence[Path] = (),
    cluster: str | None = None,
    show_secrets: bool = False,
    limits: Limits = DEFAULT,
) -> Exchanges:
    """Read captures: iterate over the result, or make a table of it (``to_pandas``, ``to_polars``,
    ``to_arrow``).

    Args:
        paths: one or more files, directories, globs or URLs, as on the command line. Several are merged by
            time.
        where: an expression that selects exchanges (docs/filters.md): ``'api == "Fetch" and errors != []'``.
        names: ``whole`` reads the captures twice, so that topic IDs get the names that come later;
            ``window`` only if ``where`` compares names of topics.
        ports: only connections with one of these ports; empty: all.
        kafka_ports: connections with one of these ports are Kafka, whatever their content.
        key_logs: files with secrets of TLS sessions (docs/tls.md).
        cluster: ID or name of the cluster, if it is not learned.
        show_secrets: do not redact credentials in bodies.
        limits: of memory.

    Raises:
        UsageError: an argument is invalid; the message says how it is written.
        CaptureError: a directory has no captures; while it is read, that no packet can be read.
    """
    if names not in (WHOLE, WINDOW):
        raise UsageError(f'names are "{WHOLE}" or "{WINDOW}", not {names!r}')
    given = [paths] if isinstance(paths, (str, os.PathLike, bytes)) or paths is None else paths
    files = captures(map(_path, given))
    if STDIN in files:
        raise UsageError('read takes files; for a pipe: dissect(open_capture("-"))')
    if not files:
        raise UsageError("no capture given")
    options = Options(
        limits,
        frozenset(ports),
        frozenset(kafka_ports),
        show_secrets,
        where=where,
        cluster=cluster,
        names=names,
        key_logs=tuple(map(_path, [key_logs] if isinstance(key_logs, (str, os.PathLike)) else key_logs)),
        pcapng_files=searchable(files),
    )
    return Exchanges(files, options)


def summarize(
    source: Path | Exchanges | summarizer.Dissected | Iterable[Exchange],
    *,
    limits: Limits = DEFAULT,
    by: Iterable[str] = (),
    parts: Iterable[str] | None = None,
    interval_s: float = 0,
    slowest: int = 10,
) -> Summary:
    """Summarize a capture, or exchanges.

    Args:
        source: the paths of captures, as for ``read``, or what ``read`` returned: the document of ``summary
            --json``. A ``Dissection``, which must not have begun if ``parts`` has findings or connections. Or
            any exchanges, of which only those are counted.
        limits: sizes of the tables; those of a result of ``read`` are given there.
        by: further tables: ``partition``, ``group``, ``connection``.
        parts: optional parts: names of ``PARTS``. None: of captures all, of exchanges none.
        interval_s: length of an interval of the time series in seconds; 0: none.
        slowest: number of slowest exchanges to list.

    Raises:
        UsageError: there is no such table or part.
    """
    _check_names("by", by, BY)
    _check_names("parts", parts or (), summarizer.PARTS)
    if isinstance(source, (str, os.PathLike)):
        source = read(source, limits=limits)
    if isinstance(source, (list, tuple)) and source and isinstance(source[0], (str, os.PathLike)):
        source = read(source, limits=limits)
    if isinstance(source, Exchanges):
        return source.summarize(by=by, parts=parts, interval_s=interval_s, slowest=slowest)
    return summarizer.summarize(
        source, limits=limits, by=by, parts=parts or (), interval_s=interval_s, slowest=slowest
    )


def _path(path: Any) -> str:
    if not isinstance(path, (str, os.PathLike)):
        raise UsageError(f"a path is a str or os.PathLike, not {type(path).__name__}")
    return os.fspath(path)


def _check_names(argument: str, names: Iterable[str], known: Collection[str]) -> None:
    if isinstance(names, str):
        raise UsageError(f'{argument} is a list: {argument}=["{names}"]')
    for name in names:
        if name not in known:
            raise UsageError(f'{argument}: unknown "{name}"; known: {", ".join(known)}')


def _need(package: str, method: str) -> Any:
    from importlib import import_module

    try:
        return import_module(package)
    except ImportError as error:
        raise UsageError(f"{method} needs {package}: pip install {package}") from error
