"""Exchanges -> summaries, findings, groups, lag, transactions, quality of a capture, the live pulse."""

from __future__ import annotations
