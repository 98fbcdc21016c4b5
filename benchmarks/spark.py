"""What does it cost to turn captures into tables, in one process and with Spark?

    python benchmarks/spark.py [--work bulk|chatty|...] [--megabytes 500] [--tasks 1,2,4,16]
        [--ways export,decode] [--minutes 30]
    python benchmarks/spark.py --queries [--work ...] [--megabytes 50]

Generates a capture (traffic.py), divides it into files as tcpdump's ring does, and runs, on all cores:

    export                  one process, Parquet
    spark decode            Parquet
    data source             the table exchanges alone, which Spark reads and drops
    frames                  all tables, which Spark writes as Parquet

Each way of Spark has a session of its own. Its first run, with the start of Spark, is the cold one; warm runs
with each number of tasks follow. Then the same with a single connection, a quarter as large, which one task
dissects.

Prints a table in Markdown: elapsed time, and CPU time of all processes together, Java and the workers
included; rates per core, which are rates per CPU time; and what a terabyte of such traffic costs at this
rate. In the data source each task reads everything, so its cost holds only for so many tasks. Elapsed
times, unlike CPU times, need an otherwise idle machine. The exchanges of every run are counted: the
benchmark fails if some are missing. What has not ended after ``--minutes`` is stopped, and left out.

``--queries`` instead compares formats: the size of the tables, and the time that Spark takes for latencies by
API.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median
from threading import Timer
from typing import TYPE_CHECKING, NamedTuple

REPOSITORY = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(REPOSITORY), str(REPOSITORY / "benchmarks")]

from traffic import WORKS, make  # noqa: E402

from kdissect import core  # noqa: E402

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pyspark.sql import DataFrame, SparkSession

KDISSECT = [sys.executable, "-m", "kdissect"]
_FILE_HEADER_BYTES, _PACKET_HEADER = 24, struct.Struct("<4I")
CONNECTIONS = 200
QUERIES = 5
TERABYTE_MB = 1_000_000
CORES = len(os.sched_getaffinity(0))
EXPORT = "export --format parquet"
SPARK = DECODE, SOURCE, FRAMES = "spark decode", "data source, exchanges", "frames, Parquet"
SINGLE_TASKS = 4
"""Tasks for a single connection: only one of them gets it."""


class Run(NamedTuple):
    """What one run took. ``cpu_s`` is that of all processes."""

    tasks: int
    seconds: float
    cpu_s: float
    exchanges: int


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


def cpu_s() -> float:
    """CPU time of this process and all below it, with those that have ended."""
    processes: dict[int, tuple[int, float]] = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = path.read_text("ascii", "replace").rpartition(")")[2].split()
        except OSError:  # it has ended
            continue
        processes[int(path.parent.name)] = int(fields[1]), sum(map(int, fields[11:15]))
    own, before = {os.getpid()}, 0
    while len(own) > before:
        before = len(own)
        own |= {process for process, (parent, _) in processes.items() if parent in own}
    return sum(processes[each][1] for each in own if each in processes) / os.sysconf("SC_CLK_TCK")


def from_manifests(tables: Path, what: str) -> dict[str, int]:
    """A value from the manifest of each table."""
    manifests = sorted(tables.glob("*/_kdissect/manifest.json"))
    return {path.parent.parent.name: json.loads(path.read_text())[what] for path in manifests}


def size(tables: Path) -> int:
    """Bytes of all files of the tables."""
    return sum(path.stat().st_size for path in tables.rglob("part-*"))


# --- in a process of its own


def export(captures: Sequence[str], tables: Path, options: Sequence[str] = ("--format", "parquet")) -> int:
    """Export in one process; return the number of exchanges."""
    shutil.rmtree(tables, ignore_errors=True)
    command = [*KDISSECT, "export", *options, "-j", "1", "-o", str(tables), *captures]
    subprocess.run(command, check=True, stderr=subprocess.DEVNULL, cwd=REPOSITORY)
    return from_manifests(tables, "rows")["exchanges"]


def with_spark(spark: SparkSession, way: str, tasks: int, captures: Sequence[str], tables: Path) -> int:
    """Do the work once; return the number of exchanges."""
    from pyspark.sql import Observation
    from pyspark.sql import functions as F  # noqa: N812

    import kdissect.spark
    from kdissect.options import PARQUET, ExportOptions
    from kdissect.spark.decode import decode

    if way == DECODE:
        done = decode(spark, captures, ExportOptions(tables, PARQUET), overwrite=True, tasks=tasks)
        return done.rows["exchanges"]
    counted = Observation()
    count = F.count(F.lit(1)).alias("rows")
    if way == SOURCE:
        reader = spark.read.format("kdissect").options(split="connections", tasks=tasks)
        frame = reader.load(list(captures)).observe(counted, count)
        frame.write.format("noop").mode("overwrite").save()
    else:
        with kdissect.spark.frames(spark, captures, tasks=tasks) as frames:
            for name, frame in frames.items():
                observed = frame.observe(counted, count) if name == "exchanges" else frame
                observed.write.mode("overwrite").parquet(str(tables / name))
    return int(counted.get["rows"])


def measure(
    way: str, tasks: Sequence[int], runs: int, tables: Path, captures: Sequence[str]
) -> Iterator[Run]:
    """The cold run, with the first number of tasks, then the warm ones."""
    began = time.perf_counter()  # CPU time counts from the start of this process
    if way == EXPORT:
        for _ in range(1 + runs):
            before = cpu_s()
            exchanges = export(captures, tables)
            yield Run(1, time.perf_counter() - began, cpu_s() - before, exchanges)
            began = time.perf_counter()
        return
    import kdissect.spark
    from kdissect.spark.session import SparkTarget, session

    with session(SparkTarget()) as spark:
        kdissect.spark.register(spark)
        before = 0.0
        for each in (tasks[0], *(each for each in tasks for _ in range(runs))):
            exchanges = with_spark(spark, way, each, captures, tables)
            after = cpu_s()
            yield Run(each, time.perf_counter() - began, after - before, exchanges)
            shutil.rmtree(tables, ignore_errors=True)
            began, before = time.perf_counter(), cpu_s()


# --- in the process that prints


def measured(way: str, tasks: Sequence[int], runs: int, captures: Sequence[Path], until: float) -> list[Run]:
    """The runs of a separate process, as many as it completes."""
    with tempfile.TemporaryDirectory(prefix="kdissect-tables-") as tables:
        arguments = [way, ",".join(map(str, tasks)), str(runs), f"{tables}/new", *map(str, captures)]
        command = [sys.executable, __file__, "--measure", *arguments]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, start_new_session=True)
        timer = Timer(max(0, until - time.monotonic()), os.killpg, (process.pid, signal.SIGKILL))
        timer.start()
        try:
            assert process.stdout is not None
            results = [Run(*json.loads(line)) for line in process.stdout]
        finally:
            timer.cancel()
        if process.wait() not in (0, -signal.SIGKILL):
            raise SystemExit(f"{way}: status {process.returncode}")
        return results


def ring(
    work: str, megabytes: float, connections: int, files: int, directory: Path
) -> tuple[list[Path], int]:
    """Generate captures; return them and the number of exchanges."""
    source = directory / "whole.pcap"
    contents = make(work, source, int(megabytes * 1e6), connections=connections)
    captures = cut(source, directory, files)
    source.unlink()
    return captures, contents.exchanges


def show(name: str, results: Sequence[Run], captures: Sequence[Path], exchanges: int) -> None:
    """Print a row for the cold run, and one for the median of the warm ones with each number of tasks."""
    megabytes = sum(path.stat().st_size for path in captures) / 1e6
    by_tasks: dict[int, list[Run]] = {}
    for each in results[1:]:
        by_tasks.setdefault(each.tasks, []).append(each)
    for start, runs in (("cold", results[:1]), *(("warm", runs) for runs in by_tasks.values())):
        for run in runs:
            if run.exchanges != exchanges:
                raise SystemExit(f"{name}: {run.exchanges:,} of {exchanges:,} exchanges")
        if runs:
            seconds, cpu = (median(getattr(run, what) for run in runs) for what in ("seconds", "cpu_s"))
            hours = "" if start == "cold" else f"{TERABYTE_MB / megabytes * cpu / 3600:,.1f}"
            rates = f"{megabytes / cpu:,.1f} | {exchanges / cpu:,.0f} | {hours}"
            print(f"| {name} | {runs[0].tasks} | {start} | {seconds:.1f} | {cpu:.1f} | {rates} |", flush=True)


def costs(arguments: argparse.Namespace, directory: Path) -> None:
    until = time.monotonic() + 60 * arguments.minutes
    tasks = [int(each) for each in arguments.tasks.split(",")]
    captures, exchanges = ring(arguments.work, arguments.megabytes, CONNECTIONS, arguments.files, directory)
    with_core = "with the native core" if core.is_used else "without the native core"
    what = f"{arguments.megabytes:,.0f} MB of {arguments.work} traffic in {len(captures)} files"
    whose = f"{exchanges:,} exchanges of {CONNECTIONS} connections"
    where = f"{CORES} cores, Python {platform.python_version()}, {with_core}"
    print(f"{what}: {whose}; {where}; warm: median of {arguments.runs}\n")
    rates = "MB/s per core | exchanges/s per core | 1 TB, core-hours"
    print(f"| | tasks | start | seconds | CPU seconds | {rates} |")
    print("|---|--:|---|--:|--:|--:|--:|--:|")
    chosen = [way for way in (EXPORT, *SPARK) if any(word in way for word in arguments.ways.split(","))]
    for way in chosen:
        show(way, measured(way, tasks, arguments.runs, captures, until), captures, exchanges)
    if arguments.work not in ("mixed", "short"):  # they have connections of their own
        for path in captures:
            path.unlink()
        captures, exchanges = ring(arguments.work, arguments.megabytes / 4, 1, 1, directory)
        for way in chosen:
            name = f"{way}, one connection"
            show(name, measured(way, [SINGLE_TASKS], arguments.runs, captures, until), captures, exchanges)


def queries(arguments: argparse.Namespace, directory: Path) -> None:
    """Print the size of tables in each format, and the time that Spark takes for latencies by API."""
    from kdissect.spark.jobs.latency import latency
    from kdissect.spark.session import SparkTarget, session
    from kdissect.spark.tables import tables

    captures, _ = ring(arguments.work, arguments.megabytes, CONNECTIONS, arguments.files, directory)
    formats = {"jsonl": [], "jsonl.zst": ["--compress", "zst"], "parquet": ["--format", "parquet"]}
    for name, options in formats.items():
        export(list(map(str, captures)), directory / name, options)
    times: dict[str, list[float]] = {name: [] for name in formats}
    with session(SparkTarget()) as spark:

        def latencies(name: str) -> DataFrame:
            return latency(tables(spark, str(directory / name), ["exchanges"])["exchanges"])

        results = [sorted(map(tuple, latencies(name).collect()), key=str) for name in formats]
        assert all(result == results[0] for result in results), "two formats answer differently"
        for _ in range(QUERIES):
            for name, of_format in times.items():
                frame = latencies(name)
                began = time.perf_counter()
                frame.collect()
                of_format.append(time.perf_counter() - began)
    print("| tables | MB | exchanges, MB | latencies by api, seconds |\n|---|--:|--:|--:|")
    for name, of_format in times.items():
        sizes = f"{size(directory / name) / 1e6:.1f} | {size(directory / name / 'exchanges') / 1e6:.1f}"
        print(f"| {name} | {sizes} | {median(of_format):.2f} |")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--work", choices=WORKS, default="chatty")
    parser.add_argument("--megabytes", type=float, default=500)
    parser.add_argument("--files", type=int, default=20)
    parser.add_argument("--tasks", default="1,2,4,16")
    parser.add_argument("--ways", default="", help="those whose names contain one of these words")
    parser.add_argument("--runs", type=int, default=1)
    parser.add_argument("--minutes", type=float, default=30)
    parser.add_argument("--queries", action="store_true")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="kdissect-benchmark-") as name:
        (queries if arguments.queries else costs)(arguments, Path(name))


if __name__ == "__main__":
    if sys.argv[1:2] == ["--measure"]:
        way, tasks, runs, tables, *captures = sys.argv[2:]
        for run in measure(way, [int(each) for each in tasks.split(",")], int(runs), Path(tables), captures):
            print(json.dumps(run), flush=True)
    else:
        main()
