"""Counts of Spark's tasks are those of one process. Most of it without Spark: the tasks run here."""

from __future__ import annotations

from collections import Counter
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from kdissect.capture.reader import open_capture
from kdissect.cli.spark import summary as module
from kdissect.cli.terminal import OK, USAGE
from kdissect.errors import SparkError
from kdissect.limits import DEFAULT
from kdissect.options import Options
from kdissect.pipeline import Dissection
from kdissect.runs.run import Totals
from kdissect.spark.session import SparkTarget, session
from kdissect.spark.tallies import tally
from kdissect.spark.values import from_json, to_json
from kdissect.stats.summarizer import PARTS, Summarizer
from kdissect.tables.columns import filter_of
from kdissect.tables.values import json_document
from tests.cli.commands import Run, run
from tests.depth import IS_DEEP
from tests.shuffling import CORES, Tasks, cut_up

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import SparkSession

    from kdissect.sinks.tallies import Tallies

    Commands = Callable[..., tuple[Run, Run]]

SAMPLES = Path(__file__).parents[2] / "samples"
BASICS, QUICKSTART = str(SAMPLES / "kafka-4-basics.pcap"), str(SAMPLES / "quickstart.pcap")
TROUBLES = [str(SAMPLES / "troubles" / f"{name}.pcap.gz") for name in ("loss", "refusals", "waits")]
NAMES = (
    ("**/*",)
    if IS_DEEP
    else ("troubles/*", "mock-rebalance", "kafka-4-transactions", "kafka-4-lag", "odd-clients")
)
MANY = sorted(path for name in NAMES for path in SAMPLES.glob(f"{name}.pcap*"))
ALL = "--findings", "--groups", "--lag", "--versions", "--transactions", "--connections"


@pytest.fixture
def both(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Commands:
    """Runs ``summary`` with some arguments, then ``spark summary`` in as many tasks as there are cores."""
    monkeypatch.setattr(module, "session", lambda *_: nullcontext(Tasks()))

    def run_both(*arguments: str) -> tuple[Run, Run]:
        one = run(capsys, "summary", *arguments)
        return one, run(capsys, "spark", "summary", "--tasks", str(CORES), *arguments)

    return run_both


def counted(*paths: Path) -> Tallies[Any, Any]:
    sink = everything()
    for path in paths:
        with open_capture(path) as capture:
            dissection = Dissection(capture.packet_blocks(), Options(), observer=sink.connections)
            for _ in dissection.into(sink):
                pass
    sink.close()
    return sink


def everything() -> Tallies[Any, Any]:
    summarizer = Summarizer(
        parts=frozenset(PARTS), by=frozenset({"partition", "group"}), interval_ns=10_000_000_000
    )
    return summarizer.sink(Options(), filter_of(Options()))


def documents(sink: Tallies[Any, Any]) -> tuple[bytes, ...]:
    """The summary, and what is known of the connections."""
    totals = Totals(Counter(), Counter(), [], [], [], None, unreadable=False)
    return tuple(map(json_document, (sink.counts.close([], {}, {}), totals.check_document(sink.connections))))


def test_what_is_counted_of_samples_can_be_sent_and_merged() -> None:
    sink, copy = counted(*MANY), everything()
    copy.merge(from_json(to_json(sink.part())))
    assert documents(copy) == documents(sink)


def test_nothing_that_only_feeding_needs_is_sent() -> None:
    sink = counted(Path(QUICKSTART))
    summarizer, connections = from_json(to_json(sink.part()))
    assert type(summarizer) is Summarizer
    assert summarizer._waiting == []
    assert summarizer.records._make is None
    assert not hasattr(connections, "on_row")


@pytest.mark.parametrize(
    "options",
    [
        ("--json", *ALL, "--interval", "1s"),
        ("--json", "--by", "client,topic"),
        ("--api", "Fetch", "--by", "partition"),
        ("--slower-than", "1ms", "--findings", "--json"),
        ("--where", "api == 'Produce'", "--json"),
        ("--order-by", "bytes", "--max-rows", "3"),
    ],
    ids="_".join,
)
def test_the_same_page_and_document(both: Commands, options: tuple[str, ...]) -> None:
    one, other = both(*options, BASICS, *TROUBLES)
    assert one.status == OK
    assert other == one


def test_the_same_of_a_damaged_capture_and_of_no_match(both: Commands, tmp_path: Path) -> None:
    damaged = tmp_path / "damaged.pcap"
    damaged.write_bytes(Path(BASICS).read_bytes()[:-3])
    one, other = both("--json", str(damaged), QUICKSTART)
    assert "ends in the middle of" in one.err
    assert other == one
    one, other = both("--topic", "lat", BASICS)
    assert 'no topic "lat"; did you mean "late"?' in one.err
    assert other == one


def test_the_page_of_report(capsys: pytest.CaptureFixture[str], both: Commands, tmp_path: Path) -> None:
    one, other = tmp_path / "one.html", tmp_path / "other.html"
    assert run(capsys, "report", QUICKSTART, "-o", str(one)).status == OK  # has no findings with exchanges
    done = run(capsys, "spark", "summary", QUICKSTART, "--tasks", str(CORES), "--html", str(other))
    assert (done.status, done.out) == (OK, "")
    assert other.read_bytes() == one.read_bytes()
    assert oct(other.stat().st_mode & 0o777) == "0o600"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["-"], "workers cannot read stdin; use kdissect summary -"),
        ([QUICKSTART, "--html", "x.html", "--json"], "--html writes all parts of the summary; leave out"),
        ([QUICKSTART, "--html", "x.pcap"], "which is the name of a capture"),
        ([QUICKSTART, "--where", "tcp_stream == 1"], "tcp_stream is not available on Spark"),
        ([str(SAMPLES / "missing.pcap")], "missing.pcap: no such file"),
    ],
)
def test_mistakes(
    capsys: pytest.CaptureFixture[str], both: Commands, arguments: list[str], message: str
) -> None:
    done = run(capsys, "spark", "summary", *arguments)
    assert (done.status, done.out) == (USAGE, "")
    assert message in done.err


@pytest.mark.parametrize("tasks", ["1", "3"])
def test_with_spark(
    capsys: pytest.CaptureFixture[str], spark: SparkSession, tasks: str, tmp_path: Path
) -> None:
    with open_capture(BASICS) as capture:
        ring = cut_up(list(capture), tmp_path / "ring", 5)
    options = "--json", *ALL, "--interval", "1s", *ring, *TROUBLES
    one = run(capsys, "summary", *options)
    assert run(capsys, "spark", "summary", "--tasks", tasks, *options) == one


class Failing(Summarizer):
    """Cannot be made again in a task."""

    def __reduce__(self) -> tuple[Any, ...]:
        return int, ("a task failed",)


def test_a_task_that_fails(spark: SparkSession) -> None:
    sink = Failing(DEFAULT).sink(Options(), filter_of(Options()))
    with pytest.raises(SparkError, match="a task failed"), session(SparkTarget()) as running:
        tally(running, [QUICKSTART], Options(), sink)
