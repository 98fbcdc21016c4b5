"""The result of ``kdissect check`` as typed values: one document, whose JSON has the same names.

docs/check.schema.json is generated from this file, and the text page shows nothing else.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime  # noqa: TC003  (the JSON Schema is made from the annotations)

from kdissect.limits import MAX_COUNT
from kdissect.stats.document import CaptureFinding, Verdict, described
from kdissect.stats.survey import KAFKA

# Verdicts, the worst first: the first that applies is reported.
EMPTY, NO_KAFKA, LOSSY, TRUNCATED, ONE_SIDED, DAMAGED, PARTLY_DECODED, INCOMPLETE, GOOD = (
    *("empty", "no Kafka", "lossy", "truncated", "one-sided", "damaged", "partly decoded", "incomplete"),
    "good",
)
VERDICTS = (EMPTY, NO_KAFKA, LOSSY, TRUNCATED, ONE_SIDED, DAMAGED, PARTLY_DECODED, INCOMPLETE, GOOD)


def total(*counts: int | None) -> int | None:
    """The sum of the known counts, at most ``MAX_COUNT``; None if none is known."""
    known = [count for count in counts if count is not None]
    return min(sum(known), MAX_COUNT) if known else None


@dataclass(slots=True, kw_only=True)
class InterfacePart:
    """A capture interface."""

    interface: int = described("Its number in the file, from 0.")
    name: str | None = described("Its name, if the file has it.")
    link_type: int = described("LINKTYPE_ number.")
    link: str | None = described("Name of the link type.")
    ticks_per_second: int | None = described("Clock resolution: 1,000,000 means microseconds.")
    snaplen: int = described("Snapshot length; 0: unlimited.")
    packets: int = described("Packets in the file.")
    cut: int = described("Packets truncated by the snaplen.")
    cut_to: int | None = described(
        "Longest captured length of a truncated packet; null if none was truncated."
    )
    captured_bytes: int = described("Captured bytes.")
    wire_bytes: int = described("Original bytes.")
    received: int | None = described("Packets received by the interface, as reported by the capture program.")
    accepted: int | None = described("Packets accepted by the capture filter, as reported.")
    dropped_by_interface: int | None = described("Packets dropped by the interface, as reported.")
    dropped_by_system: int | None = described(
        "Packets dropped by the kernel because the capture program was too slow, as reported."
    )

    @property
    def dropped(self) -> int | None:
        """Packets dropped for either reason; None if unknown."""
        return total(self.dropped_by_interface, self.dropped_by_system)


@dataclass(slots=True, kw_only=True)
class FilePart:
    """A capture file."""

    file: str = described("As given.")
    format: str | None = described("pcap, pcapng or modified pcap; null if it could not be read.")
    byte_order: str | None = described("little or big.")
    compression: str | None = described("gzip, zstd or lz4; null: none.")
    application: str | None = described("The program that wrote it, if recorded.")
    bytes: int = described("File size.")
    packets: int = described("Number of packets.")
    first: datetime | None = described("Time of the earliest packet.")
    last: datetime | None = described("Time of the latest packet.")
    backward: int = described("Packets with an earlier timestamp than a preceding packet.")
    backward_max_us: int = described("The largest such difference, in microseconds.")
    interfaces: list[InterfacePart] = described("Interfaces with packets or statistics.")


@dataclass(slots=True, kw_only=True)
class TcpPart:
    """TCP reassembly of all connections."""

    retransmitted_bytes: int = described("Bytes repeated after they had been processed.")
    overlapping_bytes: int = described("Bytes repeated before they were processed.")
    conflicting_bytes: int = described("Repeated bytes that differ from the first copy.")
    out_of_order: int = described("Segments captured after a later one.")
    gaps: int = described("Number of gaps.")
    lost_bytes: int = described("Bytes missing from the capture.")
    undelivered_gaps: int = described(
        "Number of gaps that the receiver did not acknowledge either: the network lost them, not the capture."
    )
    undelivered_bytes: int = described("Bytes in these.")
    cut_bytes: int = described("Bytes not captured because of the snaplen.")
    without_connection: int = described(
        "Empty segments of unknown connections, such as the last ACK of a closed one."
    )


@dataclass(slots=True, kw_only=True)
class EndpointPart:
    """An address and port whose connections are not Kafka, or could not be recognized."""

    protocol: str = described("Protocol, if recognized.")
    endpoint: str = described("Address and port.")
    connections: int = described("Number of connections.")


@dataclass(slots=True, kw_only=True)
class TlsPart:
    """TLS connections to an endpoint whose sessions are alike."""

    endpoint: str = described("Address and port.")
    version: str | None = described("TLS version; null if the handshake was not captured.")
    cipher: str | None = described("Cipher suite. Likewise.")
    decrypted: bool = described("Whether they were decrypted.")
    connections: int = described("Number of connections.")


@dataclass(slots=True, kw_only=True)
class ConnectionsPart:
    """Connections by protocol and by how much of them was captured."""

    total: int = described("Connections with data, on the selected ports.")
    protocols: dict[str, int] = described("By protocol.")
    ipv4: int = described("Over IPv4.")
    ipv6: int = described("Over IPv6.")
    kafka_from_start: int = described("Kafka connections whose TCP handshake was captured.")
    kafka_mid_stream: int = described("Kafka connections that were already open.")
    kafka_one_sided: int = described("Kafka connections with packets from one side only.")
    close_reasons: dict[str, int] = described("How they ended: fin, reset, reused, idle, evicted, end.")
    without_data: int = described("Connections that opened, but without data; not counted above.")
    unopened: int = described(
        "Connections to known Kafka listeners that were refused, not answered or one-way."
    )
    unopened_others: int = described("The same to other endpoints, for example by a port scan.")
    tls_decrypted: int = described("TLS connections that were decrypted with a key log.")
    tls_not_decrypted: dict[str, int] = described("Those that were not, by reason; empty without a key log.")
    tls: list[TlsPart] = described("The most frequent TLS sessions by endpoint, version and cipher suite.")
    not_kafka: list[EndpointPart] = described(
        "The most frequent endpoints of connections that are not Kafka."
    )

    @property
    def kafka(self) -> int:
        """Number of Kafka connections."""
        return self.protocols.get(KAFKA, 0)

    @property
    def empty(self) -> int:
        """Number of connections without data."""
        return self.without_data + self.unopened + self.unopened_others


@dataclass(slots=True, kw_only=True)
class ExchangesPart:
    """Exchanges by kind and completeness."""

    total: int = described("Number of exchanges.")
    selected: int = described("Those that the filters select, which `health` is about.")
    complete: int = described("Exchanges with a response (or acks=0) and no anomalies apart from notes.")
    answered: int = described("Exchanges with request and response.")
    unacknowledged: int = described("Requests that expect no response: acks=0.")
    whole: int = described("Exchanges of which nothing is missing from the capture, answered or not.")
    unanswered: int = described(
        "Requests without a captured response, whatever the reason: the kind `unanswered`."
    )
    no_answer: int = described(
        "Those whose `outcome` is `unanswered`; text output calls only these unanswered."
    )
    abandoned: int = described(
        "Those to which no response was due when the connection was closed: the `outcome` is `abandoned`."
    )
    pending: int = described("Those that were still waiting when the capture ended.")
    incomplete_responses: int = described(
        "Answered ones whose response began but did not end, because the connection or the capture did: the "
        "`outcome` is `incomplete`."
    )
    incomplete_requests: int = described(
        "Unanswered ones whose request began but did not end: the `outcome` is `incomplete_request`."
    )
    orphans: int = described("Responses without a request.")
    lost: int = described("Exchanges with at least one message in a gap; some are inferred.")
    incomplete: int = described("Exchanges with a gap inside a message.")

    @property
    def unclear(self) -> int:
        """Number of requests whose response may not have been captured."""
        return self.unanswered - self.no_answer - self.abandoned - self.pending - self.incomplete_requests

    @property
    def missing(self) -> int:
        """Number of exchanges that were not fully captured."""
        return self.total - self.whole


@dataclass(slots=True, kw_only=True)
class AnomalyPart:
    """A kind of anomaly."""

    anomaly: str = described("Kind of anomaly.")
    severity: str = described("error: not decoded; warning: something is missing; note: unusual.")
    meaning: str = described("What it means.")
    exchanges: int = described("Number of exchanges with it.")
    example: str = described("One of them, for read --exchange.")


@dataclass(slots=True, kw_only=True)
class UnknownPart:
    """An API or version that this version of kdissect does not know."""

    api_key: int = described("API key on the wire.")
    api: str | None = described("API name, if only the version is unknown.")
    api_version: int | None = described("API version on the wire.")
    exchanges: int = described("Number of exchanges.")


@dataclass(slots=True, kw_only=True)
class Check:
    """The quality and the content of a capture."""

    schema_version: int = described(
        "Version of this schema: raised when a key or a kind of anomaly is renamed or removed."
    )
    verdict: str = described(
        "Of the capture: empty, no Kafka, lossy, truncated, one-sided, damaged, partly decoded, incomplete "
        "or good."
    )
    message: str = described("How many exchanges were fully captured.")
    health: Verdict = described("Of the traffic, as in `kdissect summary`.")
    findings: list[CaptureFinding] = described("Reasons and advice, the worst first.")
    packets: int = described("In all files.")
    first: datetime | None = described("Time of the earliest packet.")
    last: datetime | None = described("Time of the latest packet.")
    seconds: float = described("The difference.")
    files: list[FilePart] = described("Each file.")
    skipped: dict[str, int] = described("Skipped packets by reason.")
    tcp: TcpPart = described("Reassembly.")
    connections: ConnectionsPart = described("Connections.")
    exchanges: ExchangesPart = described("Exchanges.")
    anomalies: list[AnomalyPart] = described("Anomalies in exchanges, the worst first.")
    unknown: list[UnknownPart] = described("APIs and versions newer than this version of kdissect.")
    warnings: list[str] = described("Warnings about the files.")
    notices: list[str] = described("Anomalies on connections, outside exchanges.")
    counts: dict[str, int] = described("All internal counters; their names may change.")

    @property
    def interfaces(self) -> list[InterfacePart]:
        """Those of all files."""
        return [interface for file in self.files for interface in file.interfaces]

    @property
    def dropped(self) -> int | None:
        """Packets dropped on any of them; None if unknown."""
        return total(*(each.dropped for each in self.interfaces))

    @property
    def doubts(self) -> list[CaptureFinding]:
        """The findings that led to the verdict: conclusions from the capture are worth less."""
        return [each for each in self.findings if each.verdict != GOOD]

    @property
    def quality(self) -> Verdict:
        """The verdict on the capture, with its first reason."""
        reason = None if self.verdict == GOOD else self.findings[0].message
        return Verdict(verdict=self.verdict, message=self.message, reason=reason)
