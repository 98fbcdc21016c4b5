"""Exchanges -> the rows of an export, such that only writing is left for the parent. Holds what the makers of
rows do, and the connections that are open.

A row travels as a tuple: the values of the columns that folders can be named after, then for JSON its line;
for Parquet the values of all columns, bodies as JSON.
"""

from __future__ import annotations

from dataclasses import replace
from operator import itemgetter
from typing import TYPE_CHECKING, Any

import orjson

from kdissect.exchanges.partition_records import OpenBatch
from kdissect.parallel.worker import Selected
from kdissect.tables.columns import OBJECT
from kdissect.tables.export import Export
from kdissect.tables.lines import JsonLines
from kdissect.tables.others import TopicIds
from kdissect.tables.table_files import JsonFile, JsonFormat
from kdissect.tables.values import json_bytes

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from typing import BinaryIO

    from kdissect.exchanges.ordering import Over
    from kdissect.limits import Limits
    from kdissect.model import Exchange
    from kdissect.query.records import Records
    from kdissect.tables.columns import Column
    from kdissect.tables.form import Table
    from kdissect.tables.rows import Row, TableRows
    from kdissect.tables.table_files import Format, RowFile

    Maker = Callable[[Any], tuple[Any, ...]]

_FOLDERS = ("date", "api")
_TOPIC_IDS = "topic_ids"


class Lines(JsonFormat):
    """JSON lines that are made already."""

    def columns(self, table: Table) -> tuple[Column, ...]:
        """The columns of a table; of those that folders are named after it is known where they stand."""
        return tuple(
            replace(column, get=itemgetter(_FOLDERS.index(column.name)))
            if column.name in _FOLDERS
            else column
            for column in super().columns(table)
        )

    def open(self, file: BinaryIO, columns: Sequence[Column]) -> RowFile:
        """Begin a file."""
        return _LineFile(file, columns, self.compression)


class _LineFile(JsonFile):
    def feed(self, row: tuple[Any, ...]) -> None:
        """Take a line."""
        self.lines.add(row[-1])


class Values:
    """Parquet of values that were read already."""

    def __init__(self, form: Format) -> None:
        self.name, self.compression, self.suffix, self.using = (
            form.name,
            form.compression,
            form.suffix,
            form.using,
        )
        self._form = form

    def columns(self, table: Table) -> tuple[Column, ...]:
        """The columns of a table, and where their values stand."""
        return tuple(
            replace(column, get=itemgetter(place)) for place, column in enumerate(self._form.columns(table))
        )

    def open(self, file: BinaryIO, columns: Sequence[Column]) -> RowFile:
        """Begin a file."""
        written = [
            replace(column, get=_written(column.get)) if column.type == OBJECT else column
            for column in columns
        ]
        return self._form.open(file, written)


def ready(form: Format) -> Format:
    """The format for rows that a worker made."""
    return Lines(form.compression) if isinstance(form, JsonFormat) else Values(form)


def maker(form: Format, table: Table, partition_by: Sequence[str]) -> Maker:
    """What makes a row of a table ready for its file."""
    columns = form.columns(table)
    if not isinstance(form, JsonFormat):
        return _values(columns)
    by_name = {column.name: column.get for column in columns}
    folders: list[Callable[[Any], Any]] = [by_name.get(name, _nothing) for name in _FOLDERS]
    written: list[bytes] = []
    inside = [column for column in columns if column.name not in partition_by]
    feed = JsonLines(written.append, columns=inside, flush_each=True).feed

    def line(row: Any) -> tuple[Any, ...]:
        feed(row)
        return (*(get(row) for get in folders), written.pop())

    return line


def _nothing(_row: Any) -> None:
    """The table has no such column."""


def _values(columns: Sequence[Column]) -> Maker:
    getters = [_json_of(column.get) if column.type == OBJECT else column.get for column in columns]
    return lambda row: tuple([get(row) for get in getters])


def _json_of(get: Callable[[Any], Any]) -> Callable[[Any], bytes | None]:
    def json(row: Any) -> bytes | None:
        value = get(row)
        return None if value is None else json_bytes(value)

    return json


def _written(get: Callable[[Any], bytes | None]) -> Callable[[Any], orjson.Fragment | None]:
    """Read what is JSON already."""

    def fragment(row: Any) -> orjson.Fragment | None:
        json = get(row)
        return None if json is None else orjson.Fragment(json)

    return fragment


class Rows(Selected):
    """A worker's: rows for all tables.

    Args:
        takes: whether an exchange was asked for.
        tables: makes the rows.
        makers: of each table, what makes them ready.
        records: found the records of exchanges.
        census: whether to tell how many packets there were: one worker does.
    """

    def __init__(
        self,
        takes: Callable[[Exchange], bool],
        tables: TableRows,
        makers: Mapping[str, Maker],
        records: Records,
        *,
        census: bool,
    ) -> None:
        super().__init__(takes)
        self._tables = tables
        self._makers = makers
        self._records = records
        self._census = census

    def feed(self, exchange: Exchange) -> Any:
        """Rows of an exchange; none of one that was not asked for."""
        if self._takes(exchange):
            return 1, self._ready(self._tables.feed(exchange)), False
        return 0, self._ready(self._tables.pass_over(exchange)), False

    def over(self, over: Over) -> Any:
        """Rows of a connection."""
        return 0, self._ready(self._tables.over(over.connection, over.dialogue, over.end)), True

    def end(self) -> Any:
        """Rows of connections whose end was not reached, and what is known of records and packets."""
        rest = self._ready(self._tables.close((), ()))
        return rest, self._records.told(), self._tables.log.census if self._census else None

    def _ready(self, rows: Iterable[Row]) -> list[tuple[str, tuple[Any, ...], tuple[str, str] | None]]:
        makers = self._makers
        return [
            (name, makers[name](each), (row.topic_id, row.topic) if name == _TOPIC_IDS else None)
            for name, row in rows
            for each in (row if isinstance(row, OpenBatch) else (row,))
        ]


class SharedExport(Export):
    """The parent's: writes rows that workers made ready."""

    def begin(self, form: Format, limits: Limits) -> Mapping[str, Maker]:
        """Say what format the files have in the end; get what makes rows of each table ready."""
        self._makers = {
            name: maker(form, table.table, table.partition_by) for name, table in self._files.items()
        }
        self._topic_ids = TopicIds(limits)
        self._behind: list[Any] = []  # rows of connections; they stand behind those of the next exchange
        return self._makers

    def take(self, made: Sequence[Any]) -> None:
        """Write what workers made."""
        for _, rows, is_over in made:
            if is_over:
                self._behind += rows
                continue
            self.put(rows)
            if self._behind:
                self.put(self._behind)
                self._behind = []

    def put(self, rows: Iterable[Any]) -> None:
        """Write rows; pairs of topic id and name once."""
        files, topic_ids = self._files, self._topic_ids
        for name, row, pair in rows:
            if pair is None or topic_ids.is_new(pair):
                files[name].feed(row)

    def _write(self, rows: Iterable[Row]) -> None:
        self.put(self._behind)
        self._behind = []
        for name, row in rows:
            self._files[name].feed(self._makers[name](row))
