"""Exchange, connection, file -> the rows of ``connections``, ``topic_ids``, ``anomalies`` and ``captures``.

Holds, for ``topic_ids``, the pairs that have their row: at most ``limits.topic_names``.
"""

from __future__ import annotations

from operator import attrgetter
from typing import TYPE_CHECKING, Any, NamedTuple

from kdissect import __version__
from kdissect.anomalies import CATALOGUE
from kdissect.model import ANSWERED, ORPHAN, UNACKNOWLEDGED, UNANSWERED
from kdissect.stats.appraisal import interfaces
from kdissect.stats.quality import total
from kdissect.tables.columns import BOOLEAN, INT32, INT64, STRING, TIMESTAMP, Array, Column, Struct, file_name
from kdissect.tables.form import Table, day, of_exchange, time_columns, within

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from kdissect.capture.source import Source
    from kdissect.limits import Limits
    from kdissect.model import Anomaly, Exchange
    from kdissect.stats.connection_log import ConnectionRow
    from kdissect.stats.quality import InterfacePart
    from kdissect.stats.survey import Census, FileCount
    from kdissect.tables.columns import Getter, Type


# --- topic ids ----------------------------------------------------------------------------------------------


class TopicIdRow(NamedTuple):
    """A topic's id and its name, and the first exchange that has the id."""

    exchange: Exchange
    topic_id: str
    topic: str


class TopicIds:
    """Finds them, each once."""

    def __init__(self, limits: Limits) -> None:
        self._seen: dict[tuple[str, str], None] = {}
        self._most = limits.topic_names

    def rows(self, exchange: Exchange) -> Iterator[TopicIdRow]:
        """Those that no exchange before had."""
        for pair in exchange.topic_names.items():
            if self.is_new(pair):
                yield TopicIdRow(exchange, *pair)

    def is_new(self, pair: tuple[str, str]) -> bool:
        """Whether an id and its name were not seen before."""
        if pair in self._seen:
            return False
        self._seen[pair] = None
        if len(self._seen) > self._most:
            del self._seen[next(iter(self._seen))]
        return True


TOPIC_IDS = Table(
    "topic_ids",
    "A topic's id and its name.",
    (
        Column("topic_id", STRING, attrgetter("topic_id"), "The id, as Kafka prints it."),
        Column("topic", STRING, attrgetter("topic"), "The name that the capture has taught."),
        *of_exchange("connection", "number"),
        *time_columns(attrgetter("exchange.time_ns"), "Of the first exchange that has the id."),
    ),
)


# --- anomalies ----------------------------------------------------------------------------------------------


class AnomalyRow(NamedTuple):
    """Something wrong or odd, in an exchange or behind the last one of a connection."""

    anomaly: Anomaly
    connection: str
    capture: str
    time_ns: int | None
    exchange: Exchange | None


def anomalies_of(exchange: Exchange) -> Iterator[AnomalyRow]:
    """What is wrong with an exchange."""
    if exchange.anomalies:
        capture = exchange.first_frame.interface.capture
        for anomaly in exchange.anomalies:
            yield AnomalyRow(anomaly, exchange.connection.id, capture, exchange.time_ns, exchange)


def anomalies_behind(row: ConnectionRow) -> Iterator[AnomalyRow]:
    """What is wrong behind the last exchange of a connection."""
    for anomaly in row.unattached:
        yield AnomalyRow(anomaly, row.id, row.capture, row.last_ns, None)


def _of(name: str, kind: Type, sentence: str) -> Column:
    """A column of the exchange, if there is one."""
    column = of_exchange(name)[0]
    get = column.get
    return Column(name, kind, lambda row: None if row.exchange is None else get(row), sentence)


ANOMALIES = Table(
    "anomalies",
    "Something that was wrong or odd.",
    (
        Column("capture", STRING, lambda row: file_name(row.capture), "As in `exchanges`."),
        Column("connection", STRING, attrgetter("connection"), "As in `exchanges`."),
        _of("number", INT64, "As in `exchanges`; null behind the last exchange of a connection."),
        _of("packet", INT64, "Likewise."),
        *time_columns(attrgetter("time_ns"), "As in `exchanges`; else of the connection's last bytes."),
        _of("api", STRING, "As in `exchanges`."),
        Column("kind", STRING, attrgetter("anomaly.kind"), "What it is."),
        Column(
            "severity",
            STRING,
            lambda row: CATALOGUE[row.anomaly.kind].severity,
            "`error`: not decoded; `warning`: something is missing; `note`: odd.",
        ),
        Column("where", STRING, attrgetter("anomaly.where"), "Message and field path, or `connection`."),
        Column("detail", STRING, attrgetter("anomaly.detail"), "What exactly."),
    ),
)


# --- connections --------------------------------------------------------------------------------------------


def _plain(name: str, kind: Type, sentence: str, path: str | None = None, unit: str = "") -> Column:
    return Column(name, kind, attrgetter(path or name), sentence, unit)


def _kind(name: str, kind: str, sentence: str) -> Column:
    return Column(name, INT64, lambda row: row.kinds[kind], sentence)


def _gap(name: str, key: str, sentence: str, unit: str = "") -> Column:
    return Column(name, INT64, lambda row: row.gaps.get(key, 0), sentence, unit)


CONNECTIONS = Table(
    "connections",
    "A TCP connection, Kafka's or not. With filters: one of which an exchange was asked for; its numbers are "
    "of all its exchanges.",
    (
        _plain("connection", STRING, "As in `exchanges`.", "id"),
        Column("capture", STRING, lambda row: file_name(row.capture), "The file in which it begins."),
        *time_columns(attrgetter("first_ns"), "Its first packet; of one still open its first exchange."),
        Column("last_time", TIMESTAMP, within(attrgetter("last_ns")), "Its last bytes that were captured."),
        _plain(
            "close_reason",
            STRING,
            "`fin`, `reset`, `reused` (its ends began another), `idle`, `evicted` (too many at once), `end` "
            "(the capture ended); null where reading was stopped before.",
        ),
        _plain("protocol", STRING, "`Kafka`, `TLS`, `HTTP` ...; null where it was not recognised."),
        _plain("from_start", BOOLEAN, "Whether its opening was captured; null if still open."),
        _plain("client_ip", STRING, "Address of the client; of a connection not Kafka's of who opened it.",
               "client.ip"),
        _plain("client_port", INT32, "TCP port of the client.", "client.port"),
        _plain("broker_ip", STRING, "Address of the broker.", "broker.ip"),
        _plain("broker_port", INT32, "TCP port of the broker.", "broker.port"),
        _plain("client_id", STRING, "Of the first request that has one."),
        _plain("client_software_name", STRING, "The client library, where the connection told it."),
        _plain("client_software_version", STRING, "And its version."),
        _plain("principal", STRING, "Who authenticated, where the wire tells."),
        _plain("sasl_mechanism", STRING, "By which mechanism."),
        _plain("exchanges", INT64, "How many there were."),
        _kind("answered", ANSWERED, "Of those, with request and response."),
        _kind("unanswered", UNANSWERED, "Of those, without response."),
        _kind("unacknowledged", UNACKNOWLEDGED, "Of those, that wanted none: acks=0."),
        _kind("orphans", ORPHAN, "Of those, responses whose request was not captured."),
        _plain("request_bytes", INT64, "Frames of all requests.", unit="bytes"),
        _plain("response_bytes", INT64, "Frames of all responses.", unit="bytes"),
        _plain("anomalies", INT64, "What was wrong or odd, in exchanges and between them."),
        _gap("gaps", "kafka_gaps", "Places where bytes are missing."),
        _gap("lost_bytes", "kafka_lost_bytes", "Bytes whose packets are not in the capture.", "bytes"),
        _gap("cut_bytes", "kafka_cut_bytes", "Bytes that a snaplen cut off.", "bytes"),
        _plain("repeated_bytes", INT64, "Bytes that came again: retransmitted, or captured twice; null if "
               "still open, as are the next four.", unit="bytes"),
        _plain("out_of_order", INT64, "Segments that came before others which stand before them."),
        _plain("resyncs", INT64, "How often it was searched for where the next frame begins."),
        _plain("skipped_bytes", INT64, "Bytes that were passed over by that.", unit="bytes"),
        _plain("unread_bytes", INT64, "Captured bytes of what is not recognised as Kafka: of TLS, for "
               "example.", unit="bytes"),
    ),
)  # fmt: skip


# --- captures -----------------------------------------------------------------------------------------------


class CaptureRow(NamedTuple):
    """A capture file.

    Attributes:
        packets: what was counted of them; None where there are none.
        interfaces: those that packets were captured on.
        warnings: what was odd about it.
    """

    source: Source
    packets: FileCount | None
    interfaces: list[InterfacePart]
    warnings: list[str]


def captures(sources: Sequence[Source], census: Census, warnings: Sequence[str]) -> Iterator[CaptureRow]:
    """The rows; warnings begin with the name of their file."""
    for source in sources:
        name = f"{source.name}: "
        own = [file_name(text.removeprefix(name)) for text in warnings if text.startswith(name)]
        yield CaptureRow(source, census.files.get(source.name), interfaces(source, census), own)


def _of_packets(name: str) -> Getter:
    return lambda row: None if row.packets is None else getattr(row.packets, name)


def _interfaces(row: CaptureRow) -> list[dict[str, Any]]:
    return [{name: getattr(each, name) for name, _ in INTERFACE.fields} for each in row.interfaces]


def _dropped(row: CaptureRow) -> int | None:
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
        Column("capture", STRING, lambda row: file_name(row.source.name), "As in `exchanges`."),
        day(_of_packets("first_ns")),
        Column("first_time", TIMESTAMP, within(_of_packets("first_ns")), "Of its earliest packet."),
        Column("last_time", TIMESTAMP, within(_of_packets("last_ns")), "Of its latest packet."),
        Column(
            "format",
            STRING,
            lambda row: row.source.form and row.source.form.name,
            "`pcap`, `pcapng`, `modified pcap`; null where nothing of it could be read.",
        ),
        _plain("compression", STRING, "`gzip`, `zstd` or `lz4`; null: none.", "source.compression"),
        Column(
            "application",
            STRING,
            lambda row: row.source.form and row.source.form.application,
            "What wrote it, where it tells.",
        ),
        _plain("bytes", INT64, "As they are on disk.", "source.bytes_read", "bytes"),
        _plain("packets", INT64, "How many were read.", "source.packets"),
        Column(
            "packets_cut",
            INT64,
            lambda row: sum(each.cut for each in row.interfaces),
            "Of those, longer than what was kept of them.",
        ),
        Column(
            "packets_dropped",
            INT64,
            _dropped,
            "Packets that did not get into the file, by the capturing program's count; null where it left "
            "none.",
        ),
        Column(
            "packets_backward",
            INT64,
            lambda row: 0 if row.packets is None else row.packets.backward,
            "With an earlier time than one before them.",
        ),
        Column(
            "interfaces",
            Array(INTERFACE),
            _interfaces,
            "That packets were captured on: number, name, LINKTYPE_, clock, snaplen, counts.",
        ),
        Column("warnings", Array(STRING), attrgetter("warnings"), "What was odd about it."),
        Column("kdissect_version", STRING, lambda _: __version__, "That read it."),
    ),
)
