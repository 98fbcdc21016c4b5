"""An exchange -> HTML for notebooks: a table of its columns that have a value. Stateless."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING

import orjson

if TYPE_CHECKING:
    from kdissect.model import Exchange

_MAX_CHARACTERS = 10_000
"""Of a value that is shown; a notebook keeps them in its file."""


def html(exchange: Exchange) -> str:
    """A table of name and value. Bodies are JSON that unfolds."""
    rows = (
        f"<tr><th>{name}</th><td>{_cell(value)}</td></tr>"
        for name, value in exchange.to_dict().items()
        if value not in (None, [])
    )
    return f"<table>{''.join(rows)}</table>"


def _cell(value: object) -> str:
    if isinstance(value, dict):
        text = _cut(orjson.dumps(value, option=orjson.OPT_INDENT_2).decode())
        return f"<details><summary>{_cut(', '.join(value))}</summary><pre>{text}</pre></details>"
    return _cut(", ".join(map(str, value)) if isinstance(value, list) else str(value))


def _cut(text: str) -> str:
    left = len(text) - _MAX_CHARACTERS
    return escape(text[:_MAX_CHARACTERS]) + (f"\n... {left:,} more characters" if left > 0 else "")
