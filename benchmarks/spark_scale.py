"""What breaks first if Spark decodes a hundred terabytes? A plan from measured units, without Spark.

    python benchmarks/spark_scale.py [--work bulk|chatty|...] [--megabytes 100]
        [--terabytes 100] [--files 1000000] [--cores 1000]

Generates a capture (traffic.py), divides it into files, and runs in this process what tasks and the driver of
``spark decode`` run (kdissect/spark/), each part with its CPU time and the bytes of what it sends. From these
it computes the same for the planned captures.

Prints two tables in Markdown: what tasks do, in core-hours; and what the driver does and holds. Spark's own
work is not in them, nor are disks and networks.
"""

from __future__ import annotations

import argparse
import pickle
import sys
import tempfile
import time
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

REPOSITORY = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(REPOSITORY), str(REPOSITORY / "benchmarks")]

from spark import CONNECTIONS, ring  # noqa: E402
from traffic import WORKS  # noqa: E402

from kdissect.exchanges.learned import LearnedFacts  # noqa: E402
from kdissect.limits import DEFAULT, KIB  # noqa: E402
from kdissect.options import PARQUET, ExportOptions, Options  # noqa: E402
from kdissect.spark import parts  # noqa: E402
from kdissect.spark.decode import task_count  # noqa: E402
from kdissect.spark.ranges import RANGE_BYTES, examine, in_order  # noqa: E402
from kdissect.spark.session import MAX_TASKS  # noqa: E402
from kdissect.spark.shuffle import ORDER, ExpectedRange, RangeCounts, read_ranges, stats_in  # noqa: E402
from kdissect.spark.values import from_json, to_json  # noqa: E402
from kdissect.tables.export import ExportJob  # noqa: E402
from kdissect.tables.rows import DEFAULT_TABLES  # noqa: E402

if TYPE_CHECKING:
    from collections.abc import Callable

PARTS = 4
REPEATED = 2000
PATH = "/share/captures/2026-11-28/broker-0123/kafka.pcap-{:07}"
BUNDLE_BYTES = 128 * KIB
CONNECTION_TB = 8


class Plan(NamedTuple):
    """What is planned: bytes of captures, and numbers of files, ranges, tasks and cores."""

    bytes: int
    files: int
    ranges: int
    tasks: int
    cores: int


class Sent(NamedTuple):
    """What one value costs its receiver: JSON or pickle, and the time to read it."""

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


def measured(captures: list[Path], directory: Path) -> tuple[dict[str, float], dict[str, Sent]]:
    """CPU seconds of the stages, and what their values cost."""
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
        lambda: list(read_ranges(len(expected), PARTS, DEFAULT, directory, expected))
    )
    rows = pa.Table.from_batches(batches).sort_by([(name, "ascending") for name in ORDER])
    of_parts = [rows.filter(pc.equal(rows["part"], part)).to_batches() for part in range(PARTS)]
    of_parts = [each for each in of_parts if each]
    seconds["learn facts"], learned = timed(
        lambda: [_value(parts.learn_shuffled(job, 0, part)) for part in of_parts]
    )
    facts = LearnedFacts(DEFAULT, job.options.names)
    for each in learned:
        facts.merge(each)
    write = partial(parts.write, job, partial(parts.open_shuffled, job, 0, facts))
    seconds["dissect and write"], written = timed(lambda: [_value(write(part)) for part in of_parts])
    stats = rows.filter(pc.equal(rows["part"], PARTS))["data"].to_pylist()
    paths = [PATH.format(number) for number in range(REPEATED)]
    code = pickle.dumps(paths)
    reading = timed(lambda: [pickle.loads(code) for _ in range(100)])[0] / 100 / REPEATED
    places = rows.filter(pc.less(rows["part"], PARTS))
    sent = {
        "what is known of a file": Sent.as_json(examined[0]),
        "a range to read": Sent.as_json(expected[0]),
        "counts of a range": Sent(len(stats[0]), timed(lambda: _added_up(stats[0]))[0] / REPEATED),
        "files and counts of a part": Sent.as_json(written[0]),
        "a path, in the code": Sent(len(code) / REPEATED, reading),
        "place of a bundle": Sent(places.nbytes / places.num_rows, 0),
    }
    return seconds, sent


def _added_up(stats: bytes) -> RangeCounts:
    counts = RangeCounts(DEFAULT)
    for _ in range(REPEATED):
        counts.add(stats_in(stats))
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
    path, stages = sent["a path, in the code"], 2 * plan.tasks
    unpickling = path.seconds * plan.files * stages
    print(
        f"| read paths in the code | {stages:,} | {unpickling / 3600:,.1f} | {_time(unpickling / stages)} |"
    )
    together = (of_all * factor + unpickling) / plan.cores
    print(f"| all, on {plan.cores:,} cores | | | {_time(together)} |")
    longest = (seconds["learn facts"] + seconds["dissect and write"]) / size * CONNECTION_TB * 1e12
    print(f"| one connection of {CONNECTION_TB} TB | 1 | {longest / 3600:,.0f} | {_time(longest)} |")
    print("\n| driver | number | bytes each | all | CPU time |\n|---|--:|--:|--:|--:|")
    for name, count in {
        "what is known of a file": plan.files,
        "a range to read": plan.ranges,
        "counts of a range": plan.ranges,
        "files and counts of a part": plan.tasks,
        "a path, in the code": plan.files,
    }.items():
        each = sent[name]
        cost = f"{each.bytes:,.0f} | {_size(each.bytes * count)} | {_time(each.seconds * count)}"
        print(f"| {name} | {count:,} | {cost} |")
    bundles, place = plan.bytes // BUNDLE_BYTES, sent["place of a bundle"]
    shuffled = _size(place.bytes * bundles)
    print(f"| place of a bundle, which only workers sort | {bundles:,} | {place.bytes:,.0f} | {shuffled} | |")


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
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="kdissect-benchmark-") as name:
        directory = Path(name)
        captures, _ = ring(arguments.work, arguments.megabytes, CONNECTIONS, 2, directory)
        size = sum(path.stat().st_size for path in captures)
        measured(captures, directory)  # what is generated and loaded once is not measured
        seconds, sent = measured(captures, directory)
        planned = int(arguments.terabytes * 1e12)
        of_file = planned / arguments.files
        ranges = arguments.files * (round(of_file / RANGE_BYTES) if of_file > 2 * RANGE_BYTES else 1)
        tasks = task_count(planned, arguments.cores)
    what = f"{arguments.terabytes:,g} TB of {arguments.work} traffic in {arguments.files:,} files"
    print(f"{what}, on {arguments.cores:,} cores; units from {size / 1e6:,.0f} MB\n")
    show(Plan(planned, arguments.files, ranges, tasks, arguments.cores), size, seconds, sent)


if __name__ == "__main__":
    main()
