"""Every limit that can change a result, with the reason for its default.

Memory use does not grow with the length of a capture. What is dropped because of a limit is counted, and
reported as an anomaly of the exchange or connection affected. ``--limits`` prints and sets these limits.
Sizes of blocks and caches, which do not change results, are constants of their modules.
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields, replace
from typing import Any

KIB = 1024
MIB = 1024 * KIB
MILLISECOND_NS = 1_000_000
SECOND_NS = 1000 * MILLISECOND_NS
MINUTE_NS = 60 * SECOND_NS

MAX_COUNT = (1 << 63) - 1
"""Largest integer in a column of a table; counters in pcapng files, and their sums, can be larger."""


ANY, ROWS, NAMES, SUMMARY, TABLES, GROUPS, PIPE, TOP, OPTION = (
    *("any command", "rows", "rows that wait for others", "summaries and check", "tables"),
    *("summaries, check and tables", "live capture", "dashboard and metrics", "an option, or a key log"),
)
"""What holds memory up to a limit. A command has some of these at once."""


def _bound(default: int, subject: str, reason: str, *, each: int = 0, by: str = ANY) -> Any:
    """Declare a limit: its default, what it limits, and the reason for the default.

    Args:
        default: of the limit.
        subject: what it limits.
        reason: for the default.
        each: bytes of memory for each unit, at most, with ordinary names; long ones count as several units
            (names.py). 0: none, or part of what another limit holds.
        by: what holds them.
    """
    return field(default=default, metadata={"subject": subject, "reason": reason, "each": each, "by": by})


@dataclass(frozen=True, slots=True, repr=False)
class Limits:
    """Limits of one run: sizes (``_bytes`` in the name) in bytes, times (``_ns``) in nanoseconds of packet
    time, the others are counts.
    """

    def __repr__(self) -> str:
        changed = [each.name for each in fields(self) if getattr(self, each.name) != each.default]
        return f"Limits({', '.join(f'{name}={getattr(self, name)}' for name in changed)})"

    packet_bytes: int = _bound(
        4 * MIB,
        "reading captures",
        "Largest packet accepted, so that a damaged length field cannot allocate gigabytes; the largest "
        "snaplen in use is 256 KiB, and offloaded loopback packets reach 64 KiB plus headers.",
        each=1,
    )
    interfaces: int = _bound(
        4096,
        "reading captures",
        "Interfaces of one pcapng section, and interfaces with drop counters. All sections of a file may "
        "have 16 times as many, and one more for each packet.",
        each=1000,
    )

    live_bytes: int = _bound(
        64 * MIB,
        "live capture",
        "Captured but not yet dissected: a one-second burst at 500 Mbit/s. Packets beyond it are dropped "
        "and counted.",
        each=1,
        by=PIPE,
    )
    fragment_datagrams: int = _bound(
        1024,
        "IP fragments",
        "Datagrams with missing fragments. Routers keep about as many; more suggest an attack or a broken "
        "capture.",
        each=300,
    )
    fragment_bytes: int = _bound(4 * MIB, "IP fragments", "Fragments of all datagrams together.", each=1)
    fragment_age_ns: int = _bound(
        30 * SECOND_NS,
        "IP fragments",
        "Time to wait for missing fragments, as on Linux (net.ipv4.ipfrag_time).",
    )

    tunnels: int = _bound(
        8,
        "tunnels",
        "Nested tunnels and rare link layers; clouds use two or three.",
    )
    skip_reasons: int = _bound(
        1000,
        "tunnels",
        "Distinct reasons for skipping packets, each with its own count; random data can produce any "
        "number of them.",
        each=300,
    )

    stream_gaps: int = _bound(
        64,
        "TCP reassembly",
        "Missing segments per direction; fast retransmit fills a few at a time.",
    )
    stream_bytes: int = _bound(
        8 * MIB,
        "TCP reassembly",
        "Data buffered after a missing segment. No more than a receive window can be in flight, and that "
        "rarely exceeds 6 MiB.",
    )
    total_stream_bytes: int = _bound(
        24 * MIB,
        "TCP reassembly",
        "The same for all connections together; the data that has waited longest is dropped first.",
        each=1,
    )
    reorder_window_ns: int = _bound(
        250 * MILLISECOND_NS,
        "late and missing segments",
        "How late a segment may appear in a capture, by its timestamp. Network card queues and `-i any` "
        "reorder packets by milliseconds; retransmission timeouts are at least 200 ms.",
    )
    gap_age_ns: int = _bound(
        10 * SECOND_NS,
        "late and missing segments",
        "How long to wait for a missing segment that has not been acknowledged: a sender retries for several "
        "seconds.",
    )

    tcp_streams: int = _bound(
        500_000,
        "TCP connections",
        "TCP connections whose number (the field tcp_stream) is remembered, 300 bytes each; counted only "
        "where the field is used.",
        each=300,
        by=OPTION,
    )
    connections: int = _bound(
        10_000,
        "TCP connections",
        "Open connections. Most brokers have fewer, and each takes up to 9 KB. The least recently used is "
        "evicted first.",
        each=9000,
    )
    connection_idle_ns: int = _bound(
        15 * MINUTE_NS,
        "TCP connections",
        "How long a connection may be idle before it counts as closed. Brokers close idle connections after "
        "10 minutes (connections.max.idle.ms); the capture may have missed the FIN.",
    )
    ended_connections: int = _bound(
        10_000,
        "TCP connections",
        "Closed connections that are remembered, about 500 bytes each, to recognize their duplicate packets.",
        each=500,
    )
    ended_age_ns: int = _bound(
        1 * MINUTE_NS,
        "TCP connections",
        "How long closed connections are remembered: long enough for clock differences between merged "
        "captures, and for TIME_WAIT on Linux.",
    )

    proxy_headers: int = _bound(
        8,
        "PROXY headers",
        "PROXY headers of a connection: one for each proxy of a chain that adds its own.",
    )
    proxy_header_bytes: int = _bound(
        4 * KIB,
        "PROXY headers",
        "All PROXY headers of a connection. One with addresses, TLS version and names takes about 200 bytes; "
        "the certificate of a client adds 1 to 2 KiB.",
    )

    connection_ids: int = _bound(
        40_000,
        "TCP connections",
        "Connections whose ends and first time are remembered, about 150 bytes each: the IDs of others that "
        "have the same are then different. Those that may not be are counted.",
        each=150,
    )

    resync_bytes: int = _bound(
        1 * MIB,
        "finding message boundaries",
        (
            "Bytes buffered per direction while its frame boundaries are unknown; beyond this they "
            "are dropped and counted as part of the gap."
        ),
    )
    search_bytes: int = _bound(
        1 * MIB,
        "finding message boundaries",
        "Bytes of a stream that are searched for a Kafka frame at every position. After that, only packet "
        "starts are tried, because traffic without a match by then is rarely Kafka.",
    )
    frame_max_bytes: int = _bound(
        1024 * MIB,
        "message sizes",
        "A size prefix above this does not start a frame: socket.request.max.bytes is 100 MiB by default.",
    )
    frame_bytes: int = _bound(
        16 * MIB, "message sizes", "Bytes kept of a frame; the rest of a larger one is not decoded."
    )

    decoded_bytes: int = _bound(
        192 * MIB,
        "decoding messages",
        "Estimated memory for the decoded messages of one exchange, and for a record while it is shown: "
        "three bytes can become a struct of 300. A Metadata response with 200,000 partitions takes 180 MiB.",
        each=1,
    )
    oversized_bytes: int = _bound(
        8 * MIB,
        "decoding messages",
        "The same for the first fields of a message that exceeds `decoded_bytes`: about 20,000 structs, "
        "enough to identify it. These are decoded a second time, slowly.",
    )
    walk_spans: int = _bound(
        200_000,
        "fields with their bytes (-x)",
        "Fields of one message shown with their bytes, about 250 bytes each.",
        each=250,
        by=OPTION,
    )

    inflated_bytes: int = _bound(
        128 * MIB,
        "record batches",
        "Decompressed size of the records of one batch. Producers keep a batch below max.request.size "
        "before compression: 1 MiB by default, rarely more than tens of MiB. Only a part of a large batch is "
        "in memory at a time.",
    )
    inflated_always_bytes: int = _bound(
        2 * MIB,
        "record batches",
        "Decompressed size up to which no batch is treated as a decompression bomb, at any ratio.",
    )
    inflated_always_exchanges: int = _bound(
        256,
        "record batches",
        "First exchanges of a connection, to which `inflated_always_bytes` applies. After them, exchange N "
        "gets 256/N of that size (N = 2,560: a tenth), so that many small bombs on one connection inflate "
        "to at most a few GiB more than `inflated_ratio` allows.",
    )
    inflated_ratio: int = _bound(
        250,
        "record batches",
        "A higher compression ratio is treated as a decompression bomb. Text compresses about 10:1; only "
        "constant test payloads reach 1000:1 or more. Also applies to all batches of a frame together.",
    )
    batch_items: int = _bound(
        1_000_000,
        "record batches",
        "Records and headers of one batch. A batch of 1 MiB holds up to 150,000.",
    )
    record_bytes: int = _bound(
        12 * MIB,
        "record batches",
        "One record of a large batch; less if `decoded_bytes` does not leave 14 times as much for its text, "
        "in which each byte may be escaped.",
    )
    record_headers: int = _bound(
        50_000, "record batches", "Headers of one record, about 400 bytes each when shown. Clients add a few."
    )

    schemas: int = _bound(
        1000,
        "schemas (--schemas)",
        "Registered schemas of one run (--schemas), each a file or a request to the registry. Most "
        "organizations have hundreds.",
    )
    schema_bytes: int = _bound(
        4 * MIB, "schemas (--schemas)", "One registered schema with its references; most have a few KiB."
    )

    group_protocols: int = _bound(
        10_000,
        "embedded messages",
        "Groups whose protocol type is remembered; a coordinator has a few thousand.",
        each=500,
    )
    telemetry_bytes: int = _bound(
        4 * MIB,
        "embedded messages",
        "Decompressed metrics of one push: brokers accept 1 MiB compressed (telemetry.max.bytes), clients "
        "push about 100 KiB, and two bytes can become a value that takes 100 bytes in memory.",
    )

    pending_requests: int = _bound(
        4096,
        "outstanding requests",
        "Outstanding requests of one connection. Java producers send up to "
        "max.in.flight.requests.per.connection at once, 5 by default; others have no limit, but few have "
        "1,000 in flight.",
    )
    pending_bytes: int = _bound(
        24 * MIB,
        "outstanding requests",
        "Frame bytes of the outstanding requests of one connection. Above it, the oldest are kept without "
        "their bodies. Usually at most five requests of max.request.size (1 MiB by default) are in flight.",
    )
    pending_age_ns: int = _bound(
        10 * MINUTE_NS,
        "outstanding requests",
        "How long to wait for a response. Clients time out earlier: request.timeout.ms is 30 s by default, "
        "delivery.timeout.ms 2 minutes.",
    )
    total_held_bytes: int = _bound(
        32 * MIB,
        "outstanding requests",
        "Incomplete frames, searches and outstanding requests of all connections together. Above it, the "
        "longest-idle connection loses bodies first, then outstanding requests.",
        each=1,
    )

    watermarks: int = _bound(
        2000,
        "service times and waits",
        "Partitions fetched on one connection, about 250 bytes each: one consumer rarely reads more "
        "from one broker. Without the last high watermark of a partition it is unknown whether a Fetch "
        "waited.",
    )
    total_watermarks: int = _bound(
        50_000,
        "service times and waits",
        "The same of all connections together. Those that have fetched least recently lose theirs.",
        each=300,
    )

    order_rows: int = _bound(
        20_000,
        "order of rows",
        "Exchanges held back to keep the order while a connection waits for a late segment, usually for "
        "250 ms.",
        each=500,
        by=ROWS,
    )
    order_bytes: int = _bound(
        16 * MIB, "order of rows", "Frames of the exchanges held back.", each=1, by=ROWS
    )
    order_age_ns: int = _bound(
        10 * MINUTE_NS,
        "order of rows",
        "The longest that an exchange is held back for others (not the 1 s of `--order time`). In live "
        "captures the default is 100 ms: there, low delay matters more than order.",
    )

    topic_names: int = _bound(
        50_000,
        "topic names",
        "Topic IDs with a name; clusters have thousands of topics.",
        each=400,
    )
    naming_window_ns: int = _bound(
        2 * SECOND_NS,
        "topic names",
        "How long a row waits for a topic's name, with `--names window`. Clients request the "
        "metadata of a new topic within milliseconds.",
    )
    naming_rows: int = _bound(10_000, "topic names", "Rows waiting for a name.")
    naming_bytes: int = _bound(24 * MIB, "topic names", "Frames of the waiting rows.", each=1, by=NAMES)

    produced_batches: int = _bound(
        50_000,
        "end-to-end latency",
        "Produced batches whose time is remembered until they are fetched, about 300 bytes each. The oldest "
        "are forgotten first. With Spark or `export -j`, the earliest are kept instead.",
        each=400,
        by=NAMES,
    )
    fetched_batches: int = _bound(
        20_000,
        "end-to-end latency",
        "Fetched batches that are remembered until the Produce that sent them fails, about 400 bytes each: a "
        "Produce without an answer fails after 30 s by default. The oldest are forgotten first.",
        each=400,
        by=NAMES,
    )
    produce_window_ns: int = _bound(
        1 * SECOND_NS,
        "end-to-end latency",
        "How long a row with fetched records waits for the response to their Produce, which can come "
        "milliseconds later, and a row with a failed Produce for a Fetch of its records. Rows that wait "
        "share the limits of those that wait for a name; here their decoded size counts too.",
    )

    unique_records: int = _bound(
        100_000,
        "each record once (--unique)",
        "Records remembered for --unique, about 250 bytes each; a record is usually fetched soon after it "
        "was produced.",
        each=400,
        by=OPTION,
    )
    snapshots: int = _bound(
        100,
        "metadata snapshots (KRaft)",
        "Incomplete snapshots of the metadata log; a broker fetches one at a time.",
    )
    snapshot_bytes: int = _bound(
        16 * MIB,
        "metadata snapshots (KRaft)",
        "Bytes of batches cut off at the end of a FetchSnapshot response; a batch of that log has at most "
        "8 MiB.",
        each=1,
        by=ROWS,
    )

    summary_rows: int = _bound(
        2000,
        "summaries",
        "Rows per table; everything else is counted together. A busy client, its broker, topic and group "
        "take 50 KB together, most of it for quantiles.",
        each=50_000,
        by=SUMMARY,
    )
    summary_clusters: int = _bound(
        32,
        "summaries",
        "Clusters, and brokers whose cluster is not known yet, whose topics, groups, producers and findings "
        "are counted apart; those of all others are counted together. They share `summary_rows`. A platform "
        "has a few clusters.",
    )
    summary_buckets: int = _bound(
        4096,
        "summaries",
        "Groups of similar exchanges that are counted together before they are added to rows, about 10 MB "
        "at most.",
        each=2500,
        by=SUMMARY,
    )
    fetch_session_partitions: int = _bound(
        30_000,
        "summaries",
        "Partitions of all fetch sessions (KIP-227), and those whose records a consumer may fetch again, "
        "about 400 bytes each: a broker keeps 1,000 sessions, most with a few partitions.",
        each=400,
        by=SUMMARY,
    )
    resent_records: int = _bound(
        50_000,
        "summaries",
        "Records of failed batches, and of the first ones of a producer epoch, that are compared to find "
        "those sent twice, about 300 bytes each.",
        each=300,
        by=SUMMARY,
    )
    summary_group_events: int = _bound(
        20_000,
        "summaries",
        "Events of one group, and the members and partitions that they list. A rebalance has two events per "
        "member and lists each twice; a heartbeat with a normal response is not an event.",
    )
    summary_total_group_events: int = _bound(
        40_000,
        "summaries",
        "Events of all groups together, about 500 bytes each.",
        each=500,
        by=GROUPS,
    )
    summary_group_members: int = _bound(
        10_000,
        "summaries",
        "Member IDs of all groups together; each client gets one when it starts.",
        each=1000,
        by=GROUPS,
    )
    summary_group_listed: int = _bound(
        50_000,
        "summaries",
        "Partitions and topics of all members together, as last assigned and subscribed, about 50 bytes "
        "each. Above it, those of members seen later are left out.",
        each=60,
        by=GROUPS,
    )
    summary_group_partitions: int = _bound(
        30_000,
        "summaries",
        "Partitions with offsets committed by groups, about 300 bytes each.",
        each=500,
        by=SUMMARY,
    )
    summary_transaction_events: int = _bound(
        20_000,
        "summaries",
        "Events of one transactional ID, and the partitions that they list. Above it, the older half is "
        "summarized.",
    )
    summary_total_transaction_events: int = _bound(
        30_000,
        "summaries",
        "The same of all transactional IDs together, about 400 bytes each.",
        each=400,
        by=SUMMARY,
    )
    summary_intervals: int = _bound(
        10_000,
        "summaries",
        "Intervals of --interval: a week of one-minute intervals.",
        each=3000,
        by=OPTION,
    )

    top_rows: int = _bound(
        500,
        "dashboard and metrics",
        "Rows per table of the dashboard, a few KB each; idle rows are removed after a minute.",
        each=20_000,
        by=TOP,
    )
    top_group_events: int = _bound(
        500,
        "dashboard and metrics",
        "Events of one group, and the members and partitions that they list, kept to determine what started "
        "its last rebalance. A rebalance has two events per member.",
    )
    top_partitions: int = _bound(
        20_000,
        "dashboard and metrics",
        "End offsets of partitions, committed offsets, group members, 200 bytes each; the most recently "
        "seen are kept.",
        each=500,
        by=TOP,
    )
    metric_labels: int = _bound(
        500,
        "dashboard and metrics",
        "Topics with separate metrics; also clients, groups, APIs and errors. Each is a time series that "
        "Prometheus keeps for weeks; everything else is counted together.",
        each=3000,
        by=TOP,
    )

    listeners: int = _bound(
        10_000,
        "Kafka listeners",
        "Endpoints of brokers, about 200 bytes each: the largest clusters have a thousand brokers with a few "
        "listeners each.",
        each=400,
    )
    key_log_bytes: int = _bound(
        64 * MIB,
        "TLS",
        "Secrets of TLS sessions, in key logs and inside captures: about 150,000 sessions of TLS 1.2, half "
        "as many of TLS 1.3.",
        each=1,
        by=OPTION,
    )
    tls_sessions: int = _bound(
        50_000,
        "TLS",
        "Session IDs and tickets of TLS sessions before TLS 1.3, about 200 bytes each. Clients that resume "
        "such a session may not write a line to the key log.",
        each=200,
        by=OPTION,
    )
    total_tls_bytes: int = _bound(
        32 * MIB,
        "TLS",
        "Bytes held for all TLS connections together while their secrets are unknown.",
        each=1,
        by=OPTION,
    )
    tls_keylog_window_ns: int = _bound(
        2 * SECOND_NS,
        "TLS",
        "How long to wait for a secret of a connection while the key log is being written. Lines come up to "
        "60 ms after the ClientHello.",
    )
    resolved_names: int = _bound(
        5000,
        "DNS responses",
        "Names in DNS responses, about 500 bytes each; the least recently seen are forgotten first.",
        each=1000,
        by=SUMMARY,
    )
    unopened_connections: int = _bound(
        10_000,
        "connections that never opened",
        "Connections that never opened, about 800 bytes each, until it is known whether their destination is "
        "a Kafka listener; scans and SYN floods can create any number of them.",
        each=1000,
        by=SUMMARY,
    )
    check_rows: int = _bound(
        1000,
        "check",
        "Maximum rows in the lists of non-Kafka endpoints and of unknown versions.",
        each=300,
        by=SUMMARY,
    )
    export_rows: int = _bound(
        20_000,
        "tables",
        "Rows per Parquet row group, the unit that readers skip and distribute. A row takes from 100 bytes "
        "to several MB.",
    )
    export_bytes: int = _bound(
        8 * MIB,
        "tables",
        "Bytes of a row group held in memory, for each of seven tables; above it, a smaller row group is "
        "written, which takes Arrow several times as much. Also the bytes held for the footers of its open "
        "files; above it, the file with the largest is finished.",
        each=14,
        by=TABLES,
    )
    export_brokers: int = _bound(
        10_000,
        "tables",
        "Rows of `brokers`, about 500 bytes each: the largest clusters have a thousand brokers with a few "
        "listeners each.",
        each=700,
        by=TABLES,
    )
    export_files: int = _bound(
        32,
        "tables",
        "Open files per table when partitioned by date and API. Above it, the longest-idle file is "
        "finished, and a new one started if needed.",
    )

    export_listed: int = _bound(
        20_000,
        "tables",
        "Latest files of one table listed in its manifest: ten weeks of a live export with five minutes "
        "per file. Older files appear only in the totals of files, rows and bytes.",
    )

    seen_files: int = _bound(
        10_000,
        "Spark streams",
        "Captures that a stream remembers as read, 40 bytes each in every offset of its checkpoint: five "
        "weeks of one file every five minutes. The oldest are forgotten first. Also the maximum number of "
        "files in a micro-batch.",
    )

    story_entries: int = _bound(
        200,
        "stories",
        "Entries of a story that are shown: half from its beginning, half from its end.",
        each=10_000,
        by=ROWS,
    )

    notices: int = _bound(
        1000,
        "notices",
        "Notices kept for the end of a run; further ones are only counted.",
        each=300,
    )


def memory(limits: Limits, *by: str) -> int:
    """Bytes that these hold together at most; see ``_bound``."""
    return sum(
        bound.metadata["each"] * getattr(limits, bound.name)
        for bound in fields(limits)
        if bound.metadata["by"] in by
    )


DEFAULT = Limits()

LIVE = replace(DEFAULT, naming_window_ns=0, produce_window_ns=0, order_age_ns=100 * MILLISECOND_NS)
"""For live captures: rows do not wait for topic names or producers, and only briefly for rows before them."""


def live(limits: Limits) -> Limits:
    """``LIVE``, with the limits that differ from ``DEFAULT`` taken from ``limits``."""
    changed = {name: getattr(limits, name) for name in Limits.__slots__}
    return replace(
        LIVE, **{name: value for name, value in changed.items() if value != getattr(DEFAULT, name)}
    )
