"""Protocol dissector and traffic analyzer for Apache Kafka.

    for exchange in kdissect.read("capture.pcap", where='api == "Produce"'):
        print(exchange.time, exchange.topics, exchange.latency_us)

docs/python.md shows data frames, summaries, and packets from elsewhere (``dissect``). To read the code, start
with pipeline.py. Public names are imported on first use, so that ``kdissect --help`` does not import the
decoder.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kdissect.capture.reader import Capture, open_capture
    from kdissect.errors import CaptureError, KdissectError
    from kdissect.limits import Limits
    from kdissect.model import Anomaly, Exchange, Packet
    from kdissect.options import Options
    from kdissect.pipeline import Dissection, dissect
    from kdissect.runs.reading import Exchanges, read, summarize
    from kdissect.stats.document import Summary
    from kdissect.version import __version__

__all__ = [
    "read",
    "summarize",
    "open_capture",
    "dissect",
    "Exchanges",
    "Capture",
    "Dissection",
    "Packet",
    "Exchange",
    "Summary",
    "Anomaly",
    "Limits",
    "Options",
    "KdissectError",
    "CaptureError",
    "__version__",
]

_MODULES = {
    "read": "kdissect.runs.reading",
    "Exchanges": "kdissect.runs.reading",
    "open_capture": "kdissect.capture.reader",
    "Capture": "kdissect.capture.reader",
    "dissect": "kdissect.pipeline",
    "Dissection": "kdissect.pipeline",
    "summarize": "kdissect.runs.reading",
    "Summary": "kdissect.stats.document",
    "Packet": "kdissect.model",
    "Exchange": "kdissect.model",
    "Anomaly": "kdissect.model",
    "Limits": "kdissect.limits",
    "Options": "kdissect.options",
    "KdissectError": "kdissect.errors",
    "CaptureError": "kdissect.errors",
    "__version__": "kdissect.version",
}


def __getattr__(name: str) -> Any:
    """Import a public name from the module that defines it (PEP 562)."""
    if name not in _MODULES:
        raise AttributeError(f"module 'kdissect' has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(_MODULES[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)
