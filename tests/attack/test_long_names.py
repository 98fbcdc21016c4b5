"""Names of 32 KB, each once, in every place where one is kept: what tables keep of them stays small."""

from __future__ import annotations

import gc
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
from tests.attack.test_floods import measured
from tests.captures import pcap

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

SMALL = Limits(
    summary_rows=20, summary_buckets=20, summary_group_members=30, summary_group_partitions=30,
    summary_total_group_events=50, summary_group_listed=50, summary_total_transaction_events=50,
    fetch_session_partitions=40, topic_names=40, produced_batches=40, listeners=40, group_protocols=40,
    total_watermarks=40, top_rows=20, top_partitions=40, connections=40,
)  # fmt: skip
TOLERANCE_KIB = 8 * 1024  # the longer capture is 25 MB longer


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


COMMANDS: dict[str, tuple[str, ...]] = {
    "summary": ("summary", *(f"--{part}" for part in PARTS)),
    "check": ("check",),
    "read": ("read", "-q"),
    "records": ("records",),
    "story": ("story", "group:g"),
}


@pytest.mark.parametrize("pure", [False, pytest.param(True, marks=pytest.mark.deep)])
@pytest.mark.parametrize(
    "command",
    ["summary", *(pytest.param(each, marks=pytest.mark.deep) for each in COMMANDS if each != "summary")],
)
def test_twice_as_many_names_take_the_same_memory(
    command: str, pure: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if pure:
        monkeypatch.setenv("KDISSECT_PURE", "1")
    peaks = []
    limits = ",".join(f"{name}={getattr(SMALL, name)}" for name in vars_of(SMALL))
    few = 50 if command == "check" else 25  # check fills its tables later
    for number in (few, 2 * few):
        path = tmp_path / f"{number}.pcap"
        path.write_bytes(pcap((packet.time_ns, packet.data) for packet in traffic(number)))
        peaks.append(measured(path, *COMMANDS[command], "-d", "tcp.port==9092,kafka", "--limits", limits)[1])
    assert peaks[1] < peaks[0] + TOLERANCE_KIB


def vars_of(limits: Limits) -> list[str]:
    """The limits that are not the default."""
    return [name for name in Limits.__slots__ if getattr(limits, name) != getattr(DEFAULT, name)]
