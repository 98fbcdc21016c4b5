"""``topics.partitions.fetch_offset`` -> what a decoded body has there; which paths there are.

Holds the names of all fields of all messages once somebody asked: about 2,000 small dictionary entries.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

from kdissect.analysis.nearest import nearest
from kdissect.analysis.truth import flat
from kdissect.errors import UsageError
from kdissect.kafka import apis, schema
from kdissect.kafka.records import RecordData
from kdissect.model import Embedded

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from kdissect.kafka.schema import Field

Tree = dict[str, "Tree | None"]
"""Field name -> the fields below it; None where anything may be: below bytes and records."""

_ADDED = ("_tags", "_left_over", "_undecoded")  # by kafka/bodies.py, to any body
_OPAQUE = ("bytes", "records")


def value_at(value: Any, path: Sequence[str]) -> Any:
    """What stands at ``path`` below ``value``, None where nothing does.

    Behind an array: a list with one value for each element. The path leads into record data as into an array
    of batch headers, and into bytes whose payload is known as into what they say.
    """
    values, many = [value], False
    for name in path:
        structs: list[Any] = []
        for outer in map(_opened, values):
            if type(outer) is list:
                many = True
                structs += outer
            else:
                structs.append(outer)
        values = [struct.get(name) if type(struct) is dict else None for struct in structs]
    return flat(values) if many else values[0]


def _opened(value: Any) -> Any:
    if isinstance(value, RecordData):
        return value.batches()
    return value.decoded if isinstance(value, Embedded) else value


def check(message: str, path: Sequence[str]) -> None:
    """Make sure that some version of some message has this path.

    Args:
        message: ``request`` or ``response``.
        path: names of fields, outermost first.

    Raises:
        UsageError: naming the nearest path that exists.
    """
    below: Tree | None = names(message)
    for number, name in enumerate(path):
        if below is None or name in _ADDED:
            return
        if name not in below:
            raise UsageError(_no_field(message, path[:number], name, below))
        below = below[name]


def _no_field(message: str, parents: Sequence[str], name: str, siblings: Tree) -> str:
    parent = ".".join((message, *parents))
    elsewhere = sorted((path for path in _paths(names(message)) if path[-1] == name), key=len)
    if elsewhere:
        hint = f"; did you mean {message}.{'.'.join(elsewhere[0])}?"
    elif near := nearest(name, siblings):
        hint = f"; did you mean {parent}.{near}?"
    else:
        hint = f"; it has {', '.join(siblings)}" if parents and siblings else ""
    return f'{parent} has no field "{name}" in any api{hint}'


def _paths(tree: Tree, parents: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    for name, below in tree.items():
        yield (*parents, name)
        yield from _paths(below or {}, (*parents, name))


@cache
def names(message: str) -> Tree:
    """The fields of the requests, or of the responses, of all apis in all versions."""
    tree: Tree = {}
    for api in apis.all_apis():
        found = schema.request(api.key) if message == "request" else schema.response(api.key)
        if found is not None:
            for fields in (found.fields, *(draft.fields for draft in found.drafts)):
                _add(tree, fields)
    return tree


def _add(tree: Tree, fields: Sequence[Field]) -> None:
    for field in fields:
        if field.type in _OPAQUE:
            tree[field.name] = None
            continue
        below = tree.setdefault(field.name, {})
        if below is not None:
            _add(below, field.fields)
