"""The native core on and off: the one place in the tests that knows how."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest

from kdissect import core

if TYPE_CHECKING:
    from collections.abc import Iterator

HAS_CORE = core.is_used
NEEDS_CORE = [
    pytest.mark.core,
    pytest.mark.skipif(not HAS_CORE, reason="installed without the native core, or KDISSECT_PURE is set"),
]
"""Marks of tests of the core, and of those that compare it with Python."""


def needs_core(test: Any) -> Any:
    """Decorate one such test."""
    for mark in NEEDS_CORE:
        test = mark(test)
    return test


@contextmanager
def without_core() -> Iterator[None]:
    """Python does everything here, and in processes that are forked from here."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(core, "is_used", False)
        yield
