"""``-j N`` and the size of what is read -> how many processes read it. Holds nothing."""

from __future__ import annotations

import math
import os
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from kdissect.capture.inputs import STDIN
from kdissect.capture.reader import open_capture
from kdissect.errors import KdissectError
from kdissect.net.share import cores

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from kdissect.cli.running import Asked

WORTH_PACKETS = 100_000
"""That one process reads in a second or more; below, starting others costs more than it saves."""

SMALL_BYTES = 600
"""Mean size of packets up to which there is more to be said of each than to be read: measured, two processes
take 0.65 of the time of one at 90 bytes a packet, and more than one at 1,400 (docs/performance.md).
"""

_LOOKED_AT = 8_000  # packets: more than the handshakes with which a thousand clients begin
_LEAST_BYTES = 54  # of a packet with a TCP header

_MOST = 16
"""Workers by default: each steps over all packets, and one parent puts together what they make."""


def jobs_option(why_not: str) -> Callable[[Any], Any]:
    """The option; ``why_not`` says where a command stays at one process."""
    return click.option(
        "-j",
        "--jobs",
        "jobs",
        type=click.IntRange(min=1),
        metavar="N",
        help="Share the work among N processes, by connection; the output is the same. [default: as many as "
        f"there are cores, for files of {WORTH_PACKETS:,} packets and more, if these are small] {why_not}",
    )


def processes(asked: Asked, jobs: int | None, *, by_default: bool = True, ever: bool = True) -> int:
    """How many processes to use: 1 where the input cannot be read more than once, or is not worth more.

    Args:
        asked: names the files.
        jobs: that the user wants; None: says nothing of it.
        by_default: whether more than one makes sense for what is done, if the user says nothing.
        ever: whether it can be done at all.
    """
    paths = [Path(path) for path in asked.paths if path != STDIN]
    are_files = len(paths) == len(asked.paths) and all(path.is_file() for path in paths)
    if not (ever and are_files and hasattr(os, "fork")):
        return 1
    if jobs is not None:
        return jobs
    if not (by_default and _are_worth_it(paths)):
        return 1
    return min(cores(), _MOST)


def _are_worth_it(paths: Sequence[Path]) -> bool:
    """Whether the files hold many small packets, going by their size and by the first packets of one."""
    total = sum(path.stat().st_size for path in paths)
    if total < WORTH_PACKETS * _LEAST_BYTES:
        return False
    try:
        with open_capture(paths[0]) as capture:
            sizes = [len(packet.data) for packet in islice(capture, _LOOKED_AT)]
    except KdissectError:
        return False  # the reader will say why
    mean = sum(sizes) / len(sizes) if sizes else math.inf
    return mean <= SMALL_BYTES and total / mean >= WORTH_PACKETS
