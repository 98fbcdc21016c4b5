"""errors.tsv, enums.tsv -> names of error codes and of other small integers. Read on first use, then kept."""

from __future__ import annotations

import os
from base64 import urlsafe_b64encode
from functools import cache, lru_cache
from typing import Any, NamedTuple

from kdissect.errors import UsageError

UNNAMED_ERROR = "UNKNOWN_ERROR_"
"""What an error code newer than this program is called, followed by its number."""


class ErrorCode(NamedTuple):
    """One error code.

    Attributes:
        retriable: whether clients try again.
        introduced: release that brought it.
        former_names: names it had in earlier releases and guides.

    """

    code: int
    name: str
    retriable: bool
    introduced: str
    former_names: tuple[str, ...]


def all_errors() -> tuple[ErrorCode, ...]:
    """All error codes we know, ascending."""
    return tuple(_errors().values())


def error_name(code: int) -> str:
    """Name an error code, say ``NOT_LEADER_OR_FOLLOWER``; one we do not know is ``UNKNOWN_ERROR_137``."""
    error = _errors().get(code)
    return f"{UNNAMED_ERROR}{code}" if error is None else error.name


def error_code(name: str) -> int:
    """Find the code that a person means, by name in any case, former name, or number.

    Raises:
        UsageError: there is none; names the nearest.

    """
    query = name.strip().upper()
    number = query.removeprefix(UNNAMED_ERROR)
    if number.removeprefix("-").isdecimal():
        return int(number)
    query = query.replace("-", "_")
    names = _codes_by_name()
    if query not in names:
        from difflib import get_close_matches

        matches = get_close_matches(query, names, n=1, cutoff=0.5)
        hint = f", did you mean {error_name(names[matches[0]])}?" if matches else ""
        raise UsageError(f"unknown error code {name!r}{hint}")
    return names[query]


def enum_name(message_name: str, path: str, value: int) -> str | None:
    """Name the value of an enumerated field, None where the field is not one or the value has no name.

    ``enum_name("DescribeAclsRequest", "operation", 3)`` is ``READ``; ``path`` is dotted, without indexes.
    """
    values = _enum_fields().get((message_name, path))
    return None if values is None else values.get(value)


@cache
def _errors() -> dict[int, ErrorCode]:
    return {
        int(row["code"]): ErrorCode(
            code=int(row["code"]),
            name=row["name"],
            retriable=row["retriable"] == "true",
            introduced=row["introduced"],
            former_names=tuple(row["former_names"].split()),
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
# Package data beside this module (tables, lists, texts of messages) -> rows and text. Holds nothing: who
# asks, keeps.
# ------------------------------------------------------------------------------------------------------------


def rows(name: str) -> list[dict[str, str]]:
    """Read a table: tab separated, the first line names the columns, an empty cell is an empty string."""
    head, *lines = (line.split("\t") for line in text(name).splitlines())
    return [dict(zip(head, line, strict=True)) for line in lines]


def lines(name: str) -> list[str]:
    """Read a list: one item a line, without comments and empty lines."""
    items = (line.partition("#")[0].strip() for line in text(name).splitlines())
    return [item for item in items if item]


def text(name: str) -> str:
    """Read a file, ``messages/headers.kmsg`` say."""
    # Who loaded this module reads from a zip too, the form in which Spark ships us. importlib.resources does
    # as well, but loading it takes a tenth of the time of a short run. The folder keeps its name: workers
    # have ./kdissect.zip, which Path would call kdissect.zip, and nothing is found under that.
    loader: Any = __spec__.loader
    folder, separator, _ = __file__.rpartition(os.sep)
    data: bytes = loader.get_data(f"{folder}{separator}{name}")
    return data.decode()


# ------------------------------------------------------------------------------------------------------------
# 16 bytes -> a uuid in Kafka's text form: url-safe base64 without padding, 22 characters.
#
# A capture names the same few topics again and again, so the latest translations are kept: 4096 of them,
# about 500 KB.
# ------------------------------------------------------------------------------------------------------------


_CACHED_UUIDS = 4096


@lru_cache(_CACHED_UUIDS)
def uuid_text(raw: bytes) -> str:
    """Kafka's text form of 16 bytes."""
    return urlsafe_b64encode(raw).decode("ascii").rstrip("=")
