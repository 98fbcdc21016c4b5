"""Frames of a connection -> ``Exchange``; names, filters and, later, statistics over exchanges."""

from __future__ import annotations
