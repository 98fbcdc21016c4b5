"""What a task returns -> JSON -> the same in the driver.

Not pickled: the bytes pass through the disks and networks of a cluster, and changing a pickle there would run
code in the driver. Here they can only become plain values and instances of ``_CLASSES``, whose own code does
not run. Everything that JSON does not have is a list of a type's name and its content: ``["tuple", [1, 2]]``.
"""

from __future__ import annotations

import json
from base64 import b64decode, b64encode
from collections import Counter
from dataclasses import fields
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kdissect.capture.source import FileFormat, InterfaceStatistics, Source
from kdissect.capture.stores import Status
from kdissect.exchanges.clusters import Clusters
from kdissect.exchanges.group_events import GroupEvent
from kdissect.exchanges.learned import LearnedFacts, Listeners
from kdissect.limits import DEFAULT, Limits
from kdissect.model import Endpoint, Interface, Packet, Segment
from kdissect.phrases import TopicId
from kdissect.query.filters import FilterNotes
from kdissect.query.records import RecordMatches
from kdissect.spark.ranges import FileRanges, FileTail, Fingerprint, Range
from kdissect.stats.by_cluster import ByCluster
from kdissect.stats.groups import Committed, Group, Groups, Member
from kdissect.stats.quantiles import Bounded
from kdissect.stats.survey import Census, FileCount, InterfaceCount
from kdissect.tables.export import PartResult
from kdissect.tables.table_files import FinishedFile
from kdissect.tables.whole import Brokers, Named, Whole

if TYPE_CHECKING:
    from collections.abc import Callable

_CLASSES: dict[str, type] = {
    each.__name__: each
    for each in (
        Bounded, Brokers, ByCluster, Census, Clusters, Committed, Endpoint, FileCount, FileFormat,
        FileRanges, FileTail, FilterNotes, Fingerprint, FinishedFile, Group, GroupEvent, Groups, Interface,
        InterfaceCount, InterfaceStatistics, LearnedFacts, Limits, Listeners, Member, Named, Packet,
        PartResult, Range, RecordMatches, Segment, Source, Status, Whole,
    )
}  # fmt: skip
_SEQUENCES: dict[str, Callable[[Any], Any]] = {each.__name__: each for each in (list, tuple, set, frozenset)}
_MAPPINGS: dict[str, Callable[[Any], Any]] = {"dict": dict, "Counter": Counter}


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
    cls = type(value)
    name = cls.__name__
    if value is None or cls in (bool, int, float, str, TopicId):
        return value
    if name in _SEQUENCES and _SEQUENCES[name] is cls:
        return [name, [_plain(each) for each in value]]
    if cls in (dict, Counter):
        return [name, [[_plain(key), _plain(each)] for key, each in value.items()]]
    if cls is bytes:
        return [name, b64encode(value).decode("ascii")]
    if isinstance(value, Path):
        return ["Path", str(value)]
    if cls is partial:  # of a known class: how a table makes a row
        return [name, [_plain(each) for each in (value.func, *value.args)]]
    if isinstance(value, type) and _CLASSES.get(value.__name__) is value:
        return ["type", value.__name__]
    if cls is Limits:  # a task returns several per file
        changed = ((each.name, getattr(value, each.name), each.default) for each in fields(Limits))
        return [name, [[key, _plain(own)] for key, own, default in changed if own != default]]
    if _CLASSES.get(name) is not cls:
        raise TypeError(f"{cls.__module__}.{name} is not in {__name__}")
    if issubclass(cls, tuple):
        return [name, [_plain(each) for each in value]]
    if cls is Bounded:
        attributes = {attribute: each for attribute, each in vars(value).items() if attribute != "_room"}
        return [name, [_plain(attributes), _plain(dict(value))]]
    return [name, [[attribute, _plain(getattr(value, attribute))] for attribute in _attributes(value)]]


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
    if name == "Path":
        return Path(content)
    if name == "partial":
        function, *arguments = map(_value, content)
        return partial(function, *arguments)
    if name == "type":
        return _CLASSES[content]
    cls = _CLASSES[name]
    if cls is Limits:
        return Limits(**{key: _value(each) for key, each in content}) if content else DEFAULT
    if issubclass(cls, tuple):
        return tuple.__new__(cls, map(_value, content))
    if cls is Bounded:
        attributes, items = map(_value, content)
        table = Bounded[Any, Any](attributes["_max_keys"], attributes["_make"])
        table.other = attributes["other"]
        for key, each in items.items():
            table[key] = each
        return table
    result = object.__new__(cls)
    for attribute, each in content:
        object.__setattr__(result, attribute, _value(each))  # some are frozen
    return result


def _attributes(value: Any) -> list[str]:
    slots = [name for cls in type(value).__mro__ for name in getattr(cls, "__slots__", ())]
    return [*slots, *getattr(value, "__dict__", ())]
