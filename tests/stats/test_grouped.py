"""``summary --by client,topic``: counts are those of ``spark report``, which computes them from tables."""

from __future__ import annotations

import json
from functools import cache
from typing import TYPE_CHECKING, Any

import pytest

from kdissect.cli.main import main
from kdissect.cli.terminal import OK, USAGE
from kdissect.stats.grouped import columns_of
from samples.pages import shown
from tests.cli.commands import run
from tests.shared import summary

if TYPE_CHECKING:
    from pathlib import Path

CLUSTER, MIDSTREAM = "samples/kafka-4-cluster.pcap.gz", "samples/midstream.pcap"


@pytest.fixture(scope="module")
def tables(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("grouped") / "tables"
    assert main(["export", "--bodies", "none", CLUSTER, "-o", str(directory)]) == OK
    return directory


def document(*options: str, capture: str = CLUSTER) -> dict[str, Any]:
    done = summary(*options, capture)
    assert done.status == OK
    result: dict[str, Any] = json.loads(done.out)
    return result


known_document = cache(document)


def reported(capsys: pytest.CaptureFixture[str], tables: Path, name: str, by: str) -> list[dict[str, Any]]:
    done = run(
        capsys, "spark", "report", str(tables), "--engine", "duckdb", "--report", name, "--by", by, "--json"
    )
    return [json.loads(line) for line in done.lines]


@pytest.mark.parametrize("by", ["client,topic", "topic,api", "client,topic,partition", "connection,topic"])
def test_records(capsys: pytest.CaptureFixture[str], tables: Path, by: str) -> None:
    names = by.split(",")
    rows = known_document("--by", by)["records_by"]
    numbers = "produced_records", "produced_bytes", "produced_batches", "fetched_records", "fetched_bytes"
    ours = {tuple(row["by"].values()): [row[each] for each in (*numbers, "replicated_bytes")] for row in rows}
    theirs = {
        tuple(row[name] for name in names): [row[each] or 0 for each in (*numbers, "replicated_bytes")]
        for row in reported(capsys, tables, "throughput", by)
    }
    assert ours == theirs
    assert len(ours) > 5
    assert [list(row["by"]) for row in rows] == [names] * len(rows)
    volumes = [row["produced_bytes"] + row["fetched_bytes"] + row["replicated_bytes"] for row in rows]
    assert volumes == sorted(volumes, reverse=True)


@pytest.mark.parametrize("by", ["api,client", "broker,client", "connection,api"])
def test_exchanges(capsys: pytest.CaptureFixture[str], tables: Path, by: str) -> None:
    names = by.split(",")
    rows = known_document("--by", by)["exchanges_by"]
    ours = {tuple(row["by"].values()): (row["exchanges"], row["errors"]) for row in rows}
    theirs = {
        tuple(row[name] for name in names): (row["exchanges"], row["errors"])
        for row in reported(capsys, tables, "latency", by)
    }
    assert ours == theirs
    assert len(ours) > 10
    counts = [row["exchanges"] for row in rows]
    assert counts == sorted(counts, reverse=True)


@pytest.mark.usefixtures("with_core_and_without")
@pytest.mark.parametrize("by", ["client,topic", "api,client"])
def test_the_same_in_several_processes(by: str) -> None:
    """With the core and without, as one process with either."""
    assert document("--by", by, "-j", "2") == known_document("--by", by)


def test_rows_by_one_column_are_sums() -> None:
    by_both = document("--by", "client", "--by", "topic")["records_by"]
    for topic in document("--by", "topic")["topics"]:
        parts = [row for row in by_both if row["by"]["topic"] == topic["topic"]]
        assert sum(row["produced_bytes"] for row in parts) == topic["produced_bytes"]
        assert sum(row["fetched_batches"] for row in parts) == topic["fetched_batches"]
        assert max(row["partitions"] for row in parts) <= topic["partitions"]


def test_a_topic_that_is_named_later_is_one_row(tmp_path: Path) -> None:
    names = tmp_path / "names"
    names.write_text("WTlKInpRSfaderRrD6KIZw spread\n")
    for options, name in (((), "WTlKInpRSfaderRrD6KIZw"), (("--topic-ids", str(names)), "spread")):
        rows = document("--by", "topic,client", *options, capture=MIDSTREAM)["records_by"]
        assert name in {row["by"]["topic"] for row in rows}
    assert {row["by"]["topic"] for row in rows} == {"spread"}


def test_a_page() -> None:
    lines = shown(["summary", "--by", "topic,client", "--max-rows", "3", CLUSTER], 120).splitlines()
    place = lines.index("Topics, clients")
    assert lines[place + 2].split()[:4] == ["TOPIC", "CLIENT", "BYTES", "SHARE"]
    assert "RECORDS/BATCH" in lines[place + 2]
    assert lines[-1].endswith("of Topics, clients hidden; --wide shows all")
    by_bytes = shown(["summary", "--by", "client,api", "--order-by", "name", MIDSTREAM], 200)
    assert by_bytes.index("127.0.0.1") < by_bytes.index("reader") < by_bytes.index("source")


def test_a_full_table_counts_the_rest_together(capsys: pytest.CaptureFixture[str]) -> None:
    options = "--by", "client,topic", "--limits", "summary_rows=2"
    result = document(*options)
    assert len(result["records_by"]) == 2
    assert result["other"]["records_by"] > 0
    for jobs in ("1", "2"):
        done = run(capsys, "summary", *options, "-j", jobs, CLUSTER)
        assert "tables are full: further names are counted together; --limits summary_rows=N" in done.err


def test_columns() -> None:
    assert columns_of(["client", "partition", "client"]) == ("client", "topic", "partition")
    assert columns_of(["partition"]) == ("partition",)
    assert columns_of([]) == ()


@pytest.mark.parametrize(
    ("options", "error"),
    [
        (("--by", "clients,topic"), 'cannot group by "clients"; did you mean "client"?; known: api, client'),
        (("--by", "client,topic", "--interval", "1s"), "--interval and --sketches can be used with only one"),
    ],
)
def test_what_cannot_be(capsys: pytest.CaptureFixture[str], options: tuple[str, ...], error: str) -> None:
    done = run(capsys, "summary", *options, CLUSTER)
    assert (done.status, done.out) == (USAGE, "")
    assert error in done.err
