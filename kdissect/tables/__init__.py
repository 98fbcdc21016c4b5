"""Exchanges -> typed rows: columns, JSON lines, CSV, Arrow, Parquet, export."""

from __future__ import annotations
