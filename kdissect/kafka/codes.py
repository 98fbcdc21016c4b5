"""errors.tsv, enums.tsv -> names of error codes and of other enumerated integers. Cached on first use."""

from __future__ import annotations

import os
from base64 import urlsafe_b64encode
from functools import cache, lru_cache
from typing import Any, NamedTuple

from kdissect.errors import UsageError
from kdissect.nearest import did_you_mean

UNNAMED_ERROR = "UNKNOWN_ERROR_"
"""Name of an error code newer than kdissect, followed by its number."""


class ErrorCode(NamedTuple):
    """One error code.

    Attributes:
        retriable: whether clients retry.
        introduced: release that introduced it.
        former_names: names it had in earlier releases and guides.
        meaning: in one or two sentences, with the configs that matter.
    """

    code: int
    name: str
    retriable: bool
    introduced: str
    former_names: tuple[str, ...]
    meaning: str


def all_errors() -> tuple[ErrorCode, ...]:
    """All known error codes, ascending."""
    return tuple(_errors().values())


def error_names() -> list[str]:
    """The names of all known error codes, ascending by code."""
    return [error.name for error in all_errors()]


def error_name(code: int) -> str:
    """The name of an error code, such as ``NOT_LEADER_OR_FOLLOWER``. Unknown: ``UNKNOWN_ERROR_137``."""
    error = _errors().get(code)
    return f"{UNNAMED_ERROR}{code}" if error is None else error.name


def error_code(name: str) -> int:
    """The code that the user named, by name in any case, former name, or number.

    Raises:
        UsageError: no such error. The message suggests the nearest name.
    """
    query = name.strip().upper()
    number = query.removeprefix(UNNAMED_ERROR)
    if number.removeprefix("-").isdecimal():
        return int(number)
    query = query.replace("-", "_")
    names = _codes_by_name()
    if query not in names:
        hint = did_you_mean(query, names) or "; use a name such as NOT_LEADER_OR_FOLLOWER, or its code"
        raise UsageError(f'unknown error "{name}"{hint}')
    return names[query]


def enum_name(message_name: str, path: str, value: int) -> str | None:
    """The name of an enumerated field's value. None if the field is not enumerated or the value has no name.

    ``enum_name("DescribeAclsRequest", "operation", 3)`` is ``READ``. ``path`` is dotted, without indexes.
    """
    return enum_names(message_name, path).get(value)


def enum_names(message_name: str, path: str) -> dict[int, str]:
    """The names of an enumerated field's values; empty if it is not enumerated."""
    return _enum_fields().get((message_name, path), {})


@cache
def _errors() -> dict[int, ErrorCode]:
    return {
        int(row["code"]): ErrorCode(
            code=int(row["code"]),
            name=row["name"],
            retriable=row["retriable"] == "true",
            introduced=row["introduced"],
            former_names=tuple(row["former_names"].split()),
            meaning=row["meaning"],
        )
        for row in rows("errors.tsv")
    }


@cache
def _codes_by_name() -> dict[str, int]:
    former = {name.upper(): error.code for error in all_errors() for name in error.former_names}
    return former | {error.name: error.code for error in all_errors()}


@cache
def _enums() -> dict[str, dict[int, str]]:
    return {row["enum"]: _values(row["values"]) for row in rows("enums.tsv")}


@cache
def _enum_fields() -> dict[tuple[str, str], dict[int, str]]:
    fields = {}
    for row in rows("enums.tsv"):
        for field in row["fields"].split():
            message, _, path = field.partition(".")
            fields[message, path] = _enums()[row["enum"]]
    return fields


def _values(text: str) -> dict[int, str]:
    """Read ``0=NONE 1=LEADER``."""
    pairs = (item.partition("=") for item in text.split())
    return {int(number): name for number, _, name in pairs}


# ------------------------------------------------------------------------------------------------------------
# Package data in this directory (tables, lists, message schemas) -> rows and text. Holds nothing.
# ------------------------------------------------------------------------------------------------------------


def rows(name: str) -> list[dict[str, str]]:
    """Read a table: tab separated, column names in the first line. An empty cell is an empty string."""
    head, *lines = (line.split("\t") for line in text(name).splitlines())
    return [dict(zip(head, line, strict=True)) for line in lines]


def lines(name: str) -> list[str]:
    """Read a list: one item per line, without comments and empty lines."""
    items = (line.partition("#")[0].strip() for line in text(name).splitlines())
    return [item for item in items if item]


def text(name: str) -> str:
    """Read a file, such as ``messages/headers.kmsg``."""
    # The loader of this module can also read from a zip, which is how Spark ships us. importlib.resources can
    # too, but loading it takes a tenth of the time of a short run. The path is not normalized: workers have
    # ./kdissect.zip, which Path would turn into kdissect.zip, and the loader would find nothing.
    loader: Any = __spec__.loader
    directory, separator, _ = __file__.rpartition(os.sep)
    data: bytes = loader.get_data(f"{directory}{separator}{name}")
    return data.decode()


# ------------------------------------------------------------------------------------------------------------
# 16 bytes -> a UUID in Kafka's text form: URL-safe base64 without padding, 22 characters.
#
# Captures repeat the same few topics, so the latest 4096 results are cached, about 500 KB.
# ------------------------------------------------------------------------------------------------------------


_CACHED_UUIDS = 4096


@lru_cache(_CACHED_UUIDS)
def uuid_text(raw: bytes) -> str:
    """Kafka's text form of 16 bytes."""
    return urlsafe_b64encode(raw).decode("ascii").rstrip("=")
