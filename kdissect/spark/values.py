"""What a task returns -> JSON -> the same in the driver.

Not pickled: the bytes pass through the disks and networks of a cluster, and changing a pickle there would run
code in the driver. Here they can only become plain values and instances of ``_CLASSES`` and of the classes in
``stats/``, whose own code does not run. Everything that JSON does not have is a list of a type's name and its
content: ``["tuple", [1, 2]]``. Of counts, only what ``merge`` needs is encoded (stats/sums.py).
"""

from __future__ import annotations

import json
from array import array
from base64 import b64decode, b64encode
from collections import Counter
from dataclasses import fields
from functools import cache, partial
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kdissect.capture.inputs import Candidate
from kdissect.capture.source import FileFormat, InterfaceStatistics, Source
from kdissect.capture.stores import Status
from kdissect.exchanges.clusters import Clusters
from kdissect.exchanges.group_events import GroupEvent
from kdissect.exchanges.learned import LearnedFacts, Listeners
from kdissect.exchanges.nodes import Node
from kdissect.limits import DEFAULT, Limits
from kdissect.model import Endpoint, Interface, LatencyParts, Packet, Segment
from kdissect.phrases import TopicId
from kdissect.query.filters import FilterNotes
from kdissect.query.records import RecordMatches
from kdissect.spark.ranges import FileRanges, FileTail, Fingerprint, Range
from kdissect.stats.quantiles import Bounded
from kdissect.stats.sums import Summed, bare, carried
from kdissect.tables.export import PartResult
from kdissect.tables.table_files import FinishedFile
from kdissect.tables.whole import Brokers, Named, Whole

if TYPE_CHECKING:
    from collections.abc import Callable

_CLASSES: dict[str, type] = {
    each.__name__: each
    for each in (
        Brokers, Candidate, Clusters, Endpoint, FileFormat, FileRanges, FileTail, FilterNotes, Fingerprint,
        FinishedFile, GroupEvent, Interface, InterfaceStatistics, LatencyParts, LearnedFacts, Limits,
        Listeners, Named, Node, Packet, PartResult, Range, RecordMatches, Segment, Source, Status, Whole,
    )
}  # fmt: skip
_SEQUENCES: dict[str, Callable[[Any], Any]] = {each.__name__: each for each in (list, tuple, set, frozenset)}
_MAPPINGS: dict[str, Callable[[Any], Any]] = {"dict": dict, "Counter": Counter}
_COUNTS = "kdissect.stats."


def to_json(value: Any) -> bytes:
    """Encode a value.

    Raises:
        TypeError: it has a type that is not known here.
    """
    return json.dumps(_plain(value)).encode("ascii")


def from_json(data: bytes) -> Any:
    """Decode a value.

    Raises:
        ValueError, KeyError, TypeError: ``to_json`` did not write this.
    """
    return _value(json.loads(data))


def known(cls: type) -> type:
    """A decorator: instances of this class can be encoded."""
    _CLASSES[cls.__name__] = cls
    return cls


def _plain(value: Any) -> Any:
    cls: type = type(value)
    name = cls.__name__
    if value is None or cls in (bool, int, float, str):
        return value
    if cls is TopicId:
        return [name, str(value)]
    if name in _SEQUENCES and _SEQUENCES[name] is cls:
        return [name, [_plain(each) for each in value]]
    if cls in (dict, Counter):
        return [name, [[_plain(key), _plain(each)] for key, each in value.items()]]
    if cls in (bytes, bytearray):
        return [name, b64encode(value).decode("ascii")]
    if cls is array:
        return [name, [value.typecode, value.tolist()]]
    if isinstance(value, Path):
        return ["Path", str(value)]
    if cls is partial:  # of a known class: how a table makes a row
        return [name, [_plain(each) for each in (value.func, *value.args)]]
    if isinstance(value, type):
        return ["type", _name(value)]
    if cls is Limits:  # a task returns several per file
        changed = ((each.name, getattr(value, each.name), each.default) for each in fields(Limits))
        return [name, [[key, _plain(own)] for key, own, default in changed if own != default]]
    if isinstance(value, Bounded):
        settings = *value.settings, value.other, dict(value)
        return [_name(Bounded), [_plain(each) for each in settings]]
    name = _name(cls)
    if issubclass(cls, tuple):
        return [name, [_plain(each) for each in value]]
    attributes = carried(value) if isinstance(value, Summed) else _attributes(value)
    return [name, [[attribute, _plain(getattr(value, attribute))] for attribute in attributes]]


def _value(plain: Any) -> Any:
    if not isinstance(plain, list):
        return plain
    name, content = plain
    if name in _SEQUENCES:
        return _SEQUENCES[name](map(_value, content))
    if name in _MAPPINGS:
        return _MAPPINGS[name]({_value(key): _value(each) for key, each in content})
    if name == "bytes":
        return b64decode(content)
    if name == "bytearray":
        return bytearray(b64decode(content))
    if name == "array":
        return array(*content)
    if name == "TopicId":
        return TopicId(content)
    if name == "Path":
        return Path(content)
    if name == "partial":
        function, *arguments = map(_value, content)
        return partial(function, *arguments)
    if name == "type":
        return _class(content)
    cls = _class(name)
    if cls is Limits:
        return Limits(**{key: _value(each) for key, each in content}) if content else DEFAULT
    if issubclass(cls, tuple):
        return tuple.__new__(cls, map(_value, content))
    if cls is Bounded:
        max_keys, make, other, items = map(_value, content)
        table = Bounded[Any, Any](max_keys, make)
        table.other = other
        for key, each in items.items():
            table[key] = each
        return table
    result: Any = bare(cls) if issubclass(cls, Summed) else object.__new__(cls)
    for attribute, each in content:
        object.__setattr__(result, attribute, _value(each))  # some are frozen
    return result


@cache
def _name(cls: type) -> str:
    """The name of a class by which ``_class`` finds it.

    Raises:
        TypeError: it is not known here.
    """
    name = cls.__name__
    if cls.__module__.startswith(_COUNTS):
        return f"{cls.__module__.removeprefix(_COUNTS)}.{name}"
    if _CLASSES.get(name) is not cls:
        raise TypeError(f"{cls.__module__}.{name} is not in {__name__}")
    return name


@cache
def _class(name: str) -> type:
    """The class of a name.

    Raises:
        KeyError: there is none.
    """
    module, dot, own = name.rpartition(".")
    if not dot:
        return _CLASSES[name]
    try:
        cls = getattr(import_module(_COUNTS + module), own, None)
    except ImportError:
        cls = None
    if not isinstance(cls, type) or not cls.__module__.startswith(_COUNTS):
        raise KeyError(name)
    return cls


def _attributes(value: Any) -> list[str]:
    slots = [name for cls in type(value).__mro__ for name in getattr(cls, "__slots__", ())]
    return [*slots, *getattr(value, "__dict__", ())]
