"""``Data`` and ``Gap`` -> ``Frame`` -> decoded header and body. Knows nothing of TCP."""

from __future__ import annotations
