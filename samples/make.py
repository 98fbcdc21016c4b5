"""Record samples anew: python samples/make.py NAME... | all. README.md says what that needs."""

from __future__ import annotations

import gzip
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

import on_causes
import on_clusters
import on_groups
import on_kafka
import on_mock
import on_old_kafka
import on_scenarios
import on_tansu
import on_tls
import on_troubles
import others

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import FrameType

SCENARIOS: dict[str, Callable[[Path], None]] = {
    **on_tansu.SCENARIOS,
    **on_mock.SCENARIOS,
    **on_kafka.SCENARIOS,
    **on_old_kafka.SCENARIOS,
    **on_scenarios.SCENARIOS,
    **on_tls.SCENARIOS,
    **on_troubles.SCENARIOS,
    **on_causes.SCENARIOS,
    **on_clusters.SCENARIOS,
    **on_groups.SCENARIOS,
    **others.SCENARIOS,
}


def to_pcapng(capture: Path) -> None:
    subprocess.run(["editcap", "-F", "pcapng", capture, capture.with_suffix(".pcapng")], check=True)
    capture.unlink()


def to_gzip(capture: Path) -> None:
    capture.with_suffix(".pcap.gz").write_bytes(gzip.compress(capture.read_bytes(), mtime=0))
    capture.unlink()


# Samples that are kept in another form than tcpdump's, for readers to be tried on it.
CONVERTED: dict[str, Callable[[Path], None]] = {
    "mock-rebalance": to_pcapng,
    "tansu-aiokafka": to_gzip,
    "kafka-4-kraft": to_gzip,
    "kafka-4-cluster": to_gzip,
    "kafka-4-streams": to_gzip,
    "kafka-3.9": to_gzip,
    **dict.fromkeys(on_old_kafka.SCENARIOS, to_gzip),
    **dict.fromkeys(on_scenarios.SCENARIOS, to_gzip),
}

# A scenario takes a minute or two at most; one that hangs must not leave its tcpdump and broker behind.
SECONDS = 300


def too_long(_number: int, _frame: FrameType | None) -> NoReturn:
    raise SystemExit(f"the scenario did not end in {SECONDS} s")


def main(names: list[str]) -> int:
    if not names or set(names) - {"all", *SCENARIOS}:
        print(f"usage: make.py NAME... | all\nnames: {' '.join(SCENARIOS)}", file=sys.stderr)
        return 2
    signal.signal(signal.SIGALRM, too_long)
    directory = Path(__file__).resolve().parent
    for name in SCENARIOS if "all" in names else names:
        print(f"{name} ...", end=" ", flush=True)
        signal.alarm(SECONDS)
        SCENARIOS[name](directory)
        signal.alarm(0)
        if name in CONVERTED:
            CONVERTED[name](directory / f"{name}.pcap")
        print(
            ", ".join(f"{path.name} {path.stat().st_size}" for path in sorted(directory.glob(f"{name}.*"))),
            flush=True,
        )
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
