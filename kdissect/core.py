"""The native core: the only import of ``kdissect._core``. Decides whether it or Python does the work.

The core (core/, written in Rust) is optional and only faster: whatever is unusual it leaves to Python, so the
results are the same. ``KDISSECT_PURE=1`` turns it off. Holds nothing.
"""

from __future__ import annotations

import os
from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from types import ModuleType

    import kdissect._core as native

__all__ = ["is_used", "native"]

_INTERFACE = 63
"""Of the core that this Python goes with. A checkout can still have the one built from an older commit."""


def _load() -> ModuleType | None:
    if os.environ.get("KDISSECT_PURE", "0") not in ("", "0"):
        return None
    try:
        built = import_module("kdissect._core")
    except ImportError:  # built without it, or loaded from a zip on a Spark worker
        return None
    return built if built.INTERFACE == _INTERFACE else None


if not TYPE_CHECKING:
    native = _load()
    """Its classes and functions, see ``_core.pyi``; only if it ``is_used``."""

is_used = native is not None
"""Whether it does what it can. False: Python does everything."""
