"""``kdissect apis``: known APIs and versions as tables, and layouts as Kafka's protocol guide prints them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click
import orjson

from kdissect.cli.help import command
from kdissect.cli.terminal import output, width
from kdissect.errors import UsageError
from kdissect.kafka import apis as known
from kdissect.kafka import schema
from kdissect.kafka.compiler import source as decoder_source
from kdissect.kafka.grammar import grammar
from kdissect.kafka.layout import is_nullable, is_tagged, layout, split
from kdissect.kafka.vendors import vendor_apis
from kdissect.phrases import truncate, wrapped

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from kdissect.kafka.apis import Api
    from kdissect.kafka.schema import Draft, Field, Message
    from kdissect.kafka.vendors import VendorApi

EXAMPLES = """\b
Examples:
  kdissect apis                   every API: its versions, and the releases that have them
  kdissect apis Fetch             every version of one API
  kdissect apis fetch 13          the layout of one version, as the protocol guide prints it
  kdissect apis --source 1 13     the Python function that decodes it
  kdissect apis --json Fetch 13   its fields as JSON
  kdissect apis automq            the APIs that one vendor's brokers have besides Kafka's
"""


@command(epilog=EXAMPLES)
@click.argument("name", required=False)
@click.argument("version", required=False)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
@click.option("--source", "as_source", is_flag=True, help="Print the generated decoder of a version.")
def apis(name: str | None, version: str | None, as_json: bool, as_source: bool) -> None:
    """Show known APIs and versions, and their layouts.

    NAME is an API name or key: Fetch, find-coordinator, FIND_COORDINATOR, 10, or a former name. The APIs of
    other vendors (AutoMQ, Inkless, Redpanda) have no layouts.
    """
    others = vendor_apis(name)
    api = None if name is None or others else known.find(name)
    if others and (version is not None or (as_source and name is not None)):
        raise UsageError(f"the layouts of {others[0].name} are not known")
    number = None if api is None or version is None else _version(api, version)
    if as_source and (api is None or number is None):
        raise click.UsageError("--source needs an API name and a version")
    if as_source and as_json:
        raise click.UsageError("--source and --json are mutually exclusive")
    with output() as out:
        if as_json:
            document = (
                _all_json(name, others)
                if api is None
                else _api_json(api)
                if number is None
                else _json(api, number)
            )
            out.write(orjson.dumps(document, option=orjson.OPT_INDENT_2).decode() + "\n")
        elif api is None:
            if name is None:
                out.writelines(_all_lines(width(out)))
                out.write("\nof other vendors, whose layouts are not known\n")
            out.writelines(_vendor_lines(others, width(out)))
        elif number is None:
            out.writelines(_api_lines(api, width(out)))
        else:
            texts = _sources(api, number) if as_source else _grammars(api, number, width(out))
            out.write("\n\n".join(text.strip("\n") for text in texts) + "\n")


def _version(api: Api, text: str) -> int:
    number = text.lower().removeprefix("v")
    if not number.isdecimal() or int(number) not in api.versions:
        raise UsageError(f'{api.name} has versions {api.versions}, not "{text}"')
    return int(number)


# Tables

_NAME = "NAME"


def _all_lines(max_width: int | None) -> Iterator[str]:
    rows = [("KEY", _NAME, "VERSIONS", "FLEXIBLE", "SINCE", "REMOVED", "FORMERLY")]
    for api in known.all_apis():
        flexible = "" if api.flexible is None else f"{api.flexible}+"
        former = ", ".join(api.former_names)
        since = api.introduced[api.versions.first]
        rows.append((str(api.key), api.name, str(api.versions), flexible, since, _removed(api), former))
    return _table(rows, max_width)


def _vendor_lines(apis: Iterable[VendorApi], max_width: int | None) -> Iterator[str]:
    rows = [("KEY", _NAME, "VERSIONS"), *((str(api.key), api.name, str(api.versions)) for api in apis)]
    return _table(rows, max_width)


def _api_lines(api: Api, max_width: int | None) -> Iterator[str]:
    former = f", formerly {', '.join(api.former_names)}" if api.former_names else ""
    yield f"{api.name} (API key {api.key}){former}; served by {', '.join(api.listeners)}\n\n"
    rows = [("VERSION", "SINCE", "REMOVED", "NOTES")]
    rows += (_version_row(api, version) for version in _versions(api))
    yield from _table(rows, max_width)


def _version_row(api: Api, version: int) -> tuple[str, str, str, str]:
    return str(version), api.introduced[version], api.removed.get(version, ""), _notes(api, version)


def _notes(api: Api, version: int) -> str:
    notes = []
    if api.flexible is not None and version >= api.flexible:
        notes.append("flexible")
    if version in api.unstable:
        notes.append(f"unstable in {api.unstable[version]}")
    if version in api.restored:
        notes.append(f"restored in {api.restored[version]}")
    messages = (schema.request(api.key), schema.response(api.key))
    releases = dict.fromkeys(draft.releases for message in messages for draft in _drafts(message, version))
    notes += (f"different layout in {release}" for release in releases)
    return ", ".join(notes)


def _removed(api: Api) -> str:
    """``0-3 in 4.0.0``: versions by the release that removed them for good."""
    gone: dict[str, list[int]] = {}
    for version, release in api.removed.items():
        if version not in api.restored:
            gone.setdefault(release, []).append(version)
    return ", ".join(f"{_range(versions)} in {release}" for release, versions in gone.items())


def _range(versions: Sequence[int]) -> str:
    return str(versions[0]) if len(versions) == 1 else f"{versions[0]}-{versions[-1]}"


def _versions(api: Api) -> range:
    return range(api.versions.first, api.versions.last + 1)


def _table(rows: Sequence[tuple[str, ...]], max_width: int | None) -> Iterator[str]:
    """Lines in columns. Beyond ``max_width``, names are cut, and a last column with names is left out."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    name = rows[0].index(_NAME) if _NAME in rows[0] else None
    if max_width is not None and name is not None:
        if _width_of(widths) > max_width:
            rows, widths = [row[:-1] for row in rows], widths[:-1]
        widths[name] -= max(0, _width_of(widths) - max_width)
    for row in rows:
        cells = (truncate(cell, width).ljust(width) for cell, width in zip(row, widths, strict=True))
        yield "  ".join(cells).rstrip() + "\n"


def _width_of(widths: Sequence[int]) -> int:
    return sum(widths) + 2 * (len(widths) - 1)


# One version


def _messages(api: Api) -> Iterator[Message]:
    for message in (schema.request(api.key), schema.response(api.key)):
        if message is not None:
            yield message


def _drafts(message: Message | None, version: int) -> Iterator[Draft]:
    if message is not None:
        yield from (draft for draft in message.drafts if version in draft.versions)


def _grammars(api: Api, version: int, max_width: int | None) -> Iterator[str]:
    for message in _messages(api):
        for draft in (None, *_drafts(message, version)):
            lines = grammar(message, version, draft).split("\n")
            yield "\n".join(each for line in lines for each in wrapped(line, max_width, _indent(line)))


def _indent(line: str) -> str:
    return " " * (len(line) - len(line.lstrip()) + 6)


def _sources(api: Api, version: int) -> Iterator[str]:
    for message in _messages(api):
        yield decoder_source(message, version)
        for draft in _drafts(message, version):
            yield decoder_source(message, version, draft)


# JSON


def _all_json(name: str | None, others: Iterable[VendorApi]) -> list[dict[str, Any]]:
    of_kafka = [_api_json(api) for api in known.all_apis()] if name is None else []
    return of_kafka + [_vendor_json(api) for api in others]


def _vendor_json(api: VendorApi) -> dict[str, Any]:
    """With the same names."""
    releases = dict.fromkeys(("introduced", "removed", "restored", "unstable"))
    versions = [
        {"version": version, "flexible": True, **releases}
        for version in range(api.versions.first, api.versions.last + 1)
    ]
    return {"api_key": api.key, "name": api.name, "former_names": [], "listeners": [], "versions": versions}


def _api_json(api: Api) -> dict[str, Any]:
    return {
        "api_key": api.key,
        "name": api.name,
        "former_names": list(api.former_names),
        "listeners": list(api.listeners),
        "versions": [_version_json(api, version) for version in _versions(api)],
    }


def _version_json(api: Api, version: int) -> dict[str, Any]:
    return {
        "version": version,
        "flexible": api.flexible is not None and version >= api.flexible,
        "introduced": api.introduced[version],
        "removed": api.removed.get(version),
        "restored": api.restored.get(version),
        "unstable": api.unstable.get(version),
    }


def _json(api: Api, version: int) -> dict[str, Any]:
    document: dict[str, Any] = {"api_key": api.key, "name": api.name, **_version_json(api, version)}
    for message in _messages(api):
        document[message.kind] = _fields_json(layout(message, version).fields, version)
    return document


def _fields_json(fields: Iterable[Field], version: int) -> list[dict[str, Any]]:
    """Fields in wire order, tagged ones after the others."""
    positional, tagged = split(fields, version)
    return [_field_json(field, version) for field in (*positional, *tagged)]


def _field_json(field: Field, version: int) -> dict[str, Any]:
    entry: dict[str, Any] = {
        "name": field.name,
        "type": field.type,
        "array": field.array,
        "nullable": is_nullable(field, version),
        "tag": field.tag if is_tagged(field, version) else None,
        "role": field.role,
        "comment": field.comment or None,
    }
    if field.fields:
        entry["fields"] = _fields_json(field.fields, version)
    return entry
