"""The native core. What belongs to what is in core/src/body.rs; the tuples are made in kafka/compiler.py."""

from collections.abc import Callable
from typing import Any

from kdissect.kafka.primitives import DecodeBudget
from kdissect.kafka.records import RecordData

INTERFACE: int

Field = tuple[str, str | Struct, int | None, bool, int | None]
"""Name, type (of the elements for an array), memory of an array's element, nullable, tag."""

Struct = tuple[tuple[Field, ...], tuple[Field, ...], int | None]
"""Positional fields in wire order, tagged fields, in flexible versions the memory of a tag."""

class Decoder:
    def __init__(
        self,
        shape: Struct,
        charges_text: bool,
        records: type[RecordData],
        python: Callable[[bytes, int, DecodeBudget], tuple[dict[str, Any], int]],
    ) -> None: ...
    def decode(self, data: bytes, pos: int, budget: DecodeBudget) -> tuple[dict[str, Any], int]: ...
