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

    verdict: str = told("What it makes of the capture, one of the verdicts; good: it does no harm.")
    finding: str = told("One sentence.")
    advice: str | None = told("What to do about it; null where there is nothing to do.")


@dataclass(slots=True, kw_only=True)
class InterfacePart:
    """An interface that packets were captured on."""

    interface: int = told("Its number in the file, from 0.")
    name: str | None = told("Its own name, where the file tells it.")
    link_type: int = told("LINKTYPE_ number.")
    link: str | None = told("What that number means.")
    ticks_per_second: int | None = told("Of its clock: a million are microseconds.")
    snaplen: int = told("Bytes kept of each packet; 0: no limit.")
    packets: int = told("In the file.")
    cut: int = told("Of those, packets longer than what was kept of them.")
    cut_to: int | None = told("The most that was kept of one of them; null where there is none.")
    captured_bytes: int = told("In the file.")
    wire_bytes: int = told("As long as the packets were.")
    received: int | None = told("Packets that the interface received, by the capturing program's count.")
    accepted: int | None = told("Packets that passed the capture filter, likewise.")
    dropped_by_interface: int | None = told("Packets that the interface had no room for, likewise.")
    dropped_by_system: int | None = told("Packets that the capturing program was too slow for, likewise.")

    @property
    def dropped(self) -> int | None:
        """Packets that were dropped for either reason; None where that is not known."""
        return total(self.dropped_by_interface, self.dropped_by_system)


@dataclass(slots=True, kw_only=True)
class FilePart:
    """A capture file."""

    file: str = told("As it was named.")
    format: str | None = told("pcap, pcapng or modified pcap; null where nothing of it could be read.")
    byte_order: str | None = told("little or big.")
    compression: str | None = told("gzip, zstd or lz4; null: none.")
    application: str | None = told("What wrote it, where it tells.")
    bytes: int = told("As they are on disk.")
    packets: int = told("How many.")
    first: datetime | None = told("Time of the earliest packet.")
    last: datetime | None = told("Time of the latest packet.")
    backward: int = told("Packets with an earlier time than one before them.")
    furthest_back_us: int = told("How much earlier at most, in microseconds.")
    interfaces: list[InterfacePart] = told("Those that packets were captured on, or that were counted.")


@dataclass(slots=True, kw_only=True)
class TcpPart:
    """What reassembly met, on all connections."""

    retransmitted_bytes: int = told("That came again after they were passed on.")
    overlapping_bytes: int = told("That came twice before they were.")
    conflicting_bytes: int = told("Of those, what differs from what was captured first.")
    out_of_order: int = told("Segments that came before an earlier one.")
    gaps: int = told("Places where bytes are missing.")
    lost_bytes: int = told("Bytes whose packets are not in the capture.")
    cut_bytes: int = told("Bytes that a snaplen cut off.")
    without_connection: int = told("Segments without data that belong to no connection.")


@dataclass(slots=True, kw_only=True)
class EndPart:
    """Who answered on connections that could not be read."""

    protocol: str = told("What they speak, as far as that is known.")
    end: str = told("Address and port.")
    connections: int = told("How many.")


@dataclass(slots=True, kw_only=True)
class ConnectionsPart:
    """Connections by what they are."""

    total: int = told("With data, on ports that were looked at.")
    protocols: dict[str, int] = told("By protocol.")
    ipv4: int = told("Over IPv4.")
    ipv6: int = told("Over IPv6.")
    kafka_from_start: int = told("Kafka connections whose opening was captured.")
    kafka_mid_stream: int = told("Kafka connections that were open before.")
    kafka_one_sided: int = told("Kafka connections of which one side's bytes alone were captured.")
    ends: dict[str, int] = told("How they ended: fin, reset, reused, idle, evicted, end.")
    silent: int = told("Connections besides, in which nobody said anything: most were refused.")
    unread: list[EndPart] = told("The ends that were met most often on connections that are not Kafka's.")


@dataclass(slots=True, kw_only=True)
class ExchangesPart:
    """Requests and responses."""

    total: int = told("That were found.")
    complete: int = told("Of those, with all that was said, and nothing missing or wrong in it.")
    answered: int = told("With request and response.")
    unacknowledged: int = told("That wanted no response: acks=0.")
    unanswered: int = told("Whose response never came, or was not captured.")
    orphans: int = told("Responses whose request was not captured.")
    lost: int = told("Of which one message at least was in a gap; some of them nobody saw.")
    incomplete: int = told("With a gap inside a message.")


@dataclass(slots=True, kw_only=True)
class AnomalyPart:
    """Something wrong or odd."""

    anomaly: str = told("Its kind.")
    severity: str = told("error: not decoded; warning: something is missing; note: odd.")
    meaning: str = told("What it means.")
    exchanges: int = told("How many have it.")
    example: str = told("One of them, for read --exchange.")


@dataclass(slots=True, kw_only=True)
class UnknownPart:
    """An api or a version that this program does not know."""

    api_key: int = told("As on the wire.")
    api: str | None = told("Its name, where only the version is unknown.")
    api_version: int | None = told("As on the wire.")
    exchanges: int = told("How many.")


@dataclass(slots=True, kw_only=True)
class Check:
    """What kind of capture this is, and how good."""

    verdict: str = told("empty, no Kafka, lossy, cut, one-sided, damaged, partly unread or good.")
    sentence: str = told("The same in words.")
    findings: list[Finding] = told("Why, and what can be done; the worst first.")
    packets: int = told("In all files.")
    first: datetime | None = told("Time of the earliest packet.")
    last: datetime | None = told("Time of the latest packet.")
    seconds: float = told("Between them.")
    files: list[FilePart] = told("Each of them.")
    skipped: dict[str, int] = told("Packets that were not looked into, by reason.")
    tcp: TcpPart = told("Reassembly.")
    connections: ConnectionsPart = told("Connections.")
    exchanges: ExchangesPart = told("Exchanges.")
    anomalies: list[AnomalyPart] = told("What is wrong or odd in exchanges, the worst first.")
    unknown: list[UnknownPart] = told("Apis and versions that are newer than this program.")
    warnings: list[str] = told("What was odd about the files.")
    counts: dict[str, int] = told(
        "Everything that was counted, by the program's own names; these may change."
    )
