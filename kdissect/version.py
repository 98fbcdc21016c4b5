"""The version of kdissect, for modules that must not import what the package offers."""

from __future__ import annotations

__version__ = "0.1.0"
