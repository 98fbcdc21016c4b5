"""``decode`` with Spark. That parts together write what one process writes, whatever the capture, is tested
without it in test_parts.py; that all ways to tables have the same rows in test_every_way.py.
"""

from __future__ import annotations

import json
import os
from collections import Counter
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import replace
from functools import partial, reduce
from itertools import count as numbers_from
from pathlib import Path
from socket import gethostname
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import pytest
from pyspark.sql import DataFrame
from pyspark.sql.functions import lit

from benchmarks.traffic import make
from kdissect.capture import stores
from kdissect.capture.inputs import output_directory
from kdissect.capture.reader import open_capture
from kdissect.cli.main import main
from kdissect.errors import CaptureError, OutputError, UsageError
from kdissect.limits import DEFAULT, MIB
from kdissect.options import ExportOptions, Options
from kdissect.spark import decode as decoding
from kdissect.spark import parts
from kdissect.spark.dataframes import frames
from kdissect.spark.decode import decode, task_count
from kdissect.tables import manifest
from kdissect.tables.rows import DEFAULT_TABLES
from kdissect.tables.rows import TABLES as ALL_TABLES
from samples.golden import captures, name_of
from tests.damage import DAMAGES
from tests.depth import IS_DEEP
from tests.disguises import NETWORKS
from tests.exports import json_rows, parquet_rows
from tests.late import late
from tests.shuffling import Tasks, alone, counted, cut_up, numbers
from tests.stores import BUCKET, environment, s3_server

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from contextlib import AbstractContextManager

    from pyspark.sql import SparkSession

    from kdissect.model import Packet
    from kdissect.spark.decode import DecodeResult

SAMPLES = {name_of(path): path for path in captures()}
SMALL_MB, LARGE_MB = (60, 300) if IS_DEEP else (60, 180)
TABLES = DEFAULT_TABLES


def packets_of(name: str) -> list[Packet]:
    with open_capture(SAMPLES[name]) as capture:
        return list(capture)


def parquet(directory: Path) -> ExportOptions:
    """Options for all tables except records, in directories by date."""
    return ExportOptions(directory, "parquet", partition_by=("date",))


def read(spark: SparkSession, directory: Path, table: str) -> DataFrame:
    schema = (directory / table / "_kdissect" / "schema.ddl").read_text()
    return spark.read.schema(schema).parquet(str(directory / table))


def equal(spark: SparkSession, one: Path, other: Path) -> None:
    """Compare the tables with most columns by exceptAll in both directions; Spark takes seconds for each."""
    differing = []
    for table in ("exchanges", "partitions", "connections"):
        left, right = (read(spark, directory, table) for directory in (one, other))
        assert left.schema == right.schema
        rows = left.exceptAll(right).union(right.exceptAll(left))
        differing.append(rows.select(lit(table)))
    assert reduce(DataFrame.union, differing).collect() == []


def test_parquet_by_shuffle_and_by_one_task(spark: SparkSession, tmp_path: Path) -> None:
    names = cut_up(packets_of("kafka-4-basics"), tmp_path / "ring", 5)
    shuffled = decode(spark, names, parquet(tmp_path / "many"), range_bytes=20_000, tasks=3)
    single = decode(spark, names, parquet(tmp_path / "one"))
    assert (shuffled.tasks, single.tasks) == (3, 1)
    assert shuffled.rows == single.rows
    assert shuffled.packets == single.packets == len(packets_of("kafka-4-basics"))
    assert shuffled.counts["unresolved topic IDs"] == 0
    equal(spark, tmp_path / "many", tmp_path / "one")
    files = [path for path in (tmp_path / "many").rglob("*") if path.is_file() and "part-" in path.name]
    assert all(path.name.startswith("part-") for path in files)
    assert len(files) == shuffled.files
    again = decode(spark, names, parquet(tmp_path / "one"))
    assert (again.rows, again.files) == ({}, 0)
    with pytest.raises(OutputError, match="made from other captures or with other options"):
        decode(spark, names, replace(parquet(tmp_path / "one"), bodies="none"))


def test_json_lines_of_a_damaged_capture_in_ranges(spark: SparkSession, tmp_path: Path) -> None:
    from random import Random

    left = DAMAGES["10 % lost, duplicated, shuffled"](packets_of("quickstart"), Random(7)).packets
    (name,) = cut_up(left, tmp_path / "whole", 1)
    Path(name).write_bytes(Path(name).read_bytes()[:-3])
    export = ExportOptions(tmp_path / "many", tables=TABLES)
    done = decode(spark, [name], export, range_bytes=8000, tasks=2)
    assert [warning.split(": ")[1] for warning in done.warnings] == [
        warning.split(": ")[1]
        for warning in alone([name], tmp_path / "one", tables=TABLES, learns_first=True).warnings
    ]
    assert "ends in the middle of" in done.warnings[0]
    assert counted(tmp_path / "many") == counted(tmp_path / "one")


def test_datagrams_whose_fragments_are_in_several_files(spark: SparkSession, tmp_path: Path) -> None:
    names = cut_up(NETWORKS["fragments"](packets_of("quickstart")), tmp_path / "ring", 7)
    export = ExportOptions(tmp_path / "many", "jsonl", tables=tuple(TABLES))
    done = decode(spark, names, export, tasks=2)
    one = alone(names, tmp_path / "one", tables=TABLES, learns_first=True)
    assert counted(tmp_path / "many") == counted(tmp_path / "one")
    assert (done.rows, done.skipped, done.warnings) == (one.rows, one.skipped, one.warnings)


def test_arguments_are_checked_first(tmp_path: Path) -> None:
    unused: Any = None
    name = str(SAMPLES["quickstart"])
    with pytest.raises(UsageError, match="unknown API"):
        decode(unused, [name], ExportOptions(tmp_path), Options(criteria={"api": ("Fetsch",)}))
    workers: Any = Workers()
    with pytest.raises(CaptureError, match="no such file"):
        decode(workers, [str(tmp_path / "missing")], parquet(tmp_path))
    (tmp_path / "notes.txt").write_text("no capture")
    with pytest.raises(CaptureError, match=r"no capture among 1 file; the first is .*notes.txt"):
        decode(workers, [str(tmp_path)], parquet(tmp_path / "out"))
    done = decode(workers, [name, str(tmp_path / "notes.txt")], parquet(tmp_path / "out"))
    assert [warning.split(": ")[1][:8] for warning in done.warnings] == ["neither "]


class Workers:
    """What ``decode`` needs of a session, with tasks that run here, one after another.

    Args:
        contexts: of the tasks of each stage.

    Attributes:
        works: what the tasks of each stage have done.
    """

    def __init__(self, *contexts: Callable[[], AbstractContextManager[None]]) -> None:
        self._contexts = iter(contexts)
        self.works: list[Callable[[Any], Any]] = []
        self.conf: dict[str, str] = {}

    def range(self, *bounds: int) -> Workers:
        self._batches = numbers(*range(*bounds[:2]))
        return self

    def createDataFrame(self, rows: Any) -> Workers:  # noqa: N802  (Spark's name)
        self._batches = rows.to_batches()
        return self

    def mapInArrow(self, work: Callable[[Any], Any], _: str) -> Workers:  # noqa: N802  (Spark's name)
        self.works.append(work)
        with next(self._contexts, nullcontext)():
            self._rows = [
                (row,) for batch in work(iter(self._batches)) for row in batch.column("result").to_pylist()
            ]
        return self

    def collect(self) -> list[tuple[bytes]]:
        return self._rows


def test_the_driver_opens_no_capture(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    packets = packets_of("quickstart")
    cut_up(packets, tmp_path / "ring", 10)
    opened, open_file = list[str](), stores.open_file

    def opening(name: str) -> Any:
        opened.append(name)
        return open_file(name)

    @contextmanager
    def task() -> Iterator[None]:
        yield
        assert opened
        opened.clear()

    monkeypatch.setattr(stores, "open_file", opening)
    workers: Any = Workers(task, task, task)
    done = decode(workers, [str(tmp_path / "ring")], parquet(tmp_path / "out"))
    assert done.packets == len(packets)
    assert opened == []


def swapped_paths(place: Path, other: Path) -> Callable[[], AbstractContextManager[None]]:
    """Workers that see other files under the same names, as on a machine with its own disk."""

    @contextmanager
    def swapped() -> Iterator[None]:
        aside = place.with_name("aside")
        place.rename(aside)
        other.rename(place)
        try:
            yield
        finally:
            place.rename(other)
            aside.rename(place)

    return swapped


def test_a_directory_that_workers_do_not_see_is_reported_before_work_starts(tmp_path: Path) -> None:
    out, on_worker = tmp_path / "out", tmp_path / "on_worker"
    out.mkdir()
    on_worker.mkdir()
    workers: Any = Workers(swapped_paths(out, on_worker))
    with pytest.raises(
        OutputError, match=rf"^{out}: not shared with {gethostname()}; DIR must be on storage shared by"
    ):
        decode(workers, [str(SAMPLES["quickstart"])], parquet(out))
    workers = Workers(swapped_paths(out, on_worker))
    with pytest.raises(
        OutputError, match=rf"^{out}/.*: not shared with .*; pass directory=, on storage shared"
    ):
        frames(workers, str(SAMPLES["quickstart"]), directory=str(out))
    assert [*out.iterdir(), *on_worker.iterdir()] == []
    decode(cast("Any", Workers()), [str(SAMPLES["quickstart"])], parquet(out))
    assert sorted(path.name for path in out.iterdir()) == sorted(TABLES)


@pytest.mark.parametrize("lost", ["all", "one file", "the end of one"])
def test_an_export_with_missing_files_is_incomplete(tmp_path: Path, lost: str) -> None:
    """A worker that was added later does not share the directory, or a file was lost."""
    out, on_worker = tmp_path / "out", tmp_path / "on_worker"
    on_worker.mkdir()

    @contextmanager
    def losing() -> Iterator[None]:
        yield
        path = next(out.rglob("partitions/**/part-*"))
        if lost == "one file":
            path.unlink()
        else:
            os.truncate(path, 10)

    last = swapped_paths(out, on_worker) if lost == "all" else losing
    workers: Any = Workers(nullcontext, nullcontext, last)
    name = str(SAMPLES["kafka-4-basics"])
    with pytest.raises(
        OutputError,
        match=rf"^worker {gethostname()} wrote {out}/.*part-00001.parquet, "
        "which the driver does not see; DIR",
    ):
        decode(workers, [name], parquet(out))
    manifests = [json.loads(path.read_text()) for path in out.glob("*/_kdissect/manifest.json")]
    assert [each["complete"] for each in manifests] == [False] * len(TABLES)
    done = decode(cast("Any", Workers()), [name], parquet(out))
    assert done.rows["exchanges"] > 100


@pytest.mark.parametrize("is_store", [False, True], ids=["disk", "store"])
def test_a_task_that_was_given_up_publishes_nothing(
    is_store: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Spark runs it again elsewhere; the first one continues after the driver has finished."""
    attempts = numbers_from(7)
    task = SimpleNamespace(taskAttemptId=lambda: next(attempts))
    monkeypatch.setattr(parts, "TaskContext", SimpleNamespace(get=lambda: task))
    with s3_server() if is_store else nullcontext(("", None)) as (endpoint, _):
        for name, value in environment(endpoint).items():
            monkeypatch.setenv(name, value)
        stores._client.cache_clear()
        out = output_directory(f"s3://{BUCKET}/out" if is_store else tmp_path / "out")
        workers = Workers()
        name = str(SAMPLES["quickstart"])
        done = decode(cast("Any", workers), [name], parquet(out))
        assert (done.tasks, done.rows["exchanges"]) == (1, 75)
        assert list(workers.works[-1](iter(numbers(0))))
        for table in TABLES:
            manifest.check(out / table)
            assert sum(each["rows"] for each in manifest.read(out / table)["files"]) == done.rows[table]
        assert decode(cast("Any", Workers()), [name], parquet(out)).rows == {}  # it is complete
    stores._client.cache_clear()


def test_a_capture_that_workers_do_not_see(tmp_path: Path) -> None:
    capture, on_worker = tmp_path / "here" / "x.pcap", tmp_path / "on_worker"
    on_worker.mkdir()
    capture.parent.mkdir()
    capture.write_bytes(SAMPLES["quickstart"].read_bytes())
    workers: Any = Workers(swapped_paths(capture.parent, on_worker))
    with pytest.raises(CaptureError, match=rf"^worker {gethostname()} cannot read .*; captures must be on"):
        decode(workers, [str(capture)], parquet(tmp_path / "out"))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda data: data[:-1], "has a different .* bytes there"),
        (lambda data: data[:30] + bytes([data[30] ^ 1]) + data[31:], "has a different .* bytes there"),
        (None, "cannot read .*: no such file or directory"),
    ],
)
def test_a_capture_that_is_another_one_for_workers(tmp_path: Path, change: Any, message: str) -> None:
    capture, on_worker = tmp_path / "here" / "x.pcap", tmp_path / "on_worker"
    for directory in (capture.parent, on_worker):
        directory.mkdir()
    data = SAMPLES["quickstart"].read_bytes()
    capture.write_bytes(data)
    if change is not None:
        (on_worker / "x.pcap").write_bytes(change(data))
    workers: Any = Workers(nullcontext, nullcontext, swapped_paths(capture.parent, on_worker))
    with pytest.raises(
        CaptureError, match=rf"^worker {gethostname()} {message}.*; captures must be on storage"
    ):
        decode(workers, [str(capture)], parquet(tmp_path / "out"))


def test_a_capture_may_grow_meanwhile(tmp_path: Path) -> None:
    capture, on_worker = tmp_path / "here" / "x.pcap", tmp_path / "on_worker"
    for directory in (capture.parent, on_worker):
        directory.mkdir()
    data = SAMPLES["quickstart"].read_bytes()
    capture.write_bytes(data[:2000])
    (on_worker / "x.pcap").write_bytes(data)
    workers: Any = Workers(nullcontext, nullcontext, swapped_paths(capture.parent, on_worker))
    assert decode(workers, [str(capture)], parquet(tmp_path / "out")).packets == len(packets_of("quickstart"))


def test_captures_of_the_next_day_are_added(tmp_path: Path) -> None:
    names, out = [str(SAMPLES[name]) for name in ("quickstart", "kafka-4-basics")], tmp_path / "out"
    export = ExportOptions(out, tables=("exchanges", "captures"))
    one = decode(cast("Any", Workers()), names[:1], export)
    two = decode(cast("Any", Workers()), names, export)
    assert two.rows["captures"] == 1
    manifest.check(out / "exchanges")
    assert len(json_rows(out / "exchanges")) == one.rows["exchanges"] + two.rows["exchanges"]
    assert [row["capture"] for row in json_rows(out / "captures")] == names
    assert decode(cast("Any", Workers()), names, export).rows == {}
    again = decode(cast("Any", Workers()), names[:1], export, redo=True)
    assert again.rows == one.rows
    assert len(json_rows(out / "captures")) == 2


@pytest.mark.parametrize(
    ("form", "compression", "partition_by"),
    [("parquet", None, ()), ("jsonl", "none", ("date",)), ("jsonl", "gz", ()), ("jsonl", "zst", ())],
)
def test_small_files_are_combined(
    tmp_path: Path, form: str, compression: str | None, partition_by: tuple[str, ...]
) -> None:
    name, directory = str(SAMPLES["kafka-4-basics"]), tmp_path / "many"
    export = ExportOptions(directory, form, compression, ("exchanges", "records"), partition_by=partition_by)
    workers = Tasks()
    done = decode(cast("Any", workers), [name], export, tasks=3)
    assert (done.tasks, done.files) == (3, 2)
    with pytest.raises(OSError, match="No such file"):
        workers.works[-1]()  # a task that was given up continues
    one = replace(export, directory=tmp_path / "one")
    decode(cast("Any", Workers()), [name], one)
    for table in ("exchanges", "records"):
        manifest.check(directory / table)
        read = json_rows if form == "jsonl" else partial(parquet_rows, table=ALL_TABLES[table])
        rows = [sorted(map(repr, read(place / table))) for place in (directory, one.directory)]
        assert rows[0] == rows[1] != []
    (file,) = manifest.read(directory / "exchanges")["files"]
    assert file["rows"] == done.rows["exchanges"]
    apart = replace(export, directory=tmp_path / "apart", rotate_bytes=1000)
    assert decode(cast("Any", Tasks()), [name], apart, tasks=3).files > 5


@pytest.mark.parametrize("network", ["padded", "fragments"])
def test_packets_go_through_spark_where_workers_share_no_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, network: str
) -> None:
    cut_up(NETWORKS[network](packets_of("quickstart")), tmp_path / "ring", 9)
    shuffled = decoding._shuffled
    for name in ("files", "rows"):
        export = ExportOptions(tmp_path / name)
        decode(cast("Any", Tasks()), [str(tmp_path / "ring")], export, tasks=3)
        monkeypatch.setattr(decoding, "_shuffled", lambda *settings: shuffled(*settings[:-1], None))
    assert counted(tmp_path / "files") == counted(tmp_path / "rows")


def test_a_task_that_writes_until_the_end_is_no_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Spark has given it up, but not stopped it yet."""
    session, rmdir = Tasks(), os.rmdir
    session.conf["spark.local.dir"] = str(tmp_path)
    with ExitStack() as stack:
        packets = decoding.temporary(cast("Any", session), stack)
        assert packets is not None

        def remove(*path: Any, **options: Any) -> None:
            (packets / "late").touch()
            rmdir(*path, **options)

        monkeypatch.setattr(os, "rmdir", remove)
    assert [each.name for each in packets.iterdir()] == ["late"]


@pytest.mark.parametrize(
    ("size", "cores", "chosen", "tasks"),
    [
        (256 * MIB, 64, None, 1),
        (257 * MIB, 2, None, 4),
        (1280 * MIB, 4, None, 10),
        (100_000_000_000_000, 1000, None, 20_000),
        (MIB, 2, 8, 8),
        (MIB, 2, 64, 8),
        (320 * MIB, 2, 64, 10),
        (320 * MIB, 2, 1, 1),
    ],
)
def test_the_number_of_tasks_depends_on_the_captures(
    size: int, cores: int, chosen: int | None, tasks: int
) -> None:
    assert task_count(size, cores, chosen) == tasks


def test_the_code_that_tasks_get_does_not_grow_with_the_captures(tmp_path: Path) -> None:
    """Each task would read all of it: with a million ranges, for longer than it dissects its own."""
    sizes = []
    for files, range_bytes in ((2, 2000), (2, 9000), (40, 9000)):
        workers: Any = Tasks()
        names = cut_up(packets_of("quickstart"), tmp_path / f"ring-{files:02}", files)
        export = parquet(tmp_path / f"{files:02}-{range_bytes}")
        decode(workers, names, export, range_bytes=range_bytes, tasks=3)
        sizes.append(list(map(len, workers.sent)))
    assert all(max(each) - min(each) < 32 for each in zip(*sizes, strict=True)), sizes


def test_names_come_from_the_whole_input_by_default(tmp_path: Path) -> None:
    """As on the command line."""
    capture = str(late(tmp_path / "late.pcapng"))
    decode(cast("Any", Workers()), [capture], ExportOptions(tmp_path / "out", tables=("partitions",)))
    assert main(["export", capture, "-o", str(tmp_path / "here"), "--tables", "partitions"]) == 0
    rows = json_rows(tmp_path / "out" / "partitions")
    assert rows == json_rows(tmp_path / "here" / "partitions")
    assert {row["topic"] for row in rows} == {"orders"}


def test_other_urls_are_no_directories(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    unused: Any = None
    with pytest.raises(UsageError, match="is a URL"):
        decode(unused, [str(SAMPLES["quickstart"])], parquet(Path("dbfs:/tables")))


@pytest.mark.deep
def test_one_hot_connection_does_not_make_workers_grow(spark: SparkSession, tmp_path: Path) -> None:
    """The buffers of a worker are full after 50 MB: record batches of 8 MiB and, with this bound, rows for
    Parquet. A task that kept the payloads of its connection would grow by as much as the capture does.
    """
    peaks_kib = {}
    for megabytes in (SMALL_MB, LARGE_MB):
        capture = tmp_path / f"{megabytes}.pcap"
        contents = make("bulk", capture, megabytes * 1_000_000)
        _retire_workers(spark)
        export, options = parquet(tmp_path / str(megabytes)), Options(replace(DEFAULT, export_bytes=MIB))
        done = decode(spark, [str(capture)], export, options, tasks=2)
        assert done.rows["exchanges"] == contents.exchanges
        capture.unlink()
        peaks_kib[megabytes] = max(_peaks_kib(spark))
    assert peaks_kib[LARGE_MB] - peaks_kib[SMALL_MB] < (LARGE_MB - SMALL_MB) * 1000 / 4
    assert peaks_kib[LARGE_MB] < 400 * 1024


@pytest.mark.deep
def test_two_thousand_small_captures(spark: SparkSession, tmp_path: Path) -> None:
    make("chatty", tmp_path / "whole.pcap", 4_000_000, connections=50)
    with open_capture(tmp_path / "whole.pcap") as capture:
        names = cut_up(list(capture), tmp_path / "ring", 2000)
    assert 1800 < len(names) <= 2000
    as_exported(spark, tmp_path / "ring", tmp_path, tasks=4)


@pytest.mark.deep(short=False)
def test_a_gigabyte_in_one_connection(spark: SparkSession, tmp_path: Path) -> None:
    """It crosses many ranges, and one part gets all of it."""
    make("bulk", tmp_path / "large.pcap", 1_000_000_000, connections=1)
    done = as_exported(spark, tmp_path / "large.pcap", tmp_path, tasks=4)
    (tmp_path / "large.pcap").unlink()
    assert done.tasks == 1
    assert any("a single task dissects it" in each for each in done.warnings)


def as_exported(spark: SparkSession, captures: Path, directory: Path, tasks: int) -> DecodeResult:
    """Decode captures; check that the tables are those of ``export``."""
    done = decode(spark, [str(captures)], parquet(directory / "spark"), tasks=tasks)
    options = ["--format", "parquet", "--partition-by", "date", "-o", str(directory / "one")]
    assert main(["export", str(captures), *options]) == 0
    for table in TABLES:
        one, other = (parquet_rows(directory / way / table, ALL_TABLES[table]) for way in ("one", "spark"))
        assert Counter(map(repr, one)) == Counter(map(repr, other)), table
    return done


def _retire_workers(spark: SparkSession) -> None:
    """End the workers that Spark reuses, with peaks of other tests: they exit if they leave input unread."""
    spark.range(0, 16, 1, 16).mapInArrow(lambda _: iter(()), "none bigint").collect()


def _peaks_kib(spark: SparkSession) -> list[int]:
    """The peak memory of each worker so far; Spark reuses workers for the next task."""

    def peak(batches: Any) -> Any:
        import pyarrow as pa

        import kdissect.tables.arrow  # noqa: F401  (keeps pyarrow from loading pandas, which takes 50 MB)
        from tests.peak import peak_kib

        for batch in batches:
            yield pa.RecordBatch.from_pydict({"peak": [peak_kib() for _ in range(batch.num_rows)]})

    return [row[0] for row in spark.range(0, 8, 1, 8).mapInArrow(peak, "peak bigint").collect()]
