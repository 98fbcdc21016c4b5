"""A sentence -> a field of a dataclass that has it: what the JSON Schema says about the field."""

from __future__ import annotations

from dataclasses import field
from typing import Any


def told(sentence: str) -> Any:
    """A field, and what it means."""
    return field(metadata={"sentence": sentence})
