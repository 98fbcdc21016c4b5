"""``-j N`` and the size of the captures -> the number of processes.

What several processes need (runs/workers.py) is imported only for more than one.
"""

from __future__ import annotations

import math
import os
from collections import Counter
from itertools import islice
from typing import TYPE_CHECKING, Any

import click

from kdissect import core
from kdissect.capture import stores
from kdissect.capture.inputs import STDIN
from kdissect.capture.reader import open_capture
from kdissect.cli.options import at_least
from kdissect.cli.run import open_run
from kdissect.errors import KdissectError
from kdissect.net.tcp import Segments, connection_key, cores

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from contextlib import AbstractContextManager

    from kdissect.runs.run import Query, Run
    from kdissect.stats.survey import Survey

    Opener = Callable[[Query, Survey], AbstractContextManager[Run]]

WORTH_PACKETS = 100_000
"""One process needs at least a second for these. For fewer packets, starting workers costs more than it
saves.
"""

WORTH_PACKETS_NATIVE = 10 * WORTH_PACKETS
"""The same if the native core writes the rows: it takes 1 us per packet for text, and 3 us for JSON."""

SMALL_BYTES = 600
"""Mean packet size up to which dissecting costs more than reading. Measured: two processes take 0.65 of the
time of one at 90 bytes per packet, and longer than one at 1,400 (docs/measurements.md).
"""

_MAX_BUSIEST_SHARE = 0.7
"""Share of the packets that the busiest connection may have. One worker dissects all of these."""

_SAMPLED_PACKETS = 8_000  # more than the handshakes of a thousand clients
_MIN_PACKET_BYTES = 54  # of a packet with a TCP header

_MAX_WORKERS = 16
"""Most workers by default. More do not help: one process reads all packets, and one merges all rows."""


def jobs_option(
    single_process: str, guarantee: str = "The output is the same.", *, is_native: bool = False
) -> Callable[[Any], Any]:
    """``-j``. Its help says when a command uses a ``single_process``, what several have in common with one
    (``guarantee``), and whether the native core may write the rows, as in ``processes``.
    """
    native_worth = (
        f"{WORTH_PACKETS:,} packets ({WORTH_PACKETS_NATIVE:,} if the native core writes the output)"
        if is_native
        else ""
    )
    return click.option(
        "-j",
        "--jobs",
        "jobs",
        type=at_least(1),
        metavar="N",
        help=(
            f"Worker processes; connections are divided among them. {guarantee} A worker that reaches a "
            "limit on all connections together drops other data than one process does. [default: all cores "
            "if the input has several connections and at least "
            f"{native_worth or f'{WORTH_PACKETS:,} packets'} averaging at most {SMALL_BYTES} bytes; "
            f"otherwise 1] {single_process}"
        ),
    )


def processes(
    query: Query,
    jobs: int | None,
    *,
    by_default: bool = True,
    allowed: bool = True,
    is_native: bool = False,
) -> int:
    """Return the number of processes: 1 if the input can be read only once, or is too small for more.

    Args:
        query: names the files.
        jobs: the value of ``-j``; None: not set.
        by_default: whether to use several processes without ``-j``.
        allowed: whether the command can use several processes at all.
        is_native: whether the native core writes the rows, if it is there.
    """
    paths = [path for path in query.paths if path != STDIN]
    are_files = len(paths) == len(query.paths) and all(stores.size(path) is not None for path in paths)
    if not (allowed and are_files and hasattr(os, "fork")):
        return 1
    if jobs is not None:
        return jobs
    worth = WORTH_PACKETS_NATIVE if is_native and core.is_used else WORTH_PACKETS
    if not (by_default and _are_worth_workers(paths, worth)):
        return 1
    return min(cores(), _MAX_WORKERS)


def opener(jobs: int | None) -> Opener:
    """What opens captures on this machine. ``jobs``: the value of ``-j``."""
    return lambda query, observer: open_run(query, jobs=processes(query, jobs), observer=observer)


def _are_worth_workers(paths: Sequence[str], worth: int) -> bool:
    """Whether the files have many small packets of several connections, estimated from their size and the
    first packets of one.
    """
    total = sum(stores.size(path) or 0 for path in paths)
    if total < worth * _MIN_PACKET_BYTES:
        return False
    sizes, segments, connections = [], Segments(), Counter[bytes]()
    try:
        with open_capture(paths[0]) as capture:
            for packet in islice(capture, _SAMPLED_PACKETS):
                sizes.append(len(packet.data))
                if (segment := segments.feed(packet)) is not None:
                    connections[connection_key(segment.ends)] += 1
    except KdissectError:
        return False  # the reader will report the error
    mean = sum(sizes) / len(sizes) if sizes else math.inf
    busiest = max(connections.values(), default=0)
    are_shared = busiest <= _MAX_BUSIEST_SHARE * len(sizes)
    return mean <= SMALL_BYTES and total / mean >= worth and are_shared
