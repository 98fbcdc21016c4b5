"""What ``kdissect check`` says, as typed values: one document, whose JSON has the same names.

docs/check.schema.json is made from this file, and the page that people read shows nothing else.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime  # noqa: TC003  (the JSON Schema is made from the annotations)

from kdissect.limits import MOST_COUNT
from kdissect.stats.document import told

# Verdicts, the worst first: of those that fit, the first is told.
EMPTY, NO_KAFKA, LOSSY, CUT, ONE_SIDED, DAMAGED, UNREAD, GOOD = (
    *("empty", "no Kafka", "lossy", "cut", "one-sided", "damaged", "partly unread"),
    "good",
)
VERDICTS = (EMPTY, NO_KAFKA, LOSSY, CUT, ONE_SIDED, DAMAGED, UNREAD, GOOD)


def total(*counts: int | None) -> int | None:
    """The sum of those that are known, at most ``MOST_COUNT``; None where none is."""
    known = [count for count in counts if count is not None]
    return min(sum(known), MOST_COUNT) if known else None


@dataclass(slots=True, kw_only=True)
class Finding:
    """Something that a person may want to know, or to do differently next time."""

    verdict: str = told("The verdict this finding leads to; good: it does no harm.")
    finding: str = told("One sentence.")
    advice: str | None = told("What to do about it; null if there is nothing to do.")


@dataclass(slots=True, kw_only=True)
class InterfacePart:
    """An interface that packets were captured on."""

    interface: int = told("Its number in the file, from 0.")
    name: str | None = told("Its name, if the file has it.")
    link_type: int = told("LINKTYPE_ number.")
    link: str | None = told("Name of the link type.")
    ticks_per_second: int | None = told("Clock resolution: 1,000,000 means microseconds.")
    snaplen: int = told("Snapshot length; 0: unlimited.")
    packets: int = told("Packets in the file.")
    cut: int = told("Packets cut by the snapshot length.")
    cut_to: int | None = told("Longest captured length of a cut packet; null if none was cut.")
    captured_bytes: int = told("Captured bytes.")
    wire_bytes: int = told("Original bytes.")
    received: int | None = told("Packets received by the interface, as reported by the capture program.")
    accepted: int | None = told("Packets accepted by the capture filter, as reported.")
    dropped_by_interface: int | None = told("Packets dropped by the interface, as reported.")
    dropped_by_system: int | None = told(
        "Packets dropped by the kernel because the capture program was too slow, as reported."
    )

    @property
    def dropped(self) -> int | None:
        """Packets that were dropped for either reason; None where that is not known."""
        return total(self.dropped_by_interface, self.dropped_by_system)


@dataclass(slots=True, kw_only=True)
class FilePart:
    """A capture file."""

    file: str = told("As given.")
    format: str | None = told("pcap, pcapng or modified pcap; null if it could not be read.")
    byte_order: str | None = told("little or big.")
    compression: str | None = told("gzip, zstd or lz4; null: none.")
    application: str | None = told("The program that wrote it, if recorded.")
    bytes: int = told("File size.")
    packets: int = told("Number of packets.")
    first: datetime | None = told("Time of the earliest packet.")
    last: datetime | None = told("Time of the latest packet.")
    backward: int = told("Packets with an earlier time than one before them.")
    furthest_back_us: int = told("The largest such difference, in microseconds.")
    interfaces: list[InterfacePart] = told("Interfaces with packets or statistics.")


@dataclass(slots=True, kw_only=True)
class TcpPart:
    """What reassembly met, on all connections."""

    retransmitted_bytes: int = told("Bytes repeated after they had been processed.")
    overlapping_bytes: int = told("Bytes repeated before they were processed.")
    conflicting_bytes: int = told("Repeated bytes that differ from the first copy.")
    out_of_order: int = told("Segments captured after a later one.")
    gaps: int = told("Number of gaps.")
    lost_bytes: int = told("Bytes missing from the capture.")
    cut_bytes: int = told("Bytes cut off by the snapshot length.")
    without_connection: int = told("Segments without data that belong to no connection.")


@dataclass(slots=True, kw_only=True)
class EndPart:
    """Who answered on connections that could not be read."""

    protocol: str = told("Protocol, if recognized.")
    end: str = told("Address and port.")
    connections: int = told("Number of connections.")


@dataclass(slots=True, kw_only=True)
class ConnectionsPart:
    """Connections by what they are."""

    total: int = told("Connections with data, on the selected ports.")
    protocols: dict[str, int] = told("By protocol.")
    ipv4: int = told("Over IPv4.")
    ipv6: int = told("Over IPv6.")
    kafka_from_start: int = told("Kafka connections whose handshake was captured.")
    kafka_mid_stream: int = told("Kafka connections that were already open.")
    kafka_one_sided: int = told("Kafka connections with data from one side only.")
    ends: dict[str, int] = told("How they ended: fin, reset, reused, idle, evicted, end.")
    silent: int = told("Connections without data, not counted above: most were refused.")
    unread: list[EndPart] = told("The most frequent endpoints of connections that are not Kafka.")


@dataclass(slots=True, kw_only=True)
class ExchangesPart:
    """Requests and responses."""

    total: int = told("Number of exchanges.")
    complete: int = told("Complete exchanges: whole, fully decoded, without errors.")
    answered: int = told("Exchanges with request and response.")
    unacknowledged: int = told("Requests that expect no response: acks=0.")
    unanswered: int = told("Requests whose response never came or was not captured.")
    orphans: int = told("Responses whose request was not captured.")
    lost: int = told("Exchanges with at least one message in a gap; some are inferred.")
    incomplete: int = told("Exchanges with a gap inside a message.")


@dataclass(slots=True, kw_only=True)
class AnomalyPart:
    """Something wrong or odd."""

    anomaly: str = told("Kind of anomaly.")
    severity: str = told("error: not decoded; warning: something is missing; note: unusual.")
    meaning: str = told("What it means.")
    exchanges: int = told("Number of exchanges with it.")
    example: str = told("One of them, for read --exchange.")


@dataclass(slots=True, kw_only=True)
class UnknownPart:
    """An api or a version that this program does not know."""

    api_key: int = told("API key on the wire.")
    api: str | None = told("API name, if only the version is unknown.")
    api_version: int | None = told("API version on the wire.")
    exchanges: int = told("Number of exchanges.")


@dataclass(slots=True, kw_only=True)
class Check:
    """What kind of capture this is, and how good."""

    verdict: str = told("empty, no Kafka, lossy, cut, one-sided, damaged, partly unread or good.")
    sentence: str = told("The verdict as a sentence.")
    findings: list[Finding] = told("Reasons and remedies, the worst first.")
    packets: int = told("In all files.")
    first: datetime | None = told("Time of the earliest packet.")
    last: datetime | None = told("Time of the latest packet.")
    seconds: float = told("The difference.")
    files: list[FilePart] = told("Each file.")
    skipped: dict[str, int] = told("Skipped packets by reason.")
    tcp: TcpPart = told("Reassembly.")
    connections: ConnectionsPart = told("Connections.")
    exchanges: ExchangesPart = told("Exchanges.")
    anomalies: list[AnomalyPart] = told("Anomalies in exchanges, the worst first.")
    unknown: list[UnknownPart] = told("APIs and versions newer than this version of kdissect.")
    warnings: list[str] = told("Warnings about the files.")
    counts: dict[str, int] = told("All internal counters; their names may change.")
