"""Exports for tests: made in this process, read back as plain rows."""

from __future__ import annotations

import base64
import gzip
from datetime import UTC
from typing import TYPE_CHECKING, Any

import orjson
import zstandard

from kdissect.capture.reader import open_capture
from kdissect.limits import DEFAULT
from kdissect.options import WHOLE, WINDOW, ExportOptions, Options
from kdissect.pipeline import Dissection, learned_from
from kdissect.query.record_filters import RecordCriteria, RecordFilter
from kdissect.query.records import Records
from kdissect.stats.connection_log import ConnectionLog
from kdissect.tables.columns import BINARY, DATE, OBJECT, TIMESTAMP
from kdissect.tables.export import Export, ExportJob
from kdissect.tables.lines import JsonLines
from kdissect.tables.parquet import ParquetFormat
from kdissect.tables.rows import TABLES
from kdissect.tables.table_files import JsonFormat, TableFiles

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from datetime import datetime
    from pathlib import Path

    from kdissect.capture.reader import Capture
    from kdissect.limits import Limits
    from kdissect.model import Packet
    from kdissect.tables.columns import Type
    from kdissect.tables.form import Table
    from kdissect.tables.table_files import Format

Row = dict[str, Any]

_ALONE = Options(end_to_end=True, names=WINDOW)

BIG = 1 << 40
FORMS: dict[str, Format] = {
    "none": JsonFormat("none"),
    "gz": JsonFormat("gz"),
    "zst": JsonFormat("zst"),
    "parquet": ParquetFormat("zst", DEFAULT),
}
JOB = {"captures": [{"path": "x", "bytes": 1, "modified": None}], "options": {}, "limits": {}}


def table_files(directory: Path, table: Table, form: Format, **options: Any) -> TableFiles:
    """The files of a table, of any size unless said otherwise."""
    return TableFiles(directory, table, form, **{"rotate_bytes": BIG, "limits": DEFAULT, **options})


def exports(
    directory: Path, forms: Sequence[str], tables: Sequence[str] = tuple(TABLES), limits: Limits = DEFAULT
) -> tuple[ConnectionLog, dict[str, Export]]:
    """An export in each of these formats, in a separate directory; the log belongs to the first."""
    logs = [ConnectionLog(limits) for _ in forms]
    writers = {}
    for name, log in zip(forms, logs, strict=True):
        form = FORMS[name]
        export = ExportOptions(directory / name, form.name, form.compression, tuple(tables), rotate_bytes=BIG)
        job = ExportJob(Options(limits), export)
        writers[name] = Export(job, job.files(), JOB, log, Records(RecordFilter(RecordCriteria())))
    return logs[0], writers


def export_capture(path: Path, directory: Path, forms: Sequence[str]) -> list[Row]:
    """Export a capture in each of these formats, from one dissection.

    Returns:
        What ``read --json`` shows of it.
    """
    options = Options(end_to_end=True, names=WHOLE)
    with open_capture(path) as capture:
        return export_packets(capture, directory, forms, capture, options)


def export_packets(
    packets: Iterable[Packet],
    directory: Path,
    forms: Sequence[str],
    capture: Capture | None = None,
    options: Options = _ALONE,
) -> list[Row]:
    """The same of packets, which need not be of a capture."""
    shown: list[bytes] = []
    lines = JsonLines(shown.append)
    log, writers = exports(directory, forms)
    others = [export.tables.log for export in writers.values() if export.tables.log is not log]
    learned = None
    if capture is not None and options.names == WHOLE:
        learned = learned_from([source.name for source in capture.sources], options)
    observer = _Several(log, others)
    for exchange in Dissection(log.watch(packets), options, observer=observer, learned=learned):  # type: ignore[arg-type]
        lines.feed(exchange)
        for export in writers.values():
            export.feed(exchange)
    lines.close()
    for export in writers.values():
        export.tables.log.census = log.census
        sources = () if capture is None else capture.sources
        export.close(sources, () if capture is None else capture.warnings, complete=True, packets=0)
    return [orjson.loads(line) for line in b"".join(shown).splitlines()]


class _Several:
    """Passes on to several logs what one gets."""

    def __init__(self, first: ConnectionLog, others: Sequence[ConnectionLog]) -> None:
        self._logs = (first, *others)

    def connection(self, *arguments: Any) -> None:
        for log in self._logs:
            log.connection(*arguments)

    def unopened_connection(self, *arguments: Any, is_listener: bool) -> None:
        for log in self._logs:
            log.unopened_connection(*arguments, is_listener=is_listener)


def unpacked(path: Path) -> bytes:
    """What stands in a file of JSON lines."""
    data = path.read_bytes()
    if path.suffix == ".gz":
        return gzip.decompress(data)
    if path.suffix == ".zst":
        with zstandard.ZstdDecompressor().stream_reader(data, read_across_frames=True) as reader:
            return reader.read()
    return data


def lines(directory: Path) -> Iterator[bytes]:
    """The rows of a table in any format, each after its partition; parts in their order."""
    for path in sorted(directory.rglob("part-*")):
        partition = str(path.parent.relative_to(directory)).encode()
        if path.suffix == ".parquet":
            from pyarrow import parquet

            rows = [repr(row).encode() for row in parquet.ParquetFile(path).read().to_pylist()]
        else:
            rows = unpacked(path).splitlines()
        yield from (partition + b" " + row for row in rows)


def part(directory: Path) -> Path:
    """The only file of a table."""
    (path,) = directory.glob("part-*")
    return path


def json_rows(directory: Path) -> list[Row]:
    """The rows of a table in JSON lines, parts in their order."""
    parts = sorted(directory.rglob("part-*"), key=lambda path: path.name)
    return [orjson.loads(line) for path in parts for line in unpacked(path).splitlines()]


def parquet_rows(directory: Path, table: Table) -> list[Row]:
    """The rows of a table in Parquet, as JSON lines would have them."""
    from pyarrow import parquet

    rows = [row for path in sorted(directory.rglob("part-*")) for row in parquet.read_table(path).to_pylist()]
    for column in table.binary_columns:
        name, change = column.name, AS_JSON.get(column.type)
        if change is not None:
            for row in rows:
                if row.get(name) is not None:
                    row[name] = change(row[name], row.get(f"{name}_encoding"))
    return rows


def as_json(value: Any, kind: Type, name: str, row: Row) -> Any:
    """A value of Parquet as JSON lines have it."""
    change = AS_JSON.get(kind)
    return value if value is None or change is None else change(value, row.get(f"{name}_encoding"))


def _time(value: datetime, _: object) -> str:
    return f"{value.astimezone(UTC):%Y-%m-%dT%H:%M:%S.%f}Z".rjust(27, "0")


def _binary(value: bytes, encoding: str | None) -> str:
    return base64.b64encode(value).decode() if encoding == "base64" else value.decode()


AS_JSON: dict[Type, Callable[[Any, str | None], Any]] = {
    TIMESTAMP: _time,
    DATE: lambda value, _: value.isoformat(),
    OBJECT: lambda value, _: orjson.loads(value),
    BINARY: _binary,
}
"""Values of Parquet as JSON lines have them, by the type of their column, with that of its encoding."""
