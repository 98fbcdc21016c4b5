"""The native core writes JSON lines and CSV of exchanges in place of Python: the same, of whatever bodies."""

from __future__ import annotations

import io
import json
import struct
from random import Random
from typing import TYPE_CHECKING, Any

import pytest
from pyarrow import RecordBatch
from pyarrow.parquet import ParquetFile

from benchmarks.traffic import Template, Wire
from kdissect import core
from kdissect.capture.reader import open_capture
from kdissect.cli.terminal import OK
from kdissect.exchanges.undecoded import undecoded
from kdissect.kafka import apis, schema
from kdissect.kafka.headers import response_header_version
from kdissect.kafka.layout import layout
from kdissect.limits import DEFAULT
from kdissect.options import Options
from kdissect.pipeline import Dissection, learned_from
from kdissect.sinks.columns import Columns
from kdissect.sinks.rows import Rows
from kdissect.sinks.sink import Demand
from kdissect.spark.batches import TableBatches, columns_of
from kdissect.tables.columns import BY_NAME, EXCHANGE, selected
from kdissect.tables.lines import CsvLines, FieldLines, JsonLines
from kdissect.tables.manifest import DIRECTORY, MANIFEST
from kdissect.tables.native_rows import are_known, native_row
from kdissect.tables.rows import needs_log
from kdissect.tables.table_files import TableFiles
from samples.golden import captures, name_of
from tests.cli.commands import run
from tests.core import NEEDS_CORE, without_core
from tests.depth import IS_DEEP
from tests.frames import HEARTBEAT, request, response, sized
from tests.kafka.encoder import encoder
from tests.kafka.random_bodies import TIMES, random_body
from tests.sinks import Noted, taken
from tests.text.test_native_line import messages, usual, versions
from tests.vectors.messages import vectors

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

    from kdissect.exchanges.learned import LearnedFacts
    from kdissect.tables.columns import Column

pytestmark = NEEDS_CORE

WITHOUT_LOG = "exchanges", "partitions", "groups", "topic_ids"
TABLES = *WITHOUT_LOG, "connections", "anomalies"
LETTERS = 'az09._- ",;\n\t\x01Ж\u2028\U0001f600'


def capture_of(exchanges: Iterable[Template], path: Path) -> Path:
    """A capture of one connection, on which heartbeats come first."""
    heartbeat = Template(request(HEARTBEAT, 4), response(HEARTBEAT, 4))
    with path.open("wb") as file:
        network = Wire(file, 1448)
        talk = network.open(0, Random(0))
        for number, each in enumerate([heartbeat, heartbeat, *exchanges]):
            network.exchange(talk, each, struct.pack(">i", number))
        network.close(talk)
    return path


def exchange_of(api: str, version: int, raws: Sequence[bytes]) -> Template:
    """An exchange with these bodies."""
    key = apis.find(api).key
    is_flexible = messages(api)[0].is_flexible(version)
    header = struct.pack(">hhih", key, version, 0, 6) + b"client" + b"\0" * is_flexible
    tags = b"\0" * response_header_version(key, version)
    return Template(sized(header + raws[0]), sized(bytes(4) + tags + raws[1]))


def written(
    path: Path, sink_type: type[JsonLines | CsvLines], columns: Sequence[Column], *, by_core: bool
) -> tuple[bytes, int]:
    """The lines, and how many the core wrote."""
    out = io.BytesIO()
    sink = Rows(sink_type(out.write, columns=columns), Demand(one_by_one=not by_core))
    assert (sink.plan is not None) == by_core
    with open_capture(str(path)) as capture:
        rows = taken(Dissection(capture.packet_blocks(), Options(limits=DEFAULT)), sink)
    return out.getvalue(), rows


def batches_of(
    path: Path,
    tables: Sequence[str],
    *,
    by_core: bool,
    learned: LearnedFacts | None = None,
    columns: Sequence[str] | None = None,
    bodies: str = "both",
    **settings: Any,
) -> tuple[dict[str, list[RecordBatch]], int]:
    """The record batches of each table, and the number of exchanges whose rows the core filled.

    ``columns`` and ``bodies`` are of ``exchanges``.
    """
    selected_columns = {
        name: columns_of(name, columns if name == "exchanges" else None, bodies) for name in tables
    }
    batches = TableBatches(selected_columns, **settings)
    observer = batches.log if needs_log(tables) else None
    filled = list[tuple[str, RecordBatch]]()
    sink = Noted(Columns(batches, Demand(one_by_one=not by_core)))
    with open_capture(str(path)) as capture:
        dissection = Dissection(
            capture.packet_blocks(), Options(limits=DEFAULT), learned=learned, observer=observer
        )
        for _ in dissection.into(sink):
            filled += batches.filled()
    filled += batches.close()
    rows = {table: [batch for name, batch in filled if name == table] for table in tables}
    return rows, sum(batch.num_rows for batch in rows["exchanges"]) - sink.fed


def same_batches(
    path: Path, monkeypatch: pytest.MonkeyPatch, tables: Sequence[str] = TABLES, **settings: Any
) -> tuple[list[RecordBatch], int]:
    """The record batches of ``exchanges``. Those of all tables are the same without the core. And of how many
    exchanges it filled the rows.
    """
    batches, number = batches_of(path, tables, by_core=True, **settings)
    with without_core():
        plain, none = batches_of(path, tables, by_core=False, **settings)
    assert none == 0
    for table in tables:
        assert [batch.num_rows for batch in batches[table]] == [batch.num_rows for batch in plain[table]]
        assert all(map(RecordBatch.equals, batches[table], plain[table]))
    return plain["exchanges"], number


@pytest.fixture
def compare(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Any:
    """Compares lines with and without the core. Returns how many lines the core wrote."""

    def check(exchanges: Iterable[Template], columns: Sequence[Column] = EXCHANGE) -> int:
        path = capture_of(exchanges, tmp_path / "capture")
        rows = []
        for sink in (JsonLines, CsvLines):
            lines, number = written(path, sink, columns, by_core=True)
            with without_core():
                expected, none = written(path, sink, columns, by_core=False)
            assert none == 0
            assert lines.splitlines() == expected.splitlines()
            rows.append(number)
        assert rows[0] == rows[1]
        assert same_batches(path, monkeypatch)[1] <= rows[0]
        plain, number = same_batches(path, monkeypatch, ["exchanges"])
        fetches = sum(batch["api"].to_pylist().count("Fetch") for batch in plain)
        assert rows[0] - fetches <= number <= rows[0]  # those of replicas are left to Python
        return rows[0]

    return check


TAKEN = sorted(
    api.name
    for api in apis.all_apis()
    if schema.request(api.key) is not None
    and schema.response(api.key) is not None
    and core.is_used
    and native_row(api.key, versions(api.name)[1] - 1) is not None
)


def test_most_apis_are_taken() -> None:
    assert len(TAKEN) > 60
    assert {"Produce", "Fetch", "Metadata", "FindCoordinator", "OffsetCommit", "Heartbeat"} < {*TAKEN}
    assert {"JoinGroup", "SyncGroup", "CreateTopics", "AlterConfigs", "DescribeConfigs"} < {*TAKEN}
    assert not {"SaslAuthenticate", "Envelope", "AlterUserScramCredentials"} & {*TAKEN}


@pytest.mark.parametrize("api", TAKEN)
def test_random_bodies(api: str, compare: Any) -> None:
    exchanges = []
    for version in range(*versions(api)):
        random = Random(f"rows {api} {version}")
        if undecoded(apis.find(api).key, version) is None:
            continue
        for _ in range(2 * TIMES):
            raws = [
                encoder(message, version)(
                    usual(
                        message.fields,
                        version,
                        random_body(
                            layout(message, version), random, letters=random.choice([LETTERS, "abc"])
                        ),
                        random,
                    )
                )
                for message in messages(api)
            ]
            exchanges.append(exchange_of(api, version, raws))
    compare(exchanges)


def test_bytes_of_kafkas_own_classes(compare: Any) -> None:
    exchanges = []
    for api in TAKEN:
        for version in range(*versions(api))[0 if IS_DEEP else -1 :]:
            requests, responses = (
                [
                    each.raw
                    for place, result in vectors()[message.name].items()
                    if (place.version, place.draft) == (version, None)
                    for each in result[:1]
                ]
                for message in messages(api)
            )
            exchanges += [exchange_of(api, version, raws) for raws in zip(requests, responses, strict=True)]
    assert compare(exchanges) > len(exchanges) / 3


def test_any_columns_in_any_order(compare: Any) -> None:
    exchanges = [exchange_of("Heartbeat", 0, [b"\0\1g\0\0\0\1\0\1m", b"\0\0"])] * 30
    random = Random(1)
    for _ in range(5):
        names = random.sample(sorted(BY_NAME), random.randrange(2, 9))
        assert compare(exchanges, selected(names)) > 0


def test_columns_that_are_left_to_python() -> None:
    assert are_known(EXCHANGE)
    assert not are_known(selected(["time", "anomalies.kind"]))
    assert not are_known(selected(["time", "tcp_stream"]))
    assert not are_known(selected(["time", "time"]))
    assert not FieldLines(io.StringIO(), selected(["time"]), str).core_plan
    assert not CsvLines(io.BytesIO().write, is_terminal=True).core_plan


@pytest.mark.parametrize("capture", captures()[:: 1 if IS_DEEP else 6], ids=name_of)
def test_batches_of_samples(capture: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    same_batches(capture, monkeypatch)
    same_batches(capture, monkeypatch, rows=4)  # some are full between two partitions of an exchange
    same_batches(capture, monkeypatch, ["exchanges", "partitions"], bytes=2000)


def test_names_that_were_learned_before(monkeypatch: pytest.MonkeyPatch) -> None:
    """Requests of this client have topic IDs. With a first pass, as many are usual."""
    path = next(path for path in captures() if name_of(path) == "kafka-4-basics")
    batches, number = same_batches(path, monkeypatch, WITHOUT_LOG, learned=learned_from([path], Options()))
    assert number >= same_batches(path, monkeypatch, WITHOUT_LOG)[1] > 60
    fetches = [row for batch in batches for row in batch.to_pylist() if row["api"] == "Fetch"]
    assert sum(row["api_version"] >= 13 and row["topics"] != [] for row in fetches) >= 5


def test_batches_are_as_small_as_without_the_core(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    exchanges = [exchange_of("Heartbeat", 0, [b"\0\1g\0\0\0\1\0\1m", b"\0\0"])] * 300
    path = capture_of(exchanges, tmp_path / "capture")
    for settings, rows in (({"rows": 7}, 7), ({"bytes": 10_000}, 20), ({"bodies": "none"}, 302)):
        batches, number = same_batches(path, monkeypatch, WITHOUT_LOG, **settings)
        assert number >= 300
        assert rows / 2 < max(batch.num_rows for batch in batches) <= rows


def test_batches_with_any_columns(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    exchanges = [exchange_of("Heartbeat", 0, [b"\0\1g\0\0\0\1\0\1m", b"\0\0"])] * 30
    path = capture_of(exchanges, tmp_path / "capture")
    names = [column.name for column in columns_of("exchanges")]
    random = Random(1)
    for _ in range(5):
        some = random.sample(names, random.randrange(1, 9))
        assert same_batches(path, monkeypatch, WITHOUT_LOG, columns=some)[1] >= 30


def test_exports_have_the_same_files(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """Row groups end at the same rows, files at the same sizes, and some exchanges are left to Python."""
    beat = exchange_of("Heartbeat", 0, [b"\0\1g\0\0\0\1\0\1m", b"\0\0"])
    odd = exchange_of("Heartbeat", 0, [b"\0\1g\0\0\0\1\0\1m", b"\0\0more"])
    capture = capture_of([*[beat] * 500, odd, *[beat] * 500], tmp_path / "capture")
    counts = []
    settle = TableFiles.settle

    def counted(files: TableFiles) -> None:
        before = files.rows
        settle(files)
        counts.append(files.rows - before)

    monkeypatch.setattr(TableFiles, "settle", counted)
    results = []
    for is_used in (core.is_used, False):
        monkeypatch.setattr(core, "is_used", is_used)
        directory = tmp_path / str(is_used)
        status = run(
            capsys, "export", str(capture), "-o", str(directory), "--format", "parquet", "--rotate", "10KB",
            "-j", "1", "--tables", "exchanges,captures", "--limits", "export_rows=70",
        ).status  # fmt: skip
        assert status == OK
        paths = sorted((directory / "exchanges").glob("*.parquet"))
        files = [ParquetFile(path) for path in paths]
        groups = [[each.metadata.row_group(place) for place in range(each.num_row_groups)] for each in files]
        rows = [row for each in files for row in each.read().to_pylist()]
        described = json.loads((directory / "exchanges" / DIRECTORY / MANIFEST).read_text())
        results.append((rows, [[each.num_rows for each in group] for group in groups], described["rows"]))
        assert sum(counts) == (1002 if is_used else 0)
        counts.clear()
    assert results[0] == results[1]
    assert len(results[0][1]) > 2
    assert results[0][1][0][0] == 70


@pytest.mark.parametrize("compression", ["none", "gz", "zst"])
def test_exports_of_lines_have_the_same_files(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path, compression: str
) -> None:
    """Files end at the same lines: before and after some that are longer than what is written at once."""
    beat = exchange_of("Heartbeat", 0, [b"\0\1g\0\0\0\1\0\1m", b"\0\0"])
    commit = exchange_of("OffsetCommit", 0, [b"\0\1g\0\0\0\1\0\1t\0\0\0\0", b"\0\0\0\1\0\1t\0\0\0\0"])
    metadata = exchange_of("Metadata", 0, [b"\0\0\0\0", bytes(4) + b"\0\0\x03\xe8" + 1000 * TOPIC])
    odd = exchange_of("Heartbeat", 0, [b"\0\1g\0\0\0\1\0\1m", b"\0\0more"])
    some = [*[beat, commit] * 200, metadata, odd, metadata, *[beat] * 20]
    capture = capture_of([*some, *some], tmp_path / "capture")
    results = []
    for is_used in (core.is_used, False):
        monkeypatch.setattr(core, "is_used", is_used)
        directory = tmp_path / str(is_used)
        status = run(
            capsys, "export", str(capture), "-o", str(directory), "--rotate", "10KB", "-j", "1",
            "--compress", compression,
        ).status  # fmt: skip
        assert status == OK
        results.append(
            {each.relative_to(directory): each.read_bytes() for each in sorted(directory.glob("*/part-*"))}
        )
    assert results[0] == results[1]
    assert len(results[0]) > (10 if compression == "none" else 8)


TOPIC = b"\0\0\0\7a-topic\0\0\0\0"
"""In a response to Metadata: an error code, a name, and no partitions."""


@pytest.mark.parametrize("form", ["parquet", "jsonl"])
def test_records_are_exported_in_the_same_order(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path, form: str
) -> None:
    """Rows of the core wait among exchanges that it leaves, and row groups and files end at the same rows."""
    path = next(path for path in captures() if name_of(path) == "kafka-4-cluster")
    results, moved = [], []
    release = TableFiles.release

    def counted(files: TableFiles, rows: int, *joined: Any) -> None:
        moved.append((rows, list(*joined)))
        release(files, rows, moved[-1][1])

    monkeypatch.setattr(TableFiles, "release", counted)
    for is_used in (core.is_used, False):
        monkeypatch.setattr(core, "is_used", is_used)
        directory = tmp_path / str(is_used)
        status = run(
            capsys, "export", str(path), "-o", str(directory), "--format", form, "-j", "1", "--records",
            "--rotate", "100KB", "--limits", "export_rows=70", "--limits", "export_bytes=60000",
        ).status  # fmt: skip
        assert status == OK
        if is_used:
            assert sum(rows for rows, _ in moved) > 1000
            assert any(latency_us is not None for _, joined in moved for *_, latency_us, _ in joined)
            moved.clear()
        else:
            assert not moved
        files = sorted(directory.glob("*/part-*"))
        results.append([(each.relative_to(directory), rows_of(each)) for each in files])
    assert results[0] == results[1]
    assert len(results[0]) > len(TABLES)


def rows_of(path: Path) -> Any:
    """The content of a file, with the sizes of its row groups."""
    if path.suffix != ".parquet":
        return path.read_bytes()
    file = ParquetFile(path)
    return [file.metadata.row_group(place).num_rows for place in range(file.num_row_groups)], file.read()


@pytest.mark.parametrize("tables", [",".join(TABLES), "exchanges,partitions"])
def test_exports_by_several_processes(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path, tables: str
) -> None:
    path = next(path for path in captures() if name_of(path) == "kafka-4-basics")
    results = []
    for is_used in (core.is_used, False):
        monkeypatch.setattr(core, "is_used", is_used)
        directory = tmp_path / str(is_used)
        options = ("-o", str(directory), "--format", "parquet", "-j", "2", "--tables", tables)
        assert run(capsys, "export", str(path), *options).status == OK
        files = sorted(directory.glob("*/*.parquet"))
        results.append([(str(each.relative_to(directory)), ParquetFile(each).read()) for each in files])
    assert results[0] == results[1]
