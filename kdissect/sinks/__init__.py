"""Where exchanges end: lines, trees, JSON lines, CSV."""

from __future__ import annotations
