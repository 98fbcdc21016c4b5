"""Packets -> TCP segments -> the bytes of each connection in order. Independent of Kafka."""

from __future__ import annotations
