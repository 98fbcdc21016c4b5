"""Filters and expressions over columns and fields."""

from __future__ import annotations
