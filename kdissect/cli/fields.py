"""``kdissect fields``: the names that ``--where`` and ``--fields`` know, with type and meaning."""

from __future__ import annotations

from fnmatch import fnmatchcase
from textwrap import fill, indent
from typing import TYPE_CHECKING, NamedTuple

import click
import orjson

from kdissect.cli.help import command
from kdissect.cli.terminal import output, width
from kdissect.errors import UsageError
from kdissect.kafka import apis, schema
from kdissect.nearest import did_you_mean
from kdissect.tables.columns import ALIASES, EXCHANGE, OBJECT, RECORD, TCP_STREAM

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from kdissect.kafka.schema import Field

EXAMPLES = """\b
Examples:
  kdissect fields                        every column, and every field of every request and response
  kdissect fields '*throttle*'           those with a matching name
  kdissect fields request.topics         those that contain this text
  kdissect read -e time,client_id,response.throttle_time_ms capture.pcap
"""
_MEANING = 30  # least width for a meaning beside its name; in less it goes below
_INDENT = 6  # indentation of a meaning below its name
_PATTERN_CHARACTERS = frozenset("*?[")


class _Name(NamedTuple):
    """A row: where a name can be used, the name itself, its type, unit and meaning, the APIs that have it."""

    table: str
    name: str
    type: str
    unit: str
    meaning: str
    apis: Sequence[str]


@command(epilog=EXAMPLES)
@click.argument("pattern", required=False)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
def fields(pattern: str | None, as_json: bool) -> None:
    """List the columns and fields for filters and --fields.

    PATTERN is part of a name, or a glob: '*throttle*'. Columns of exchanges and records come first, then the
    fields of requests and responses, each with the APIs that have it.
    """
    names = [name for name in _names() if pattern is None or _matches(name.name, pattern)]
    if not names:
        assert pattern is not None
        last_parts = {part for name in _names() for part in name.name.split(".")}
        raise UsageError(f'no column or field matches "{pattern}"{did_you_mean(pattern, last_parts)}')
    with output() as out:
        if as_json:
            document = [name._asdict() for name in names]
            out.write(orjson.dumps(document, option=orjson.OPT_INDENT_2).decode() + "\n")
        else:
            out.writelines(_lines(names, width(out)))


def _matches(name: str, pattern: str) -> bool:
    return fnmatchcase(name, pattern) if _PATTERN_CHARACTERS & set(pattern) else pattern in name


def _names() -> Iterator[_Name]:
    for column in EXCHANGE:
        yield _Name("exchange", column.name, str(column.type), column.unit, column.description, ())
    yield _Name("exchange", TCP_STREAM.name, str(TCP_STREAM.type), "", TCP_STREAM.description, ())
    for column in ALIASES.values():
        yield _Name(
            "exchange", column.name, str(column.type), column.unit, f"{column.description} Filters only.", ()
        )
    for column in RECORD:
        yield _Name("record", column.name, str(column.type), column.unit, column.description, ())
    for message in (column.name for column in EXCHANGE if column.type == OBJECT):
        yield from _body_fields(message)


def _body_fields(message: str) -> Iterator[_Name]:
    by_path: dict[str, tuple[Field, list[str]]] = {}
    for api in apis.all_apis():
        layout = schema.request(api.key) if message == "request" else schema.response(api.key)
        definitions = () if layout is None else (layout.fields, *(draft.fields for draft in layout.drafts))
        for definition in definitions:
            for path, field in _paths(definition, message):
                _, users = by_path.setdefault(path, (field, []))
                if api.name not in users:
                    users.append(api.name)
    for path in sorted(by_path):
        field, users = by_path[path]
        kind = f"array<{field.type}>" if field.array else field.type
        yield _Name(message, path, kind, "", field.comment, users)


def _paths(fields: Sequence[Field], parent: str) -> Iterator[tuple[str, Field]]:
    for field in fields:
        path = f"{parent}.{field.name}"
        yield path, field
        yield from _paths(field.fields, path)


def _lines(names: Sequence[_Name], max_width: int | None) -> Iterator[str]:
    name_width = max(len(name.name) for name in names)
    type_width = max(len(name.type) for name in names)
    last_table = ""
    for name in names:
        if name.table != last_table:
            heading = "Fields" if name.apis else "Columns"
            yield f"{'' if not last_table else chr(10)}{heading} of {_TABLES[name.table]}\n"
            last_table = name.table
        users = ", ".join(name.apis[:3]) + (f" and {len(name.apis) - 3} more" if len(name.apis) > 3 else "")
        meaning = "  ".join(filter(None, (users, name.meaning.replace("`", ""))))
        line = f"  {name.name:{name_width}}  {name.type:{type_width}}  "
        if max_width is None:
            yield f"{line}{meaning}\n"
        elif max_width - len(line) >= _MEANING:
            yield fill(meaning, max_width, initial_indent=line, subsequent_indent=" " * len(line)) + "\n"
        else:
            yield f"{line.rstrip()}\n{indent(fill(meaning, max_width - _INDENT), ' ' * _INDENT)}\n"


_TABLES = {
    "exchange": "exchanges (read, summary, export, live)",
    "record": "records (records)",
    "request": "requests",
    "response": "responses",
}
