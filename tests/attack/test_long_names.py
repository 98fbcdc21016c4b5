"""Names of 32 KB, each once, in every place where one is kept: what tables keep of them stays small."""

from __future__ import annotations

import gc
import subprocess
import sys
from functools import cache
from shutil import rmtree
from types import BuiltinFunctionType, FunctionType, MethodType, ModuleType
from typing import TYPE_CHECKING, Any

import pytest

from kdissect import dissect
from kdissect.exchanges.learned import LearnedFacts
from kdissect.limits import DEFAULT, Limits
from kdissect.names import NAME_BYTES, Recent
from kdissect.options import Options
from kdissect.pipeline import Dissection
from kdissect.stats.connection_log import ConnectionFeed
from kdissect.stats.facts import Facts
from kdissect.stats.pulse import Pulse
from kdissect.stats.quantiles import Bounded
from kdissect.stats.summarizer import PARTS, Summarizer
from kdissect.stats.sums import values_of
from kdissect.stats.traffic import BY
from tests.attack.long_names import KINDS, traffic
from tests.captures import pcap
from tests.command_lines import COMMAND_LINES, OUT, PIPE, commands_that_read

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

SMALL = Limits(
    summary_rows=20, summary_buckets=20, summary_group_members=30, summary_group_partitions=30,
    summary_total_group_events=50, summary_group_listed=50, summary_total_transaction_events=50,
    fetch_session_partitions=40, topic_names=40, produced_batches=40, listeners=40, group_protocols=40,
    total_watermarks=40, top_rows=20, top_partitions=40, connections=40, export_bytes=1 << 20,
)  # fmt: skip
TOLERANCE_KIB = 8 * 1024  # the longer capture is 30 or 60 MB longer
ARROW_KIB = 8 * 1024  # its pools grow in steps, up to 15 MB while a capture grows to eight times its size
MAX_KIB = 300_000_000 // 1024
USUAL = ("read --json", "summary --findings", "export -o OUT")
"""Command lines that are measured every time."""


def inside(*tables: Any) -> Iterator[Any]:
    """Everything that these refer to, except code."""
    seen: set[int] = set()
    waiting = list(tables)
    while waiting:
        each = waiting.pop()
        if id(each) in seen or isinstance(
            each, type | ModuleType | FunctionType | MethodType | BuiltinFunctionType
        ):
            continue
        seen.add(id(each))
        yield each
        waiting += gc.get_referents(each)


def summarizer_of(kind: str, limits: Limits, number: int) -> Summarizer:
    summarizer = Summarizer(limits, by=frozenset(BY), parts=frozenset(PARTS), interval_ns=10**9)
    feed = summarizer.connection_feed(limits, filtered=False)
    dissection = Dissection(traffic(number, kind), Options(limits, kafka_ports=frozenset({9092})))
    dissection.observe(feed)
    for exchange in dissection:
        summarizer.feed(exchange)
        feed.exchange(exchange)
    feed.close()
    summarizer.settle()
    return summarizer


@pytest.mark.parametrize("kind", KINDS)
def test_no_table_of_a_summary_keeps_more_than_1_kb_of_a_name(kind: str) -> None:
    summarizer = summarizer_of(kind, DEFAULT, 6)
    names = [each for each in inside(summarizer) if isinstance(each, str)]
    assert max(len(name.encode(errors="surrogatepass")) for name in names) <= NAME_BYTES
    merged = summarizer_of(kind, DEFAULT, 3)
    merged.merge(summarizer)
    names = [each for each in inside(merged) if isinstance(each, str)]
    assert max(len(name.encode(errors="surrogatepass")) for name in names) <= NAME_BYTES


@pytest.mark.parametrize("kind", KINDS)
def test_the_tables_of_a_summary_count_bytes(kind: str) -> None:
    """Each table, as its class declares it, is as large after ten connections as after twenty."""
    sizes = []
    for number in (10, 20):
        tables = [each for each in values_of(summarizer_of(kind, SMALL, number)) if isinstance(each, Bounded)]
        assert tables
        sizes.append(sum(len(name) for each in inside(*tables) if isinstance(name := each, str)))
    assert sizes[1] < sizes[0] + 100_000
    assert sizes[1] < 1_000_000


@pytest.mark.parametrize("kind", KINDS)
def test_no_other_table_does(kind: str) -> None:
    pulse, learned = Pulse(SMALL), LearnedFacts(SMALL)
    dissection = Dissection(traffic(12, kind), Options(SMALL, kafka_ports=frozenset({9092})))
    log = ConnectionFeed(SMALL, pulse.connect, filtered=False)
    dissection.observe(log)
    for exchange in dissection:
        pulse.feed(Facts(exchange))
        log.exchange(exchange)
    pulse.now()
    Dissection(traffic(12, kind), Options(SMALL, kafka_ports=frozenset({9092}))).learn(learned)
    for table in (pulse, learned, log):
        names = [each for each in inside(table) if isinstance(each, str)]
        assert max(len(name.encode(errors="surrogatepass")) for name in names) <= NAME_BYTES
    recent = [each for each in inside(dissection, pulse) if isinstance(each, Recent)]
    assert len(recent) > 5
    for each in recent:
        names = [name for name in inside(each) if isinstance(name, str)]
        assert all(len(name.encode(errors="surrogatepass")) <= NAME_BYTES for name in names)


def test_rows_show_the_whole_name() -> None:
    exchange = next(iter(dissect(traffic(1, "client_ids"), kafka_ports=[9092])))
    assert exchange.client_id is not None
    assert len(exchange.client_id.encode()) > 30_000


MEASURED = """
import sys
from kdissect.cli.main import main
from tests.peak import peak_kib
sys.argv[0] = "kdissect"
status = main()
print(peak_kib(), file=sys.stderr)
sys.exit(status)
"""
ONE_PROCESS = {"read", "records", "summary", "report", "plot", "export", "live"}


def peak_kib_of(line: str, path: Path, out: Path, *more: str) -> int:
    """Peak memory of one of ``COMMAND_LINES`` on a capture, in one process."""
    command, *words = line.replace(OUT, str(out)).split()
    if command in ONE_PROCESS:
        more = (*more, "-j", "1")
    is_piped = words[-1:] == [PIPE]
    with path.open("rb") as capture:
        done = subprocess.run(
            [sys.executable, "-c", MEASURED, command, "-d", "tcp.port==9092,kafka", *more, *words]
            + ([] if is_piped else [str(path)]),
            stdin=capture if is_piped else subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            check=False,
        )
    assert done.returncode == 0, done.stderr[-1000:]
    rmtree(out, ignore_errors=True)
    return int(done.stderr.splitlines()[-1])


def test_every_command_is_measured() -> None:
    assert {line.split()[0] for line in COMMAND_LINES} == commands_that_read()


@pytest.mark.parametrize("pure", [False, pytest.param(True, marks=pytest.mark.deep)], ids=["core", "pure"])
@pytest.mark.parametrize(
    "line", [line if line in USUAL else pytest.param(line, marks=pytest.mark.deep) for line in COMMAND_LINES]
)
def test_twice_as_many_names_take_the_same_memory(
    line: str, pure: bool, capture_of: Callable[[int], Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With a tenth of the limits or less."""
    if pure:
        monkeypatch.setenv("KDISSECT_PURE", "1")
    limits = ",".join(f"{name}={getattr(SMALL, name)}" for name in vars_of(SMALL))
    few = 50 if line.startswith("check") else 25  # check fills its tables later
    out = tmp_path / "out"
    peaks = [peak_kib_of(line, capture_of(each), out, "--limits", limits) for each in (few, 2 * few)]
    assert peaks[1] < peaks[0] + TOLERANCE_KIB + ARROW_KIB * ("parquet" in line)


@pytest.fixture(scope="module")
def capture_of(tmp_path_factory: pytest.TempPathFactory) -> Callable[[int], Path]:
    """A capture of so many connections of each kind; 1.3 MB for each."""
    directory = tmp_path_factory.mktemp("names")

    @cache
    def written(number: int) -> Path:
        path = directory / f"{number}.pcap"
        path.write_bytes(pcap((packet.time_ns, packet.data) for packet in traffic(number)))
        return path

    return written


@pytest.mark.deep
@pytest.mark.parametrize("pure", [False, True], ids=["core", "pure"])
@pytest.mark.parametrize("line", COMMAND_LINES)
def test_every_command_stays_below_300_mb(
    line: str, pure: bool, capture_of: Callable[[int], Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the default limits."""
    if pure:
        monkeypatch.setenv("KDISSECT_PURE", "1")
    assert peak_kib_of(line, capture_of(250), tmp_path / "out") < MAX_KIB


def vars_of(limits: Limits) -> list[str]:
    """The limits that are not the default."""
    return [name for name in Limits.__slots__ if getattr(limits, name) != getattr(DEFAULT, name)]
