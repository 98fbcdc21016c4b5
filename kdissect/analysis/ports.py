"""``9092``, ``9092-9095``, ``tcp.port==9093,kafka`` -> the ports that are meant. Holds nothing."""

from __future__ import annotations

import re

from kdissect.errors import UsageError

_DECODE_AS = re.compile(r"(?:tcp\.port==)?(?P<ports>[\d,-]+?)(?:,(?P<protocol>[a-z]\w*))?", re.IGNORECASE)
_PORTS = re.compile(r"(\d{1,5})(?:-(\d{1,5}))?")
_MOST_PORT = 65_535


def parse_ports(text: str) -> frozenset[int]:
    """``9092``, ``9092,9192``, ``9092-9095``.

    Raises:
        UsageError: it is none of these.
    """
    ports: set[int] = set()
    for part in text.split(","):
        match = _PORTS.fullmatch(part.strip())
        first, last = (int(match[1]), int(match[2] or match[1])) if match else (0, 0)
        if not 1 <= first <= last <= _MOST_PORT:
            raise UsageError(f'"{text}" is no port; write 9092, 9092,9192 or 9092-9095')
        ports.update(range(first, last + 1))
    return frozenset(ports)


def parse_port_rule(text: str) -> frozenset[int]:
    """``tcp.port==9093,kafka`` as tshark has it; the ports alone do as well.

    Raises:
        UsageError: it is no such rule.
    """
    match = _DECODE_AS.fullmatch(text.replace(" ", ""))
    if match is None:
        raise UsageError(f'"{text}" is no rule; write tcp.port==9093,kafka')
    if (match["protocol"] or "kafka").lower() != "kafka":
        raise UsageError(f'a port can be taken for kafka only, not for "{match["protocol"]}"')
    return parse_ports(match["ports"])
