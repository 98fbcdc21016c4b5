"""Payloads inside payloads: what Kafka's own programs put into the bytes and records of its messages."""

from __future__ import annotations
