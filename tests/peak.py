"""The largest resident memory of this process so far, in KiB, of the program that it runs now.

Linux has two numbers. ``ru_maxrss`` also counts what stood here before exec: of a child of a large pytest,
that of pytest. ``VmHWM`` begins anew with each program.
"""

from __future__ import annotations

import re
import resource
import sys
from pathlib import Path


def peak_kib() -> int:
    status = Path("/proc/self/status")
    if status.exists() and (match := re.search(r"^VmHWM:\s+(\d+) kB", status.read_text(), re.MULTILINE)):
        return int(match[1])
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak // 1024 if sys.platform == "darwin" else peak
