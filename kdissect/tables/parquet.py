"""Rows -> Parquet. A file holds the rows of the next row group: at most ``limits.export_rows``, unless the
caller flushes earlier. Needs pyarrow.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, BinaryIO

from kdissect.errors import UsageError
from kdissect.extras import install
from kdissect.tables.columns import OBJECT, Array, Struct
from kdissect.tables.lines import OPTIONAL
from kdissect.tables.native_rows import record_columns_plan
from kdissect.tables.table_files import GZ, NONE, ZST

try:
    import pyarrow as pa
    from pyarrow import parquet

    from kdissect.tables.arrow import RowBatch
except ImportError as error:
    raise UsageError(f"Parquet needs pyarrow: {install('parquet')}") from error

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from kdissect.exchanges.partition_records import DecodedBatch
    from kdissect.limits import Limits
    from kdissect.sinks.plan import PlanContext, RecordPlan
    from kdissect.tables.arrow import Prepared
    from kdissect.tables.columns import Column, Type
    from kdissect.tables.form import Table
    from kdissect.tables.table_files import RowFile, SharedRows


_CHUNK_BYTES = 1000
"""What Arrow holds of a column of a row group until it writes the footer: measured with 50,000 of them."""
_CODECS = {NONE: "none", GZ: "gzip", ZST: "zstd"}


class ParquetFormat:
    """Parquet."""

    name = "parquet"
    suffix = ".parquet"
    using = "PARQUET"

    def __init__(self, compression: str, limits: Limits) -> None:
        self.compression = compression
        self._max_rows = limits.export_rows
        self._max_bytes = limits.export_bytes

    def columns(self, table: Table) -> tuple[Column, ...]:
        """The columns of a table in this format, which has bytes."""
        return table.binary_columns

    def open(self, file: BinaryIO, columns: Sequence[Column]) -> RowFile:
        """Start a file."""
        return _ParquetFile(file, columns, _CODECS[self.compression], self._max_rows)

    def shared(self, columns: Sequence[Column]) -> SharedRows:
        """The next row group, to which the core adds rows."""
        return RowBatch(columns, (self._max_rows, self._max_bytes + 1))

    def record_plan(self, context: PlanContext, columns: Sequence[Column]) -> RecordPlan:
        """What the core must know to add records."""
        return record_columns_plan(context, columns, OPTIONAL)

    def concatenate(self, file: BinaryIO, parts: Iterable[BinaryIO]) -> None:
        """Write the rows of other files, in larger row groups. Holds one of these."""
        writer: Any = None
        held: list[Any] = []
        for part in map(parquet.ParquetFile, parts):
            writer = writer or parquet.ParquetWriter(
                file, part.schema_arrow, compression=_CODECS[self.compression]
            )
            for number in range(part.num_row_groups):
                group = part.read_row_group(number)
                rows, size = (sum(getattr(each, name) for each in held) for name in ("num_rows", "nbytes"))
                if held and (rows + group.num_rows > self._max_rows or size + group.nbytes > self._max_bytes):
                    writer.write_table(pa.concat_tables(held))
                    held.clear()
                held.append(group)
        if held:
            writer.write_table(pa.concat_tables(held))
        if writer is not None:
            writer.close()


def _paths(name: str, kind: Type) -> list[str]:
    """The Parquet paths of a column's leaves."""
    if isinstance(kind, Array):
        return _paths(f"{name}.list.element", kind.element)
    if isinstance(kind, Struct):
        return [path for inner, of in kind.fields for path in _paths(f"{name}.{inner}", of)]
    return [name]


class _ParquetFile:
    """Writes row groups; holds the rows of the next one."""

    def __init__(self, file: BinaryIO, columns: Sequence[Column], codec: str, max_rows: int) -> None:
        self._batch = RowBatch(columns)
        # The minimum and maximum of bodies are useless, and finding them takes six copies of a large body.
        useful = [
            path for column in columns if column.type != OBJECT for path in _paths(column.name, column.type)
        ]
        self._writer = parquet.ParquetWriter(
            file, self._batch.schema, compression=codec, write_statistics=useful
        )
        self._max_rows = max_rows
        self._chunk_bytes = _CHUNK_BYTES * sum(len(_paths(column.name, column.type)) for column in columns)
        self.footer = 0

    @property
    def held(self) -> int:
        """About how many bytes of rows are not written yet."""
        return self._batch.held

    def share(self, rows: RowBatch) -> None:
        """Write the rows of this batch, to which the core adds some too."""
        self._batch = rows

    def feed(self, row: Any) -> None:
        """Add a row."""
        self._batch.feed(row)
        self._flush_full()

    def settle(self) -> int:
        """Write a row group if it is full, see ``RowFile``."""
        added = self._batch.uncounted
        self._flush_full()
        return added

    def _flush_full(self) -> None:
        if self._batch.rows >= self._max_rows:
            self.flush()

    def prepare(self, records: DecodedBatch) -> Prepared:
        """Convert all records of a batch, see ``RowFile``."""
        return self._batch.prepare(records)

    def feed_some(self, prepared: Prepared, start: int, room: int) -> int:
        """Add some of them, see ``RowFile``."""
        stop = self._batch.feed_some(prepared, start, self._max_rows - self._batch.rows, room)
        self._flush_full()
        return stop

    def flush(self) -> None:
        """Write a row group."""
        if self._batch.rows:
            self._writer.write_batch(self._batch.take())
            self.footer += self._chunk_bytes

    def close(self) -> None:
        """Write the rest, and the footer."""
        self.flush()
        self._writer.close()
