"""Every limit that can change a result, each with its reason; sizes of blocks and caches are constants of
their modules.

kdissect promises that memory does not grow with the length of a capture. What is dropped past a limit is
counted, and reported as an anomaly of the exchange or connection that it cost. ``--limits`` prints this table
and sets its numbers.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

KIB = 1024
MIB = 1024 * KIB
MILLISECOND_NS = 1_000_000
SECOND_NS = 1000 * MILLISECOND_NS
MINUTE_NS = 60 * SECOND_NS

MOST_COUNT = (1 << 63) - 1
"""What a column of tables holds; a pcapng file can claim more, and several files together even more."""


def _bound(default: int, stage: str, reason: str) -> Any:
    """Declare a bound: whose it is, and why it is what it is."""
    return field(default=default, metadata={"stage": stage, "reason": reason})


@dataclass(frozen=True, slots=True)
class Limits:
    """Bounds of one run. Sizes (``_bytes`` in the name) in bytes, times (``_ns``) in nanoseconds of packet
    time, the others counts.
    """

    packet_bytes: int = _bound(
        16 * MIB,
        "capture",
        "A length field in a damaged file must not make us allocate gigabytes; the largest snaplen in use is "
        "256 KiB, and offloaded loopback packets reach 64 KiB and headers.",
    )
    interfaces: int = _bound(
        4096,
        "capture",
        "Interfaces of one pcapng section, and interfaces whose drop counters are kept.",
    )

    live_bytes: int = _bound(
        64 * MIB,
        "capture, live",
        "Captured and not yet dissected: a burst of a second at 500 Mbit/s. What comes then is dropped and "
        "counted.",
    )
    live_packets: int = _bound(
        500_000, "capture, live", "The same: each costs some 60 bytes more than it has."
    )

    fragment_datagrams: int = _bound(
        1024,
        "net, fragments",
        "Datagrams of which fragments are missing: what a router keeps; more means an attack or a broken "
        "capture.",
    )
    fragment_bytes: int = _bound(4 * MIB, "net, fragments", "All of them together.")
    fragment_age_ns: int = _bound(
        30 * SECOND_NS, "net, fragments", "As long as Linux waits for the rest (net.ipv4.ipfrag_time)."
    )

    tunnels: int = _bound(
        8, "net, tunnels", "Tunnels and rare link layers around one packet: clouds use two or three."
    )
    skip_reasons: int = _bound(
        1000, "net, tunnels", "Reasons why packets were not looked at, counted apart; noise has any number."
    )

    stream_holes: int = _bound(
        64, "net, streams", "Missing segments of one direction: fast retransmission fills a few at a time."
    )
    stream_bytes: int = _bound(
        8 * MIB,
        "net, streams",
        "Behind a missing segment: a receive window rarely passes 6 MiB, and no more than that can be in "
        "flight.",
    )
    stream_bytes_in_all: int = _bound(
        64 * MIB, "net, streams", "The same in all connections together; the longest waiting goes first."
    )
    patience_ns: int = _bound(
        250 * MILLISECOND_NS,
        "net, deadlines",
        "How late a segment may stand in a capture, in packet time: queues of a network card and of `-i any` "
        "mix packets that are milliseconds old, and a first retransmission comes after 200 ms at the least.",
    )
    hole_age_ns: int = _bound(
        10 * SECOND_NS,
        "net, deadlines",
        "A missing segment that nobody acknowledged may still come: a sender tries again for some seconds.",
    )

    connections: int = _bound(
        20_000,
        "net, connections",
        "A broker keeps thousands, and each costs some KB even when idle. The least recently used goes.",
    )
    connection_idle_ns: int = _bound(
        15 * MINUTE_NS,
        "net, connections",
        "One that was idle for longer than connections.max.idle.ms (10 minutes) was closed by the broker, "
        "even if the capture missed it.",
    )
    ended_connections: int = _bound(
        10_000,
        "net, connections",
        "Those that are over and remembered, some 500 bytes each, so that their packets may come again.",
    )
    ended_age_ns: int = _bound(
        1 * MINUTE_NS,
        "net, connections",
        "How long: as far as the clocks of two merged captures may differ. TIME_WAIT lasts as long on Linux.",
    )

    resync_bytes: int = _bound(
        1 * MIB,
        "kafka, search for frames",
        "Held of a direction whose frame boundaries are unknown, until it is given up as part of the gap.",
    )
    search_bytes: int = _bound(
        1 * MIB,
        "kafka, search for frames",
        "Bytes of which each is looked at; behind those, only the first of each packet are: most of what is "
        "searched in vain for so long is not Kafka.",
    )
    frame_max_bytes: int = _bound(
        1024 * MIB,
        "kafka, framing",
        "What announces more is not a frame: socket.request.max.bytes is 100 MiB by default.",
    )
    frame_bytes: int = _bound(16 * MIB, "kafka, framing", "Of a larger frame only so many bytes are kept.")

    decoded_bytes: int = _bound(
        192 * MIB,
        "kafka, bodies",
        "What the messages of one exchange may take in memory once they are decoded, as an estimate: three "
        "bytes can become a struct of 300. A Metadata response with 200,000 partitions takes 180 MiB.",
    )
    oversized_bytes: int = _bound(
        8 * MIB,
        "kafka, bodies",
        "Likewise, of the first fields of a message that exceeds `decoded_bytes`: some 20,000 structs, which "
        "tell what it is. They are read a second time, slowly.",
    )
    walk_spans: int = _bound(
        200_000,
        "kafka, walker",
        "Fields of one message that are shown with their bytes, which takes some 250 bytes each.",
    )

    inflated_bytes: int = _bound(
        128 * MIB,
        "kafka, records",
        "What the compressed records of one batch may become. Producers keep a batch below max.request.size "
        "before they compress it, 1 MiB by default, and raise that to tens of MiB at most.",
    )
    inflated_always_bytes: int = _bound(2 * MIB, "kafka, records", "What is no bomb at any ratio.")
    inflated_ratio: int = _bound(
        250,
        "kafka, records",
        "What becomes more times as long is a bomb: text shrinks to a tenth, a test's constant payload to a "
        "thousandth and less. All batches of a frame together obey it too.",
    )
    batch_items: int = _bound(
        1_000_000,
        "kafka, records",
        "Records and headers of one batch, which take 200 bytes each and more when decoded. 1 MiB holds "
        "150,000 of the shortest.",
    )

    group_protocols: int = _bound(
        10_000,
        "kafka, payloads",
        "Groups whose protocol is remembered; a coordinator has some thousands.",
    )
    telemetry_bytes: int = _bound(
        4 * MIB,
        "kafka, payloads",
        "Metrics of one push, decompressed: brokers take 1 MiB compressed (telemetry.max.bytes), clients "
        "push some 100 KiB, and two bytes can stand for a value that takes a hundred here.",
    )

    pending_requests: int = _bound(
        4096,
        "exchanges, pairing",
        "Requests of one connection that wait: max.in.flight.requests.per.connection is 5 by default and "
        "rarely above 1000.",
    )
    pending_bytes: int = _bound(
        24 * MIB,
        "exchanges, pairing",
        "Their frames. Past it the oldest lose their bodies, and wait on: five of max.request.size (1 MiB by "
        "default) are in flight as a rule.",
    )
    pending_age_ns: int = _bound(
        10 * MINUTE_NS,
        "exchanges, pairing",
        "A request that waited longer has been given up by every client (delivery.timeout.ms is 2 minutes).",
    )
    held_bytes_in_all: int = _bound(
        32 * MIB,
        "exchanges, pairing",
        "All connections together: incomplete frames, searches, requests that wait. Past it, the connection "
        "that was silent for longest lets go of bodies, then of what waits.",
    )

    order_rows: int = _bound(
        20_000,
        "exchanges, ordering",
        "Exchanges held back while a connection waits for a late segment, a quarter of a second as a rule.",
    )
    order_bytes: int = _bound(16 * MIB, "exchanges, ordering", "Their frames.")
    order_age_ns: int = _bound(
        10 * MINUTE_NS,
        "exchanges, ordering",
        "How long one is held back. In a file a deadline passes sooner; live haste is worth more than order.",
    )

    topic_names: int = _bound(
        200_000,
        "exchanges, names",
        "Topics of a cluster: 200,000 partitions was the ZooKeeper ceiling.",
    )
    naming_window_ns: int = _bound(2 * SECOND_NS, "exchanges, names", "How long a row waits for a name.")
    naming_rows: int = _bound(10_000, "exchanges, names", "Rows that wait.")
    naming_bytes: int = _bound(48 * MIB, "exchanges, names", "Their frames, and what these decode to.")

    unique_records: int = _bound(
        200_000,
        "query, records shown once",
        "A record is fetched soon after it was produced as a rule; some 250 bytes are kept of each.",
    )
    snapshots: int = _bound(
        100,
        "exchanges, snapshots",
        "Snapshots of the metadata log of which a slice is missing yet: a broker fetches one at a time.",
    )
    snapshot_bytes: int = _bound(
        32 * MIB,
        "exchanges, snapshots",
        "Bytes behind the last whole batch of their slices: a batch of that log has 8 MiB at most.",
    )

    summary_rows: int = _bound(
        2000,
        "stats, summary",
        "Rows of each of its tables; what comes later is counted together. A busy one takes 10 to 30 KB.",
    )
    summary_alike: int = _bound(
        4096,
        "stats, summary",
        "Kinds of exchanges that are counted together before they are added to rows: some 10 MB at most.",
    )
    fetch_session_partitions: int = _bound(
        200_000,
        "stats, summary",
        "Partitions of all fetch sessions (KIP-227): a broker keeps 1,000, of a few to thousands each.",
    )
    summary_group_events: int = _bound(
        5000,
        "stats, summary",
        "Of one group: a rebalance has two for each member, a heartbeat that is answered as usual has none.",
    )
    summary_group_events_in_all: int = _bound(
        100_000, "stats, summary", "Of all groups together, some 500 bytes each."
    )
    summary_group_members: int = _bound(
        20_000, "stats, summary", "Member ids of all groups together; each client that starts makes one."
    )
    summary_group_partitions: int = _bound(
        100_000, "stats, summary", "Partitions for which groups commit offsets, some 300 bytes each."
    )
    summary_transaction_events: int = _bound(
        5000,
        "stats, summary",
        "Of one transactional id, some 400 bytes each: past it the older half is added up.",
    )
    summary_intervals: int = _bound(10_000, "stats, summary", "Pieces of time: a week in minutes.")

    pulse_rows: int = _bound(
        500,
        "stats, pulse",
        "Rows of each table of what happens now, some KB each; what is silent makes room within a minute.",
    )
    pulse_group_events: int = _bound(
        100,
        "stats, pulse",
        "Of one group, to tell what started its last rebalance: twice its members, some 500 bytes each.",
    )
    pulse_partitions: int = _bound(
        20_000,
        "stats, pulse",
        "Ends of partitions, offsets that groups committed, group members, 200 bytes each; the one that was "
        "heard of last stays.",
    )
    metric_labels: int = _bound(
        500,
        "stats, pulse",
        "Topics, clients and groups with metrics of their own, each a time series that a server keeps for "
        "weeks; what comes later is counted together.",
    )

    surveyed_ends: int = _bound(
        1000,
        "stats, check",
        "Ends of connections that are not Kafka's, and unknown versions: whoever reads the list needs a few.",
    )
    export_rows: int = _bound(
        20_000,
        "tables, export",
        "Rows of a Parquet row group: readers skip and share them, and each takes some hundred bytes to MB.",
    )
    export_bytes: int = _bound(
        16 * MIB,
        "tables, export",
        "Rows of one table that are held for Parquet; past it they are written as smaller row groups.",
    )
    export_files: int = _bound(
        32,
        "tables, export",
        "Files of one table that are open at once: partitions by day and api. The one that was idle for "
        "longest is finished, and another one begun if it must.",
    )

    export_listed: int = _bound(
        20_000,
        "tables, export",
        "Files of one table that its manifest names, the latest: ten weeks of a live export with five "
        "minutes a file. Of those before it tells how many, their rows and bytes.",
    )

    seen_files: int = _bound(
        10_000,
        "spark, streams",
        "Captures that a stream remembers as read, 40 bytes each in every offset of its checkpoint: five "
        "weeks of a file every five minutes. The oldest go first. A micro-batch has no more files than this.",
    )

    notices: int = _bound(1000, "everywhere", "Notices kept for the end of a run; the rest is counted.")


DEFAULT = Limits()

LIVE = replace(DEFAULT, naming_window_ns=0, order_age_ns=100 * MILLISECOND_NS)
"""For packets that come while somebody watches: rows wait neither for names nor long for rows before them."""


def live(limits: Limits) -> Limits:
    """The same for who has set some of the bounds of ``DEFAULT``."""
    changed = {name: getattr(limits, name) for name in Limits.__slots__}
    return replace(
        LIVE, **{name: value for name, value in changed.items() if value != getattr(DEFAULT, name)}
    )
