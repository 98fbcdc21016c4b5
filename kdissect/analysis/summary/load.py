"""Facts of many exchanges -> how many, how large, how fast, with how many errors. Holds a row of counts."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from kdissect.analysis.summary.quantiles import Quantiles

if TYPE_CHECKING:
    from kdissect.analysis.summary.facts import Facts


class Load:
    """The counts of one row, whatever the row stands for: an api, a client, a broker ...

    Attributes:
        kinds: exchanges by kind.
        request_bytes, response_bytes: of frames, their length bytes included.
        latency_us: of what was answered, without long polls.
        long_poll_us: of long polls (facts.py).
        failed: exchanges with an error code in the response.
        throttled: exchanges whose answer tells a throttle time; ``throttle_ms`` is their sum.
        first_ns, last_ns: times of the first and last of them.
    """

    __slots__ = (
        *("failed", "first_ns", "kinds", "last_ns", "latency_us", "long_poll_us", "request_bytes"),
        *("response_bytes", "throttle_ms", "throttled"),
    )

    def __init__(self) -> None:
        self.kinds: Counter[str] = Counter()
        self.request_bytes = 0
        self.response_bytes = 0
        self.latency_us = Quantiles()
        self.long_poll_us = Quantiles()
        self.failed = 0
        self.throttled = 0
        self.throttle_ms = 0
        self.first_ns: int | None = None
        self.last_ns: int | None = None

    @property
    def exchanges(self) -> int:
        """How many."""
        return self.kinds.total()

    def add(self, facts: Facts) -> None:
        """Count one."""
        self.kinds[facts.exchange.kind] += 1
        self.request_bytes += facts.request_bytes
        self.response_bytes += facts.response_bytes
        latency_us = facts.latency_us
        if latency_us is not None:
            (self.long_poll_us if facts.long_poll else self.latency_us).add(latency_us)
        if facts.errors:
            self.failed += 1
        if facts.throttle_ms > 0:
            self.throttled += 1
            self.throttle_ms += facts.throttle_ms
        time_ns = facts.time_ns
        if self.last_ns is None or time_ns > self.last_ns:
            self.last_ns = time_ns
        if self.first_ns is None or time_ns < self.first_ns:
            self.first_ns = time_ns

    def merge(self, other: Load) -> None:
        """Add another row's counts."""
        self.kinds += other.kinds
        self.request_bytes += other.request_bytes
        self.response_bytes += other.response_bytes
        self.latency_us.merge(other.latency_us)
        self.long_poll_us.merge(other.long_poll_us)
        self.failed += other.failed
        self.throttled += other.throttled
        self.throttle_ms += other.throttle_ms
        if other.first_ns is not None and other.last_ns is not None:
            self.first_ns = other.first_ns if self.first_ns is None else min(self.first_ns, other.first_ns)
            self.last_ns = other.last_ns if self.last_ns is None else max(self.last_ns, other.last_ns)
