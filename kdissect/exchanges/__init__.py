"""Frames of a connection -> exchanges; topic names, records of a partition, group events."""

from __future__ import annotations
