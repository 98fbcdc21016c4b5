"""Packets on the loopback interface -> a capture file, by a tcpdump that runs while a `with` block does."""

from __future__ import annotations

import subprocess
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

# The kernel hands over the last block of its ring up to a second late: a tcpdump stopped at once loses it.
QUIET_SECONDS = 1.5


@contextmanager
def recording(
    path: Path, ports: Iterable[int], *options: str, until_quiet: bool = True, namespace: str = ""
) -> Iterator[None]:
    """Record what passes through these TCP ports until the block ends and nothing has come for QUIET_SECONDS.

    Where clients go on talking it never is quiet: the recording then ends so long after the block, and
    lacks the last second. With the name of a network namespace, record there.
    """
    capture_filter = " or ".join(f"tcp port {port}" for port in ports)
    command = [
        *(["ip", "netns", "exec", namespace] if namespace else []),
        "tcpdump",
        "-i",
        "lo",
        "-U",
        "-n",
        "-s",
        "0",
        "-B",
        "65536",
        "-Z",
        "root",
        *options,
        "-w",
        str(path),
        capture_filter,
    ]
    tcpdump = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    assert tcpdump.stderr is not None
    for line in tcpdump.stderr:
        if "listening on" in line:
            break
    else:
        raise RuntimeError(f"tcpdump ended with status {tcpdump.wait()}")
    try:
        yield
        if until_quiet:
            wait_until_quiet(path)
        else:
            time.sleep(QUIET_SECONDS)
    finally:
        tcpdump.terminate()
        output = tcpdump.communicate()[1]
    if "\n0 packets dropped by kernel" not in output:
        raise RuntimeError(f"packets were lost: {output}")


def wait_until_quiet(path: Path) -> None:
    size, since = -1, time.monotonic()
    while time.monotonic() - since < QUIET_SECONDS:
        time.sleep(0.1)
        if path.stat().st_size != size:
            size, since = path.stat().st_size, time.monotonic()
