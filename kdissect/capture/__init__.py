"""Files, stdin, pipes and interfaces -> packets. No other package reads captures."""

from __future__ import annotations
