"""``Packet`` -> ``Segment`` -> ``Data`` and ``Gap`` of a connection's two streams. Knows nothing of Kafka."""

from __future__ import annotations
