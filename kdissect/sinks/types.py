"""The types that columns have, in a language of our own, so that no format's types rule the others.

A type is written as Spark writes its own: ``string``, ``array<string>``,
``array<struct<kind:string,where:string>>``.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Scalar:
    """A single value."""

    name: str

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True, slots=True)
class Array:
    """Values of one type in a row; it can be empty, its elements are never absent."""

    element: Type

    def __str__(self) -> str:
        return f"array<{self.element}>"


@dataclass(frozen=True, slots=True)
class Struct:
    """Named values."""

    fields: tuple[tuple[str, Type], ...]

    def __str__(self) -> str:
        return f"struct<{','.join(f'{name}:{kind}' for name, kind in self.fields)}>"


Type = Scalar | Array | Struct

STRING = Scalar("string")
BOOLEAN = Scalar("boolean")
INT16 = Scalar("int16")
INT32 = Scalar("int32")
INT64 = Scalar("int64")
BINARY = Scalar("binary")
"""Bytes, in formats that have them."""
DATE = Scalar("date")
"""A day in UTC, as text: ``2026-11-21``."""
TIMESTAMP = Scalar("timestamp")
"""Nanoseconds since 1970 as an int; written with microseconds, in UTC: ``2026-11-21T09:05:00.123456Z``."""
OBJECT = Scalar("object")
"""A decoded body: a JSON object, or a string of JSON where columns are fixed (Parquet, Spark, CSV)."""
