"""What breaks first if Spark decodes a hundred terabytes? A plan from measured units, without Spark.

    python benchmarks/spark_scale.py [--work bulk|chatty|...] [--megabytes 100]
        [--terabytes 100] [--files 1000000] [--cores 1000] [--parts 4]

Generates a capture (traffic.py), divides it into files, and runs in this process what tasks and the driver of
``spark decode`` run (kdissect/spark/), each part with its CPU time and the bytes of what it sends. From these
it computes the same for the planned captures.

Prints two tables in Markdown: what tasks do, in core-hours; and what the driver does and holds. Spark's own
work is not in them, nor are disks and networks.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
import zlib
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import pyarrow as pa

REPOSITORY = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(REPOSITORY), str(REPOSITORY / "benchmarks")]

from spark import CONNECTIONS, ring  # noqa: E402
from traffic import WORKS  # noqa: E402

from kdissect.exchanges.learned import LearnedFacts  # noqa: E402
from kdissect.limits import DEFAULT  # noqa: E402
from kdissect.options import PARQUET, ExportOptions, Options  # noqa: E402
from kdissect.spark import parts  # noqa: E402
from kdissect.spark.decode import task_count  # noqa: E402
from kdissect.spark.ranges import RANGE_BYTES, examine, in_order  # noqa: E402
from kdissect.spark.session import MAX_TASKS  # noqa: E402
from kdissect.spark.shuffle import ExpectedRange, RangeCounts, counts_in, read_ranges  # noqa: E402
from kdissect.spark.values import from_json, to_json  # noqa: E402
from kdissect.tables.export import ExportJob  # noqa: E402
from kdissect.tables.rows import DEFAULT_TABLES  # noqa: E402

if TYPE_CHECKING:
    from collections.abc import Callable

REPEATED = 2000
RUNS = 50
PATH = "/share/captures/2026-11-28/broker-0123/kafka.pcap-{:07}"
CONNECTION_TB = 8


class Plan(NamedTuple):
    """What is planned: bytes of captures, and numbers of files, ranges, tasks and cores."""

    bytes: int
    files: int
    ranges: int
    tasks: int
    cores: int


class Sent(NamedTuple):
    """What one value costs its receiver: JSON, and the time to read it."""

    bytes: float
    seconds: float

    @classmethod
    def as_json(cls, value: Any) -> Sent:
        """Of a value that a task returns."""
        text = to_json(value)
        return cls(len(text), timed(lambda: [from_json(text) for _ in range(REPEATED)])[0] / REPEATED)


def timed(work: Callable[[], Any]) -> tuple[float, Any]:
    """CPU seconds, and the result."""
    began = time.process_time()
    result = work()
    return time.process_time() - began, result


def measured(
    captures: list[Path], directory: Path, files_of_run: int, count: int
) -> tuple[dict[str, float], dict[str, Sent]]:
    """CPU seconds of the stages, with ``count`` parts, and what their values cost."""
    seconds: dict[str, float] = {}
    seconds["examine captures"], examined = timed(
        lambda: [examine(str(path), DEFAULT, RANGE_BYTES) for path in captures]
    )
    divided = in_order(examined)
    expected = [
        ExpectedRange(place, each, divided.files[each.path]) for place, each in enumerate(divided.ranges)
    ]
    export = ExportOptions(directory / "tables", PARQUET, tables=DEFAULT_TABLES)
    job = ExportJob(Options(), export, tuple(divided.files), divided.first_ns)
    seconds["write bundles"], batches = timed(
        lambda: list(read_ranges(len(expected), count, DEFAULT, directory, [expected]))
    )
    (counts,) = batches[0]["data"].to_pylist()
    in_parts = partial(parts.parts_in_files, counts_in(counts).files)
    of_parts = [pa.RecordBatch.from_pydict({"id": [part]}) for part in range(count)]
    seconds["learn facts"], learned = timed(
        lambda: [_value(parts.learn_shuffled(job, 0, in_parts, [part])) for part in of_parts]
    )
    facts = LearnedFacts(DEFAULT, job.options.names)
    for each in learned:
        facts.merge(each)
    write = partial(parts.write, job, partial(parts.open_shuffled, job, 0, in_parts, facts))
    seconds["dissect and write"], written = timed(lambda: [_value(write([part])) for part in of_parts])
    run = _run_of(counts, files_of_run)
    names = to_json(tuple(PATH.format(number) for number in range(REPEATED)))
    reading = timed(lambda: [from_json(names) for _ in range(100)])[0] / 100 / REPEATED
    sent = {
        "what is known of a file": Sent.as_json(examined[0]),
        "a range to read": Sent.as_json(expected[0]),
        "counts and file of a run of ranges": Sent(len(run), timed(lambda: _added_up(run))[0] / RUNS),
        "files and counts of a part": Sent.as_json(written[0]),
        "a name, in a file": Sent(len(names) / REPEATED, reading),
    }
    return seconds, sent


def _run_of(counts: bytes, files: int) -> bytes:
    """The counts of a run of as many files, made of those of one."""
    run = RangeCounts(DEFAULT)
    for number in range(files):
        own = counts_in(counts)
        own.sources = {PATH.format(number): next(iter(own.sources.values()))}
        own.census.files = {PATH.format(number): next(iter(own.census.files.values()))}
        run.add(own)
    return zlib.compress(to_json(run), 1)


def _added_up(run: bytes) -> RangeCounts:
    counts = RangeCounts(DEFAULT)
    for _ in range(RUNS):
        counts.add(counts_in(run))
    return counts


def _value(batches: Any) -> Any:
    (batch,) = batches
    return from_json(batch.column("result")[0].as_py())


def show(plan: Plan, size: int, seconds: dict[str, float], sent: dict[str, Sent]) -> None:
    """Print both tables."""
    factor = plan.bytes / size
    print("| tasks | number | core-hours | each |\n|---|--:|--:|--:|")
    counts = {"examine captures": plan.cores, "write bundles": min(plan.ranges, MAX_TASKS)}
    of_all = sum(seconds.values())
    for name, cpu_s in seconds.items():
        count = counts.get(name, plan.tasks)
        print(f"| {name} | {count:,} | {cpu_s * factor / 3600:,.0f} | {_time(cpu_s * factor / count)} |")
    each_s = sent["a name, in a file"].seconds * plan.files
    reading = each_s * plan.cores
    print(f"| read names, each process once | {plan.cores:,} | {reading / 3600:,.1f} | {_time(each_s)} |")
    together = (of_all * factor + reading) / plan.cores
    print(f"| all, on {plan.cores:,} cores | | | {_time(together)} |")
    longest = (seconds["learn facts"] + seconds["dissect and write"]) / size * CONNECTION_TB * 1e12
    print(f"| one connection of {CONNECTION_TB} TB | 1 | {longest / 3600:,.0f} | {_time(longest)} |")
    print("\n| driver | number | bytes each | all | CPU time |\n|---|--:|--:|--:|--:|")
    for name, count in {
        "what is known of a file": plan.files,
        "a range to read": plan.ranges,
        "counts and file of a run of ranges": min(plan.ranges, plan.tasks),
        "files and counts of a part": plan.tasks,
        "a name, in a file": plan.files,
    }.items():
        each = sent[name]
        cost = f"{each.bytes:,.0f} | {_size(each.bytes * count)} | {_time(each.seconds * count)}"
        print(f"| {name} | {count:,} | {cost} |")


def _time(seconds: float) -> str:
    if seconds < 120:
        return f"{seconds:,.1f} s"
    return f"{seconds / 60:,.0f} min" if seconds < 7200 else f"{seconds / 3600:,.1f} h"


def _size(count: float) -> str:
    return f"{count / 1e9:,.1f} GB" if count >= 1e9 else f"{count / 1e6:,.0f} MB"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--work", choices=WORKS, default="bulk")
    parser.add_argument("--megabytes", type=float, default=100)
    parser.add_argument("--terabytes", type=float, default=100)
    parser.add_argument("--files", type=int, default=1_000_000)
    parser.add_argument("--cores", type=int, default=1000)
    parser.add_argument("--parts", type=int, default=4, help="of the connections of the small capture")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="kdissect-benchmark-") as name:
        directory = Path(name)
        captures, _ = ring(arguments.work, arguments.megabytes, CONNECTIONS, 2, directory)
        size = sum(path.stat().st_size for path in captures)
        planned = int(arguments.terabytes * 1e12)
        of_file = planned / arguments.files
        ranges = arguments.files * (round(of_file / RANGE_BYTES) if of_file > 2 * RANGE_BYTES else 1)
        tasks = task_count(planned, arguments.cores)
        files_of_run = -(-arguments.files // tasks)
        measured(
            captures, directory, files_of_run, arguments.parts
        )  # what is generated and loaded once is not measured
        seconds, sent = measured(captures, directory, files_of_run, arguments.parts)
    what = f"{arguments.terabytes:,g} TB of {arguments.work} traffic in {arguments.files:,} files"
    print(f"{what}, on {arguments.cores:,} cores; units from {size / 1e6:,.0f} MB\n")
    show(Plan(planned, arguments.files, ranges, tasks, arguments.cores), size, seconds, sent)


if __name__ == "__main__":
    main()
