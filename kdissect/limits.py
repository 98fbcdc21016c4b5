"""Every bound of the program in one place, each with its reason.

kdissect promises that memory does not grow with the length of a capture. What is dropped past a bound is
counted, and reported as an anomaly of the exchange or connection that it cost.
"""

from __future__ import annotations

from dataclasses import dataclass

KIB = 1024
MIB = 1024 * KIB


@dataclass(frozen=True, slots=True)
class Limits:
    """Bounds of one run. Sizes in bytes, times in nanoseconds of packet time."""

    # capture: a block length field in a damaged file must not make us allocate gigabytes; the largest snaplen
    # in use is 256 KiB, and offloaded loopback packets reach 64 KiB + headers.
    packet_bytes: int = 16 * MIB
    # capture: interfaces of one pcapng section, and interfaces whose drop counters are kept.
    interfaces: int = 4096
    # capture: files merged with more others than this are open only while a block of theirs is read; a
    # process may usually have 1024 files open, and others need some.
    open_files: int = 128

    # net, fragments: what a router keeps; more means an attack or a broken capture.
    fragment_datagrams: int = 1024
    fragment_bytes: int = 4 * MIB
    fragment_age_ns: int = 30_000_000_000

    # net, streams: a receive window rarely passes 6 MiB; behind a hole no more than that can be in flight.
    stream_holes: int = 64
    stream_bytes: int = 8 * MIB
    stream_bytes_in_all: int = 64 * MIB
    # net, patience: how late a segment may stand in a capture. Queues of a network card and of `-i any` mix
    # packets that are some tens apart and milliseconds old; a first retransmission comes after 200 ms at the
    # least. Both numbers must have passed.
    patience_segments: int = 64
    patience_ns: int = 250_000_000
    # a hole that nobody acknowledged may still fill: a sender tries again for some seconds.
    hole_age_ns: int = 10_000_000_000

    # net, connections: a broker keeps thousands; each costs some KB even when idle. One idle for longer than
    # connections.max.idle.ms (10 minutes) has been closed by the broker even if the capture missed it.
    connections: int = 20_000
    connection_idle_ns: int = 15 * 60 * 1_000_000_000

    # kafka, search for a frame boundary: bytes held until they are given up as part of the gap, and bytes of
    # which each is looked at; behind those, only the first bytes of packets are: most of what is searched in
    # vain for so long is not Kafka.
    resync_bytes: int = 1 * MIB
    search_bytes: int = 1 * MIB
    # kafka, framing: socket.request.max.bytes is 100 MiB by default; a frame that announces more than
    # frame_max_bytes is not a frame, and of one larger than frame_bytes only that prefix is kept.
    frame_max_bytes: int = 1024 * MIB
    frame_bytes: int = 16 * MIB

    # kafka, walker: fields of one message that get a name each; 200,000 partitions in one Metadata answer
    # have 2 million.
    walk_spans: int = 1_000_000

    # kafka, records: what the compressed records of one batch may become. Producers keep a batch below
    # max.request.size before they compress it, 1 MiB by default, and raise that to tens of MiB at most. Text
    # shrinks to a tenth, a test's constant payload to a thousandth and less: past inflated_always_bytes, what
    # becomes more than inflated_ratio times as long is a bomb. All batches of a field together obey the ratio
    # too.
    inflated_bytes: int = 128 * MIB
    inflated_always_bytes: int = 2 * MIB
    inflated_ratio: int = 250
    # kafka, records: records and headers of one batch, which take 200 bytes each and more when decoded. 1 MiB
    # holds 150,000 of the shortest.
    batch_items: int = 1_000_000

    # analysis, records shown once: a record is fetched soon after it was produced as a rule; some 250 bytes
    # are kept of each.
    unique_records: int = 200_000

    # kafka, payloads: groups whose protocol is remembered; a coordinator has some thousands.
    group_protocols: int = 10_000
    # kafka, payloads: metrics of one push, decompressed; brokers take 1 MiB compressed (telemetry.max.bytes),
    # clients push some 100 KiB, and two bytes can stand for a value that takes a hundred here.
    telemetry_bytes: int = 4 * MIB

    # analysis, pairing: max.in.flight.requests.per.connection is 5 by default and rarely above 1000; a
    # request that waited ten minutes has been given up by every client (delivery.timeout.ms is 2 minutes).
    pending_requests: int = 4096
    pending_bytes: int = 64 * MIB
    pending_age_ns: int = 10 * 60 * 1_000_000_000

    # all connections together: incomplete frames, searches, requests that wait. Past it, the connection that
    # was silent for longest lets go of its own.
    held_bytes_in_all: int = 64 * MIB

    # analysis, naming: topics a cluster has (200,000 partitions was the ZooKeeper ceiling); how long a row
    # waits for its name.
    topic_names: int = 200_000
    naming_window_ns: int = 2_000_000_000
    naming_rows: int = 10_000
    naming_bytes: int = 16 * MIB

    # analysis, ordering: exchanges held back while a connection waits for a late segment, a quarter of a
    # second as a rule.
    order_rows: int = 20_000
    order_bytes: int = 16 * MIB

    # notices kept for the end of a run; the rest is counted.
    notices: int = 1000


DEFAULT = Limits()
