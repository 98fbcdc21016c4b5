"""Exchanges, connections, capture files -> rows of ``connections``, ``topic_ids``, ``anomalies``,
``captures``.

Holds the pairs that have a row in ``topic_ids``: at most ``limits.topic_names``.
"""

from __future__ import annotations

import re
from operator import attrgetter
from typing import TYPE_CHECKING, Any, NamedTuple

from kdissect.anomalies import CATALOGUE
from kdissect.model import ANSWERED, ORPHAN, UNACKNOWLEDGED, UNANSWERED
from kdissect.names import Recent, kept
from kdissect.stats.check import interfaces
from kdissect.stats.quality import total
from kdissect.tables.columns import (
    BOOLEAN,
    INT32,
    INT64,
    STRING,
    TIMESTAMP,
    Array,
    Column,
    Struct,
    file_name,
    tcp_columns,
)
from kdissect.tables.form import SEE_EXCHANGES, Table, day, of_exchange, time_columns, valid_time
from kdissect.version import __version__

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from kdissect.capture.source import Source
    from kdissect.limits import Limits
    from kdissect.model import Anomaly, Exchange
    from kdissect.net.analysis import TcpAnalysis
    from kdissect.stats.connection_log import ConnectionLogRow
    from kdissect.stats.quality import InterfacePart
    from kdissect.stats.survey import Census, FileCount
    from kdissect.tables.columns import Getter, Type


# --- topic IDs ----------------------------------------------------------------------------------------------


class TopicIdRow(NamedTuple):
    """A topic ID, its name, and the first exchange that has the ID."""

    exchange: Exchange
    topic_id: str
    topic: str


class TopicIds:
    """Makes the rows of ``topic_ids``, one for each pair of ID and name."""

    def __init__(self, limits: Limits) -> None:
        self._seen: Recent[tuple[str, str], None] = Recent(limits.topic_names)

    def rows(self, exchange: Exchange) -> Iterator[TopicIdRow]:
        """The rows of pairs that did not occur before."""
        for pair in exchange.topic_ids.items():
            if self.is_new(pair):
                yield TopicIdRow(exchange, *pair)

    def has(self, pair: tuple[str, str]) -> bool:
        """Whether this pair of ID and name occurred before."""
        return kept(pair) in self._seen

    def is_new(self, pair: tuple[str, str]) -> bool:
        """Whether this pair of ID and name is new."""
        if self.has(pair):
            return False
        self._seen.keep(pair, None)
        return True


TOPIC_IDS = Table(
    "topic_ids",
    "A topic's ID and its name.",
    (
        Column("topic_id", STRING, attrgetter("topic_id"), "Topic ID, as Kafka prints it."),
        Column("topic", STRING, attrgetter("topic"), "Topic name learned from the capture."),
        *of_exchange("connection", "number", "cluster_id"),
        *time_columns(attrgetter("exchange.time_ns"), "Time of the first exchange that has the ID."),
    ),
)


# --- anomalies ----------------------------------------------------------------------------------------------


class AnomalyRow(NamedTuple):
    """An anomaly, in an exchange or after the last one of a connection."""

    anomaly: Anomaly
    connection: str
    capture: str
    time_ns: int | None
    cluster_id: str | None
    exchange: Exchange | None


def anomalies_of(exchange: Exchange) -> Iterator[AnomalyRow]:
    """The anomalies of an exchange."""
    if exchange.anomalies:
        capture = exchange.first_frame.interface.capture
        for anomaly in exchange.anomalies:
            yield AnomalyRow(
                anomaly, exchange.connection.id, capture, exchange.time_ns, exchange.cluster_id, exchange
            )


def anomalies_after(row: ConnectionLogRow) -> Iterator[AnomalyRow]:
    """The anomalies after the last exchange of a connection."""
    for anomaly in row.unattached:
        yield AnomalyRow(anomaly, row.id, row.capture, row.last_ns, row.cluster_id, None)


def _exchange_column(name: str, kind: Type, description: str) -> Column:
    """A column of the row's exchange, null if it has none."""
    column = of_exchange(name)[0]
    get = column.get
    return Column(name, kind, lambda row: None if row.exchange is None else get(row), description)


ANOMALIES = Table(
    "anomalies",
    "An anomaly.",
    (
        Column("capture", STRING, lambda row: file_name(row.capture), "See `exchanges`."),
        Column("connection", STRING, attrgetter("connection"), "See `exchanges`."),
        _exchange_column("number", INT64, "See `exchanges`; null after the last exchange of a connection."),
        _exchange_column("packet", INT64, "See `exchanges`; null as above."),
        *time_columns(
            attrgetter("time_ns"), "See `exchanges`; otherwise the time of the connection's last bytes."
        ),
        Column("cluster_id", STRING, attrgetter("cluster_id"), SEE_EXCHANGES),
        _exchange_column("api", STRING, "See `exchanges`."),
        Column("kind", STRING, attrgetter("anomaly.kind"), "Kind of anomaly."),
        Column(
            "severity",
            STRING,
            lambda row: CATALOGUE[row.anomaly.kind].severity,
            "`error`: not decoded; `warning`: something is missing; `note`: unusual.",
        ),
        Column("where", STRING, attrgetter("anomaly.where"), "Message and field path, or `connection`."),
        Column("detail", STRING, attrgetter("anomaly.detail"), "Details."),
    ),
)


# --- connections --------------------------------------------------------------------------------------------


def _plain(name: str, kind: Type, description: str, path: str | None = None, unit: str = "") -> Column:
    return Column(name, kind, attrgetter(path or name), description, unit)


def _kind(name: str, kind: str, description: str) -> Column:
    return Column(name, INT64, lambda row: row.kinds[kind], description)


def _gap(name: str, key: str, description: str, unit: str = "") -> Column:
    return Column(name, INT64, lambda row: row.gaps.get(key, 0), description, unit)


def _tcp(
    name: str,
    get: Callable[[TcpAnalysis, ConnectionLogRow], Any],
    description: str,
    unit: str = "",
    kind: Type = INT64,
) -> Column:
    """A column from the TCP analysis, null if the connection is still open."""
    return Column(name, kind, lambda row: None if row.tcp is None else get(row.tcp, row), description, unit)


def _sides(
    name: str,
    get: Callable[[TcpAnalysis, ConnectionLogRow, int], Any],
    description: str,
    unit: str = "",
    kind: Type = INT64,
) -> tuple[Column, Column]:
    """Two such columns, of the client and of the broker; ``get`` takes the side."""
    return (
        _tcp(f"client_{name}", lambda tcp, row: get(tcp, row, row.client_side), description, unit, kind),
        _tcp(
            f"broker_{name}",
            lambda tcp, row: get(tcp, row, 1 - row.client_side),
            "Same for the broker.",
            unit,
            kind,
        ),
    )


def _round_trip_us(tcp: TcpAnalysis, side: int) -> int | None:
    """The shortest round trip to a side: it is measured with a SYN or payload of the other side."""
    round_trip_ns = tcp.shortest_round_trip_ns(1 - side)
    return None if round_trip_ns is None else round_trip_ns // 1000


_TCP_COLUMNS = (
    _plain(
        "opening",
        STRING,
        "`opened`, `refused` (RST), `unanswered` (no SYN-ACK) or `one_way` (the SYN-ACK was "
        "repeated, but never acknowledged); null if its SYN was not captured. A "
        "connection that did not open has a row only if it was to a known Kafka listener.",
    ),
    _tcp(
        "connect_us",
        lambda tcp, _: tcp.connect_ns and tcp.connect_ns // 1000,
        "From the first SYN to the end of the TCP handshake; null if not all of it was captured.",
        "us",
    ),
    _tcp("syn_retransmissions", lambda tcp, _: tcp.syn_retransmissions, "SYN retransmissions."),
    *_sides(
        "round_trip_us",
        lambda tcp, _, side: _round_trip_us(tcp, side),
        "Shortest round-trip time (RTT) between the point of capture and the client, from a SYN or payload "
        "to its ACK: longer ones include delayed ACKs. Null if none was measured.",
        "us",
    ),
    *_sides(
        "segments", lambda tcp, _, side: tcp.segments(side), "Segments with new payload from the client."
    ),
    *_sides(
        "retransmissions",
        lambda tcp, _, side: tcp.retransmitted(side),
        "Segments that the client retransmitted, excluding SYNs.",
    ),
    *_sides(
        "spurious_retransmissions",
        lambda tcp, _, side: tcp.spurious(side),
        "Retransmissions from the client that were unnecessary, as the broker reported (D-SACK).",
    ),
    *_sides(
        "repeated_bytes",
        lambda _, row, side: row.repeated[side],
        "Bytes from the client that were retransmitted, or captured twice.",
        "bytes",
    ),
    *_sides(
        "duplicate_acks",
        lambda tcp, _, side: tcp.duplicate_acks(side),
        "Duplicate acknowledgments from the client.",
    ),
    *_sides(
        "zero_window_us",
        lambda tcp, row, side: tcp.zero_window_ns(side, row.closed_ns or 0) // 1000,
        "How long the client's receive window was zero: it did not read.",
        "us",
    ),
    *_sides(
        "window_bytes",
        lambda tcp, _, side: tcp.window_bytes(side),
        "Largest receive window of the client: no more is under way to it. Null if SYN or SYN-ACK were not "
        "captured, without which its unit is unknown.",
        "bytes",
    ),
    *_sides(
        "window_scaling",
        lambda tcp, _, side: tcp.offers_scaling(side),
        "Whether the client's SYN offers window scaling. If not, no window of either side exceeds 65,535 "
        "bytes, and the broker cannot offer it. Null if it was not captured.",
        kind=BOOLEAN,
    ),
    *_sides(
        "unacknowledged_bytes",
        lambda tcp, _, side: tcp.unacknowledged(side),
        "Bytes from the client that were not acknowledged by the end.",
        "bytes",
    ),
    _plain("ended_by", STRING, "Who sent the first FIN or RST: `client` or `broker`; null: neither."),
    Column(
        "end_flag", STRING, lambda row: row.end and ("RST" if row.end.reset else "FIN"), "`FIN` or `RST`."
    ),
    _tcp("outstanding", lambda _, row: row.outstanding, "Requests without a response when it ended."),
    _tcp(
        "idle_us",
        lambda _, row: None if row.idle_ns is None else row.idle_ns // 1000,
        "From its last captured bytes to that FIN or RST.",
        "us",
    ),
)

CONNECTIONS = Table(
    "connections",
    "A TCP connection, Kafka or not. With filters: only connections with a matching exchange, whose "
    "counts cover all their exchanges.",
    (
        _plain("connection", STRING, "See `exchanges`.", "id"),
        Column("capture", STRING, lambda row: file_name(row.capture), "Capture in which it begins."),
        *time_columns(attrgetter("first_ns"), "Time of its first packet; if still open, of its first "
                      "exchange."),
        Column("last_time", TIMESTAMP, valid_time(attrgetter("last_ns")), "Time of its last captured bytes."),
        _plain(
            "close_reason",
            STRING,
            "`fin`, `reset`, `reused` (a new connection with the same endpoints), `idle`, `evicted` "
            "(dropped because of the `connections` limit), `end` (the capture ended); null if reading "
            "was stopped earlier.",
        ),
        _plain("protocol", STRING, "`Kafka`, `TLS`, `HTTP` ...; null if not recognized."),
        _plain("from_start", BOOLEAN, "Whether its TCP handshake was captured; null if still open."),
        _plain("client_ip", STRING, "Client address; if not Kafka, of the side that opened it; that in the "
               "PROXY header, if it begins with one.", "client.ip"),
        _plain("client_port", INT32, "Client TCP port, as above.", "client.port"),
        _plain("broker_ip", STRING, "Broker address.", "broker.ip"),
        _plain("broker_port", INT32, "Broker TCP port.", "broker.port"),
        _plain("cluster_id", STRING, "Cluster of the broker, see `exchanges`; of all connections to a broker "
               "that did not open, null."),
        *tcp_columns(lambda row: row),
        _plain("client_id", STRING, "Client ID of the first request that has one."),
        _plain("client_software_name", STRING, "Client library, if the connection sent it."),
        _plain("client_software_version", STRING, "Version of the client library."),
        _plain("principal", STRING, "Authenticated principal, if it appears in the traffic."),
        _plain("sasl_mechanism", STRING, "SASL mechanism."),
        _plain("tls_version", STRING, "`TLS 1.3` ...; null without TLS or a captured TLS handshake.",
               "tls.version"),
        _plain("tls_cipher", STRING, "Cipher suite, as registered by IANA; null as above.", "tls.cipher"),
        _plain("server_name", STRING, "Server name that the client requested (SNI); null as above.",
               "tls.server_name"),
        _plain("exchanges", INT64, "Number of exchanges."),
        _kind("answered", ANSWERED, "Exchanges with request and response."),
        _kind("unanswered", UNANSWERED, "Requests of the kind `unanswered`: no response captured."),
        _plain("no_answer", INT64, "Those whose `outcome` is `unanswered`."),
        _plain("incomplete", INT64, "Exchanges with a message that began but did not end: the `outcome` is "
               "`incomplete` or `incomplete_request`."),
        _kind("unacknowledged", UNACKNOWLEDGED, "Requests that expect no response: acks=0."),
        _kind("orphans", ORPHAN, "Responses without a request."),
        _plain("request_bytes", INT64, "Bytes of all request frames.", unit="bytes"),
        _plain("response_bytes", INT64, "Bytes of all response frames.", unit="bytes"),
        _plain("anomalies", INT64, "Anomalies in and between exchanges."),
        _gap("gaps", "kafka_gaps", "Number of gaps."),
        _gap("lost_bytes", "kafka_lost_bytes", "Bytes missing from the capture.", "bytes"),
        _gap("cut_bytes", "kafka_cut_bytes", "Bytes not captured because of the snaplen.", "bytes"),
        _plain("repeated_bytes", INT64, "Repeated bytes: retransmitted, or captured twice; null if still "
               "open, as are `out_of_order`, `resyncs`, `skipped_bytes` and `unread_bytes`.", unit="bytes"),
        _plain("out_of_order", INT64, "Segments captured after a later one."),
        *_TCP_COLUMNS,
        _plain("resyncs", INT64, "Number of searches for the next frame boundary."),
        _plain("skipped_bytes", INT64, "Bytes skipped by those searches.", unit="bytes"),
        _plain("unread_bytes", INT64, "Captured bytes not recognized as Kafka: TLS, for example.",
               unit="bytes"),
    ),
)  # fmt: skip


# --- captures -----------------------------------------------------------------------------------------------


class CaptureFileRow(NamedTuple):
    """A capture file.

    Attributes:
        packets: counts of its packets; None if there are none.
        interfaces: those with packets.
        warnings: about the file.
    """

    source: Source
    packets: FileCount | None
    interfaces: list[InterfacePart]
    warnings: list[str]


def captures(sources: Sequence[Source], census: Census, warnings: Sequence[str]) -> Iterator[CaptureFileRow]:
    """The rows of ``captures``; each warning begins with the name of its file."""
    own: dict[str, list[str]] = {source.name: [] for source in sources}
    for text in warnings:
        for separator in re.finditer(": ", text):  # which a name may contain, too
            if (texts := own.get(text[: separator.start()])) is not None:
                texts.append(file_name(text[separator.end() :]))
    for source in sources:
        file = census.files.get(source.name)
        yield CaptureFileRow(source, file, interfaces(source, census), own[source.name])


def _of_packets(name: str) -> Getter:
    return lambda row: None if row.packets is None else getattr(row.packets, name)


def _interfaces(row: CaptureFileRow) -> list[dict[str, Any]]:
    return [{name: getattr(each, name) for name, _ in INTERFACE.fields} for each in row.interfaces]


def _dropped(row: CaptureFileRow) -> int | None:
    return total(*(each.dropped for each in row.interfaces))


INTERFACE = Struct(
    (
        ("interface", INT32),
        ("name", STRING),
        ("link_type", INT32),
        ("link", STRING),
        ("ticks_per_second", INT64),
        ("snaplen", INT64),
        ("packets", INT64),
        ("cut", INT64),
        ("received", INT64),
        ("dropped_by_interface", INT64),
        ("dropped_by_system", INT64),
    )
)

CAPTURES = Table(
    "captures",
    "A capture file.",
    (
        Column("capture", STRING, lambda row: file_name(row.source.name), "See `exchanges`."),
        day(_of_packets("first_ns")),
        Column("first_time", TIMESTAMP, valid_time(_of_packets("first_ns")), "Time of its earliest packet."),
        Column("last_time", TIMESTAMP, valid_time(_of_packets("last_ns")), "Time of its latest packet."),
        Column(
            "format",
            STRING,
            lambda row: row.source.form and row.source.form.name,
            "`pcap`, `pcapng`, `modified pcap`; null if it could not be read.",
        ),
        _plain("compression", STRING, "`gzip`, `zstd` or `lz4`; null: none.", "source.compression"),
        Column(
            "application",
            STRING,
            lambda row: row.source.form and row.source.form.application,
            "The program that wrote it, if recorded.",
        ),
        _plain("bytes", INT64, "File size.", "source.bytes_read", "bytes"),
        _plain("packets", INT64, "Packets read.", "source.packets"),
        Column(
            "packets_cut",
            INT64,
            lambda row: sum(each.cut for each in row.interfaces),
            "Packets truncated by the snaplen.",
        ),
        Column(
            "packets_dropped",
            INT64,
            _dropped,
            (
                "Packets dropped by the kernel or interface during the capture, as reported by the "
                "capture program; null if not reported."
            ),
        ),
        Column(
            "packets_backward",
            INT64,
            lambda row: 0 if row.packets is None else row.packets.backward,
            "Packets with an earlier timestamp than a preceding packet.",
        ),
        Column(
            "interfaces",
            Array(INTERFACE),
            _interfaces,
            "Interfaces with packets: number, name, LINKTYPE_, clock resolution, snaplen, counts.",
        ),
        Column("warnings", Array(STRING), attrgetter("warnings"), "Warnings about it."),
        Column("kdissect_version", STRING, lambda _: __version__, "The kdissect version that read it."),
    ),
)
