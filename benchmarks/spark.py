"""How fast are captures exported, in one process and with Spark, and how large and fast are the tables?

    python benchmarks/spark.py [--work bulk|chatty|...] [--megabytes 500] [--files 20] [--runs 3]

Generates a capture (traffic.py), divides it into files as tcpdump's ring does, and runs:

    read --json, export          on one core; export to Parquet also on all cores
    spark decode                 embedded Spark on one core and on all, in a warm session: in shards, and as a
                                 shuffle

Prints medians of wall-clock time and CPU time, and rates per CPU time. For Spark, CPU time is wall-clock time
multiplied by the number of cores: the CPU time of workers that have exited is unknown, and a cluster is paid
for by the hour. The first run, including Spark's start, is on a line of its own. Then the tables: their size,
and the time that Spark takes for latencies by API; and an extrapolation of the rate on all cores to larger
captures. The exchanges of every run are counted: the benchmark fails if some are missing.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import resource
import shutil
import struct
import subprocess
import sys
import tempfile
import time
from itertools import product
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, NamedTuple

REPOSITORY = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(REPOSITORY), str(REPOSITORY / "benchmarks")]

from traffic import WORKS, make  # noqa: E402

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import DataFrame

KDISSECT = [sys.executable, "-m", "kdissect"]
_FILE_HEADER_BYTES, _PACKET_HEADER = 24, struct.Struct("<4I")
CONNECTIONS = 200
QUERIES = 5
PAPER_GB = (50, 5000)
ALL_CORES = len(os.sched_getaffinity(0))


class Way(NamedTuple):
    """A command that turns captures into rows.

    Attributes:
        command: arguments of ``kdissect``, before the captures.
        cores: number of cores and processes.
        tables: the directory that it writes; None: it writes lines to stdout.
    """

    name: str
    command: list[str]
    cores: int
    tables: Path | None


class Cost(NamedTuple):
    """Wall-clock time and CPU time of a run, and the number of rows."""

    seconds: float
    cpu_s: float
    rows: int


def cut(capture: Path, directory: Path, files: int) -> list[Path]:
    """Divide a capture into files of about equal size, at packet boundaries."""
    data = capture.read_bytes()
    files_written: list[Path] = []
    first = pos = _FILE_HEADER_BYTES
    for number in range(1, files + 1):
        until = len(data) * number // files
        while pos < until:
            pos += _PACKET_HEADER.size + _PACKET_HEADER.unpack_from(data, pos)[2]
        files_written.append(directory / f"ring-{number:03}.pcap")
        files_written[-1].write_bytes(data[:_FILE_HEADER_BYTES] + data[first:pos])
        first = pos
    return files_written


def run(way: Way, captures: Sequence[Path]) -> tuple[Cost, int]:
    """Run a command; return its cost and the number of exchanges."""
    if way.tables is not None:
        shutil.rmtree(way.tables, ignore_errors=True)
    began, before = time.perf_counter(), resource.getrusage(resource.RUSAGE_CHILDREN)
    with subprocess.Popen(
        [*KDISSECT, *way.command, "-j", str(way.cores), *map(str, captures)],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        cwd=REPOSITORY,
        preexec_fn=lambda: os.sched_setaffinity(0, cores(way.cores)),
    ) as process:
        assert process.stdout is not None
        lines = sum(block.count(b"\n") for block in iter(lambda: process.stdout.read(1 << 20), b""))
    seconds, after = time.perf_counter() - began, resource.getrusage(resource.RUSAGE_CHILDREN)
    if process.returncode:
        raise SystemExit(f"{way.name}: status {process.returncode}")
    cpu_s = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    rows = {"exchanges": lines} if way.tables is None else from_manifests(way.tables, "rows")
    return Cost(seconds, cpu_s, sum(rows.values())), rows["exchanges"]


def cores(count: int) -> set[int]:
    """The first ``count`` cores that this process may use."""
    return set(sorted(os.sched_getaffinity(0))[:count])


def decoding(split: str, count: int, tables: Path, runs: int, captures: Sequence[Path]) -> None:
    """Decode in one session, once to warm up and then ``runs`` times; print the cost of each run as JSON."""
    from kdissect.options import PARQUET, ExportOptions
    from kdissect.spark.decode import decode
    from kdissect.spark.session import SparkTarget, session

    os.sched_setaffinity(0, cores(count))
    began = time.perf_counter()
    with session(SparkTarget(master=f"local[{count}]")) as spark:
        for _ in range(runs + 1):
            export = ExportOptions(tables, PARQUET)
            done = decode(spark, list(map(str, captures)), export, strategy=split, overwrite=True)
            seconds = time.perf_counter() - began
            result = [seconds, seconds * count, sum(done.rows.values()), done.rows["exchanges"]]
            print(json.dumps(result), flush=True)
            began = time.perf_counter()


def decoded(
    split: str, count: int, tables: Path, runs: int, captures: Sequence[Path]
) -> list[tuple[Cost, int]]:
    """Run ``decoding`` in a separate process; the first cost includes the start of Spark."""
    command = [sys.executable, __file__, "--decoding", split, str(count), str(tables), str(runs)]
    done = subprocess.run([*command, *map(str, captures)], stdout=subprocess.PIPE, check=True, text=True)
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    return [(Cost(seconds, cpu_s, rows), exchanges) for seconds, cpu_s, rows, exchanges in lines]


def from_manifests(tables: Path, what: str) -> dict[str, int]:
    """A value from the manifest of each table."""
    manifests = sorted(tables.glob("*/_kdissect/manifest.json"))
    return {path.parent.parent.name: json.loads(path.read_text())[what] for path in manifests}


def size(tables: Path) -> int:
    """Bytes of all files of the tables."""
    return sum(path.stat().st_size for path in tables.rglob("part-*"))


def queries(directories: Sequence[Path]) -> dict[Path, list[float]]:
    """Seconds that Spark takes for latencies by API, for each directory in turn, in a warm session."""
    from kdissect.spark.jobs.latency import latency
    from kdissect.spark.session import SparkTarget, session
    from kdissect.spark.tables import tables

    times_by_directory: dict[Path, list[float]] = {directory: [] for directory in directories}
    with session(SparkTarget()) as spark:

        def latencies(directory: Path) -> DataFrame:
            return latency(tables(spark, str(directory), ["exchanges"])["exchanges"])

        results = [sorted(map(tuple, latencies(directory).collect()), key=str) for directory in directories]
        assert all(result == results[0] for result in results), "two formats answer differently"
        for _ in range(QUERIES):
            for directory, times in times_by_directory.items():
                frame = latencies(directory)
                began = time.perf_counter()
                frame.collect()
                times.append(time.perf_counter() - began)
    return times_by_directory


def ways(work: Path) -> list[Way]:
    exports = {"jsonl": [], "jsonl.zst": ["--compress", "zst"], "parquet": ["--format", "parquet"]}
    result = [Way("read --json", ["read", "--json"], 1, None)]
    for name, options in exports.items():
        command = ["export", *options, "-o", str(work / name)]
        result.append(Way(f"export, {name}", command, 1, work / name))
    return [*result, result[-1]._replace(cores=ALL_CORES)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--work", choices=WORKS, default="chatty")
    parser.add_argument("--megabytes", type=float, default=500)
    parser.add_argument("--files", type=int, default=20)
    parser.add_argument("--runs", type=int, default=3)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="kdissect-benchmark-") as name:
        work = Path(name)
        source = work / "whole.pcap"
        contents = make(arguments.work, source, int(arguments.megabytes * 1e6), connections=CONNECTIONS)
        captures = cut(source, work, arguments.files)
        megabytes = source.stat().st_size / 1e6
        source.unlink()
        what = f"{megabytes:,.0f} MB of {arguments.work} traffic in {len(captures)} files"
        whose = f"{contents.exchanges:,} exchanges of {CONNECTIONS} connections"
        print(f"{what}: {whose}; Python {platform.python_version()}, median of {arguments.runs}")
        head = f"{'cores':>5} {'seconds':>8} {'cpu s':>8} {'MB/s':>7} {'exchanges/s':>12} {'rows/s':>10}"
        print(f"\n{'':24} {head}")

        def show(name: str, count: int, measured: Sequence[tuple[Cost, int]]) -> float:
            """Print a line; return megabytes per second of CPU time."""
            for _, exchanges in measured:
                if exchanges != contents.exchanges:
                    raise SystemExit(f"{name} tells {exchanges:,} of {contents.exchanges:,} exchanges")
            seconds, cpu_s, rows = (
                median(each) for each in zip(*(cost for cost, _ in measured), strict=True)
            )
            rates = f"{megabytes / cpu_s:7.1f} {contents.exchanges / cpu_s:12,.0f} {rows / cpu_s:10,.0f}"
            print(f"{name:24} {count:5} {seconds:8.1f} {cpu_s:8.1f} {rates}", flush=True)
            return megabytes / cpu_s

        for way in ways(work):
            show(way.name, way.cores, [run(way, captures) for _ in range(arguments.runs)])
        for count, split in product(dict.fromkeys((1, ALL_CORES)), ("shards", "shuffle")):
            start, *measured = decoded(split, count, work / f"spark-{count}", arguments.runs, captures)
            rate = show(f"spark decode, {split}", count, measured)
            show("its first run, from start", count, [start])
        directories = [work / name for name in ("jsonl", "jsonl.zst", "parquet")]
        print(f"\n{'tables':24} {'MB':>8} {'of exchanges':>13} {'latencies by api, s':>20}")
        for directory, times in queries(directories).items():
            sizes = f"{size(directory) / 1e6:8.1f} {size(directory / 'exchanges') / 1e6:13.1f}"
            print(f"{directory.name:24} {sizes} {median(times):20.2f}", flush=True)
        written = size(work / "parquet") / 1e6 / megabytes
        print(f"\n{'on paper':24} {'core-hours':>11} {'GB of Parquet':>14}  hours on 16 cores, on 640")
        for gigabytes in PAPER_GB:
            hours = gigabytes * 1000 / rate / 3600
            shared = f"{hours / 16:.2f}, {hours / 640:.2f}"
            print(f"{f'{gigabytes:,} GB':24} {hours:11.1f} {gigabytes * written:14,.0f}  {shared}")


if __name__ == "__main__":
    if sys.argv[1:2] == ["--decoding"]:
        split, count, tables, runs, *captures = sys.argv[2:]
        decoding(split, int(count), Path(tables), int(runs), list(map(Path, captures)))
    else:
        main()
