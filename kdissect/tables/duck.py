"""The directory of an export -> its tables on DuckDB, for queries that end before Spark has started.

``MACROS`` defines the functions of Spark that SQL for both uses. Holds what fits into DuckDB's share of the
memory, 80%; the rest is in a temporary directory.
"""

from __future__ import annotations

import base64
import tempfile
from contextlib import contextmanager
from datetime import UTC, date, datetime
from decimal import Decimal
from importlib import metadata
from importlib.util import find_spec
from itertools import groupby
from operator import itemgetter
from typing import TYPE_CHECKING, Any

from kdissect.errors import UsageError, WriteError
from kdissect.extras import install
from kdissect.tables import spark_schema

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    from kdissect.tables.columns import Column

MACROS = """create or replace macro unix_micros(time) as epoch_us(time);
create or replace macro timestamp_micros(us) as make_timestamptz(cast(us as bigint));
create or replace macro pmod(a, b) as ((a % b) + b) % b;
create or replace macro percentile_approx(x, rank) as quantile_disc(x, rank),
  (x, rank, accuracy) as quantile_disc(x, rank);
create or replace macro shiftleft(a, b) as a << b;
create or replace macro shiftright(a, b) as a >> b;
create or replace macro struct(middle, count) as {'middle': middle, 'count': count};
create or replace macro explode(list) as unnest(list);
create or replace macro explode_outer(list) as unnest(case when len(list) > 0 then list else [null] end);
create or replace macro size(list) as len(list);
create or replace macro array_except(a, b) as list_filter(a, lambda each: not list_contains(b, each));
create or replace macro collect_list(x) as list(x);
create or replace macro sort_array(list) as list_sort(list);
"""
_SETTINGS = {
    "autoinstall_known_extensions": "false",  # nothing is downloaded
    "default_null_order": "nulls_first_on_asc_last_on_desc",  # as Spark does
    "TimeZone": "UTC",
}
_BATCH_ROWS = 10_000
_NAMES = {
    "integer": "int",
    "varchar": "string",
    "blob": "binary",
    "timestamp with time zone": "timestamp",
    "hugeint": "decimal(38,0)",
}
"""Spark's names of types that DuckDB calls differently."""


class DuckFrame:
    """A query, with what commands and jobs use of a data frame."""

    def __init__(self, connection: Any, relation: Any) -> None:
        self.connection = connection
        self._relation = relation

    @property
    def columns(self) -> list[str]:
        return list(self._relation.columns) if self._relation is not None else []

    @property
    def dtypes(self) -> list[tuple[str, str]]:
        """Columns, and their types as Spark names them."""
        return [(name, _type(kind)) for name, kind in zip(self.columns, self._relation.types, strict=True)]

    def rows(self, max_rows: int | None = None) -> Iterator[list[Any]]:
        """The values of each row, as JSON has them; at most ``max_rows``."""
        if self._relation is None:  # the result of a statement such as CREATE VIEW
            return
        relation = self._relation if max_rows is None else self._relation.limit(max_rows)
        with _one_line_errors():
            for batch in relation.to_arrow_reader(_BATCH_ROWS):
                for row in zip(*(column.to_pylist() for column in batch.columns), strict=True):
                    yield [_plain(value) for value in row]

    def unionByName(self, other: DuckFrame) -> DuckFrame:  # noqa: N802  (Spark's name)
        """The rows of both, which have the same columns in any order."""
        names = ", ".join(f'"{name}"' for name in self.columns)
        return DuckFrame(self.connection, self._relation.union(other._relation.project(names)))

    def groups(self, keys: Sequence[str]) -> Iterator[Iterator[Any]]:
        """The rows with equal keys, as ``pyarrow.RecordBatch``; take one group before the next."""
        reader = self._relation.order(", ".join(keys)).to_arrow_reader(_BATCH_ROWS)
        with _one_line_errors():
            parts = (part for batch in reader for part in _runs(batch, keys))
            for _, same in groupby(parts, key=itemgetter(0)):
                yield (part for _, part in same)

    def create_view(self, name: str) -> None:
        self._relation.create_view(name, replace=True)

    def write_parquet(self, file: Path) -> None:
        """Write a file, which gets its name when it is complete.

        Raises:
            OutputError: the file cannot be written.
        """
        unfinished = file.with_name(f".{file.name}.unfinished")
        try:
            file.parent.mkdir(parents=True, exist_ok=True)
            with _one_line_errors():
                self._relation.write_parquet(str(unfinished), compression="zstd")
            unfinished.replace(file)
        except OSError as error:
            raise WriteError.of(file, error) from None
        finally:
            unfinished.unlink(missing_ok=True)


def _runs(batch: Any, keys: Sequence[str]) -> Iterator[tuple[Any, Any]]:
    """The keys and rows of each run of rows with equal keys."""
    values = zip(*(batch.column(name).to_pylist() for name in keys), strict=True)
    start = 0
    for key, same in groupby(values):
        count = sum(1 for _ in same)
        yield key, batch.slice(start, count)
        start += count


def why_not() -> str | None:
    """Why DuckDB cannot be used; None if it can."""
    missing = [name for name in ("duckdb", "pyarrow") if find_spec(name) is None]
    return f"{' and '.join(missing)} not installed; {install('duckdb')}" if missing else None


def version() -> str:
    return metadata.version("duckdb")


@contextmanager
def connection() -> Iterator[Any]:
    """A database in memory."""
    import duckdb

    with (
        tempfile.TemporaryDirectory(prefix="kdissect-duckdb-") as directory,
        duckdb.connect(config={**_SETTINGS, "temp_directory": directory}) as database,
    ):
        database.execute(MACROS)
        yield database


def table(
    database: Any, files: Sequence[str], columns: Sequence[Column], form: str, partition_by: Sequence[str]
) -> DuckFrame:
    """A table of an export, from its files; a column that these lack is null."""
    from kdissect.tables import arrow

    known = spark_schema.in_directories(columns, partition_by)
    relation = database.from_arrow(arrow.schema(known).empty_table())
    types = dict(zip(relation.columns, map(str, relation.types), strict=True))
    files = sorted(files)
    if files and form == "parquet":
        from_files = database.read_parquet(files, hive_partitioning=True, union_by_name=True)
    elif files:
        from_files = database.read_json(
            files, columns=types, format="newline_delimited", hive_partitioning=True
        )
    else:
        return DuckFrame(database, relation)
    present = set(from_files.columns)
    values = {name: f'"{name}"' if name in present else "null" for name in types}
    cells = (f'cast({values[name]} as {kind}) as "{name}"' for name, kind in types.items())
    return DuckFrame(database, from_files.project(", ".join(cells)))


def sql(database: Any, text: str) -> DuckFrame:
    """Run SQL.

    Raises:
        UsageError: DuckDB rejects it.
    """
    text = text.replace(") ignore nulls", " ignore nulls)")
    with _one_line_errors():
        statements = database.extract_statements(text)
        if statements and _has_rows(statements[-1]):
            return DuckFrame(database, database.sql(text))
        database.execute(text)
    return DuckFrame(database, None)


def _has_rows(statement: Any) -> bool:
    """Whether the result of a statement is rows, not that of a statement such as CREATE VIEW."""
    from duckdb import ExpectedResultType

    return bool(statement.expected_result_type == [ExpectedResultType.QUERY_RESULT])


def tables_in(text: str, known: Mapping[str, Sequence[Column]]) -> set[str]:
    """The names of the tables in SQL.

    Args:
        text: statements.
        known: the columns of tables; there can be others, which cannot have known columns.

    Raises:
        UsageError: DuckDB rejects it.
    """
    from kdissect.tables import arrow

    names: set[str] = set()
    with connection() as database, _one_line_errors():
        for name, columns in known.items():
            database.from_arrow(arrow.schema(columns).empty_table()).create(name)
        for statement in database.extract_statements(text):
            names |= database.get_table_names(statement.query)
            if _has_rows(statement):
                database.sql(statement.query)  # finds unknown columns
            else:
                database.execute(statement.query)  # later statements may need it
    return names


def query(text: str, tables: Mapping[str, Any]) -> Any:
    """Run SQL on frames of one connection, by name."""
    for name, frame in tables.items():
        frame.create_view(name)
    return sql(next(iter(tables.values())).connection, text)


@contextmanager
def _one_line_errors() -> Iterator[None]:
    import duckdb

    try:
        yield
    except duckdb.Error as error:
        cause, _, _ = str(error).strip().partition("\n\n")  # then the line of the statement
        raise UsageError(" ".join(cause.splitlines())) from None


def _type(kind: Any) -> str:
    if kind.id == "list":
        return f"array<{_type(kind.children[0][1])}>"
    if kind.id == "map":
        return f"map<{','.join(_type(each) for _, each in kind.children)}>"
    if kind.id == "struct":
        return f"struct<{','.join(f'{name}:{_type(each)}' for name, each in kind.children)}>"
    return _NAMES.get(kind.id, str(kind).lower() if kind.id == "decimal" else kind.id)


def _plain(value: Any) -> Any:
    """A value as Spark's ``to_json`` has it."""
    if isinstance(value, datetime):
        return value.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ") if value.tzinfo else value.isoformat()
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, list):
        if value and isinstance(value[0], tuple):  # a map
            return {str(name): _plain(each) for name, each in value}
        return [_plain(each) for each in value]
    if isinstance(value, dict):
        return {name: _plain(each) for name, each in value.items()}
    if isinstance(value, Decimal):
        return int(value) if value == int(value) else float(value)
    if isinstance(value, date):
        return value.isoformat()
    if value is None or isinstance(value, (str, bool, int)) or (isinstance(value, float) and value == value):
        return value
    return "NaN" if isinstance(value, float) else str(value)
