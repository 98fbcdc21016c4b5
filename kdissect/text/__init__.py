"""Exchanges and summaries -> text for people: lines, trees, pages, dashboard."""

from __future__ import annotations
