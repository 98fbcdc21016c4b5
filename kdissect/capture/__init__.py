"""Bytes from a file, from stdin or from an interface -> ``Packet``. The only input I/O of the program."""

from __future__ import annotations
