"""``kdissect.read`` and ``summarize``: the same exchanges, tables and documents as those of the commands."""

from __future__ import annotations

import gc
import json
import sys
from inspect import signature
from typing import TYPE_CHECKING

import polars as pl
import pyarrow as pa
import pytest

import kdissect
from kdissect.cli.terminal import OK
from kdissect.errors import UsageError
from kdissect.limits import Limits
from kdissect.tables.columns import BY_NAME, EXCHANGE
from samples.golden import ROOT
from tests.cli.commands import run
from tests.exchange_factory import exchange

if TYPE_CHECKING:
    from pathlib import Path

SAMPLE = "samples/quickstart.pcap"
UNANSWERED = "samples/unanswered.pcap"
WHERE = 'api == "Fetch" and records > 0'
DIRECT = ("connection", "capture", "time", "anomalies", "proxy", "errors", "expected_errors")
"""Attributes of a type that their column does not have."""


@pytest.fixture(autouse=True)
def in_the_tree(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)


def printed(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    done = run(capsys, *arguments)
    assert done.status == OK
    return done.out


def rows(capsys: pytest.CaptureFixture[str], *arguments: str) -> list[dict[str, object]]:
    lines = printed(capsys, "read", "--json", *arguments).splitlines()
    return [json.loads(line) for line in lines]


def test_exchanges_are_those_of_the_command(capsys: pytest.CaptureFixture[str]) -> None:
    exchanges = kdissect.read(SAMPLE)
    expected = rows(capsys, SAMPLE)
    assert [each.to_dict() for each in exchanges] == expected
    assert [each.to_dict() for each in exchanges] == expected  # the capture is read anew
    assert list(expected[0]) == [column.name for column in EXCHANGE]


def test_where_selects(capsys: pytest.CaptureFixture[str]) -> None:
    chosen = kdissect.read(ROOT / SAMPLE, where=WHERE)
    expected = rows(capsys, "-Y", WHERE, str(ROOT / SAMPLE))
    assert 0 < len(expected) < 75
    assert [each.to_dict() for each in chosen] == expected
    assert chosen.to_arrow(["connection", "number"]).read_all().to_pylist() == [
        {name: each[name] for name in ("connection", "number")} for each in expected
    ]


def test_several_captures_are_merged(capsys: pytest.CaptureFixture[str]) -> None:
    both = [SAMPLE, UNANSWERED]
    assert [each.to_dict() for each in kdissect.read(both)] == rows(capsys, *both)


def test_names_of_topics_that_come_later(capsys: pytest.CaptureFixture[str]) -> None:
    capture = "samples/midstream.pcap"
    whole = [each.to_dict() for each in kdissect.read(capture, names="whole")]
    assert whole == rows(capsys, "--names", "whole", capture)


@pytest.mark.parametrize("capture", [SAMPLE, UNANSWERED, "samples/kafka-4-latecomer.pcap.gz"])
def test_columns_are_attributes(capture: str) -> None:
    for each in kdissect.read(capture):
        for name, column in BY_NAME.items():
            value = getattr(each, name)
            if name not in DIRECT:
                assert value == column.get(each), name
        row = each.to_dict()
        assert str(each.connection) == row["connection"]
        assert each.time is not None
        assert each.time.isoformat(timespec="microseconds").replace("+00:00", "Z") == row["time"]
        assert [anomaly._asdict() for anomaly in each.anomalies] == row["anomalies"]


def test_arrow_tables_have_the_rows_of_the_command(capsys: pytest.CaptureFixture[str]) -> None:
    table = kdissect.read(SAMPLE).to_arrow().read_all()
    expected = rows(capsys, SAMPLE)
    assert table.column_names == list(BY_NAME)
    for row, line in zip(table.to_pylist(), expected, strict=True):
        row["time"] = row["time"].isoformat(timespec="microseconds").replace("+00:00", "Z")
        for body in ("request", "response"):
            row[body] = None if row[body] is None else json.loads(row[body])
        assert row == line


def test_batches_are_read_one_by_one() -> None:
    exchanges = kdissect.read(SAMPLE, limits=Limits(export_rows=10))
    reader = exchanges.to_arrow(["api"])
    sizes = [batch.num_rows for batch in reader]
    assert sum(sizes) == 75
    assert max(sizes) == 10


def test_data_frames() -> None:
    exchanges = kdissect.read(SAMPLE, where='api == "Produce"')
    frame = exchanges.to_pandas(["time", "client_id", "latency_us"])
    assert list(frame.columns) == ["time", "client_id", "latency_us"]
    assert str(frame["time"].dtype) == "datetime64[us, UTC]"
    assert len(frame) == len(exchanges.to_polars()) == len(list(exchanges))
    assert pl.DataFrame(exchanges).columns == list(BY_NAME)
    assert pa.table(exchanges)["api"].to_pylist() == frame["latency_us"].map(lambda _: "Produce").tolist()


def test_summaries_are_those_of_the_command(capsys: pytest.CaptureFixture[str]) -> None:
    from kdissect.tables.values import json_document

    expected = json.loads(printed(capsys, "summary", "--json", SAMPLE))
    summary = kdissect.summarize(SAMPLE, parts=["findings"])
    assert isinstance(summary, kdissect.Summary)
    document = json.loads(json_document(summary))
    for name in ("findings", "quality_findings"):
        assert (document.pop(name), expected.pop(name)) == ([], None)
    assert document == expected
    fetches = kdissect.summarize(kdissect.read(SAMPLE, where='api == "Fetch"'))
    assert [each.api for each in fetches.apis or ()] == ["Fetch"]
    assert fetches.lag is not None


def test_damage_is_a_warning(tmp_path: Path) -> None:
    cut = tmp_path / "cut.pcap"
    cut.write_bytes((ROOT / SAMPLE).read_bytes()[:-10])
    with pytest.warns(UserWarning, match="cut.pcap") as caught:
        assert len(list(kdissect.read(cut))) > 70
    assert caught[0].filename == __file__


def test_mistakes_are_named(tmp_path: Path) -> None:
    with pytest.raises(kdissect.CaptureError, match="no such file"):
        list(kdissect.read(tmp_path / "missing.pcap"))
    with pytest.raises(kdissect.CaptureError, match="no capture files"):
        kdissect.read(tmp_path)
    with pytest.raises(UsageError, match='no column "apy"; did you mean "api_key"'):
        kdissect.read(SAMPLE, where='apy == "Fetch"')
    with pytest.raises(UsageError, match='no column "latency"; did you mean "latency_us"'):
        kdissect.read(SAMPLE).to_pandas(["latency"])
    with pytest.raises(UsageError, match=r"dissect\(open_capture"):
        kdissect.read("-")
    with pytest.raises(UsageError, match="no capture given"):
        kdissect.read([])
    with pytest.raises(UsageError, match='"whole" or "window"'):
        kdissect.read(SAMPLE, names="all")
    with pytest.raises(UsageError, match=r"kdissect\.read\('x\.pcap'\)"):
        kdissect.dissect("x.pcap")  # type: ignore[arg-type]


@pytest.mark.parametrize("package", ["pyarrow", "pandas", "polars"])
def test_a_missing_package_is_named(package: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    method = "arrow" if package == "pyarrow" else package
    with pytest.raises(UsageError, match=f"to_{method} needs {package}: pip install {package}"):
        getattr(kdissect.read(SAMPLE), f"to_{method}")()


def test_what_is_not_read_to_its_end_is_closed() -> None:
    for _ in kdissect.read(SAMPLE):
        break
    gc.collect()  # an unclosed file would be an error here


def test_reprs_are_short() -> None:
    exchanges = kdissect.read(SAMPLE, where=WHERE)
    assert repr(exchanges) == f"<Exchanges of '{SAMPLE}' where {WHERE}>"
    first = next(iter(exchanges))
    assert repr(first) == (
        f"<Exchange {first.connection.id}/{first.number}, {first.time}: Fetch v16 from 'shipping-1', "
        f"{first.latency_us} us>"
    )
    assert "\x1b" not in repr(exchange(client_id="evil\x1b]0;x\x07", request={}))
    for function in (kdissect.read, kdissect.dissect, kdissect.summarize, kdissect.open_capture):
        assert len(str(signature(function))) < 700
    assert repr(Limits(connections=5)) == "Limits(connections=5)"


def test_notebooks_show_a_table() -> None:
    shown = exchange(client_id="<script>", request={"topics": [{"name": "x" * 200_000}]})._repr_html_()
    assert shown.startswith("<table><tr><th>capture</th><td>test.pcap</td></tr>")
    assert "&lt;script&gt;" in shown
    assert "<script>" not in shown
    assert "more characters</pre>" in shown
    assert len(shown) < 40_000
