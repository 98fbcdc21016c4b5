"""Exchange or finding -> what Wireshark shows of it: comments on packets, display filters. Holds nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kdissect.exchanges import content
from kdissect.limits import SECOND_NS
from kdissect.phrases import printable
from kdissect.text.about import about
from kdissect.text.table import api, latency

if TYPE_CHECKING:
    from collections.abc import Callable

    from kdissect.model import Exchange
    from kdissect.stats.document import FindingRow


def comment(exchange: Exchange) -> str:
    """What its line says, without times and addresses, which the packet has."""
    return "  ".join(
        (
            f"kdissect {exchange.id}",
            *filter(None, (printable(exchange.client_id or ""), api(exchange), latency(exchange))),
            printable(about(exchange)),
            *content.errors(exchange),
            *(f"! {kind}" for kind in dict.fromkeys(anomaly.kind for anomaly in exchange.anomalies)),
        )
    )


def finding_text(row: FindingRow) -> str:
    """What a comment says of a finding, after the exchange that the finding names."""
    cause = f" (explained by {row.explained_by})" if row.explained_by else ""
    return f"{row.severity} {row.rule}: {printable(row.subject)}: {printable(row.message)}{cause}"


def display_filter(exchange: Exchange) -> str:
    """The filter for its packets: those of its connection from the first byte of the request to the last of
    the response.
    """
    info = exchange.connection
    frames = [frame for frame in (exchange.request_frame, exchange.response_frame) if frame is not None]
    begin, end = min(frame.start_ns for frame in frames), max(frame.end_ns for frame in frames)
    tests = [
        f"{'ipv6' if ':' in at.ip else 'ip'}.addr == {at.ip} && tcp.port == {at.port}"
        for at in (info.hop or info.client, info.broker)
    ]
    return " && ".join(
        (*tests, f"frame.time_epoch >= {_seconds(begin)}", f"frame.time_epoch <= {_seconds(end)}")
    )


def display_filters(write: Callable[[str], object]) -> tuple[Callable[[Exchange], None], Callable[[], None]]:
    """Functions that take exchanges, and end with a filter for the packets of all of them in a line."""
    between = ""

    def feed(exchange: Exchange) -> None:
        nonlocal between
        write(f"{between}({display_filter(exchange)})")
        between = " || "

    def close() -> None:
        if between:
            write("\n")

    return feed, close


def _seconds(ns: int) -> str:
    return f"{ns // SECOND_NS}.{ns % SECOND_NS:09}"
