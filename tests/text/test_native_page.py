"""The native core writes lines of exchanges in place of Python: the same, in the same order."""

from __future__ import annotations

import io
from random import Random
from typing import TYPE_CHECKING, Any

import pytest

from benchmarks import traffic
from benchmarks.traffic import MIXED, make
from kdissect.limits import DEFAULT, Limits
from kdissect.options import Options
from kdissect.pipeline import Dissection
from kdissect.sinks.lines import Lines
from kdissect.sinks.rows import Rows
from kdissect.sinks.sink import Demand
from kdissect.tables.columns import EXCHANGE
from kdissect.tables.lines import CsvLines, FieldLines, JsonLines
from kdissect.text.style import COLORED, PLAIN, Times
from kdissect.text.table import ExchangeTable
from tests.captures import pcap, pcapng
from tests.core import NEEDS_CORE, without_core
from tests.depth import IS_DEEP
from tests.sinks import taken
from tests.tables.test_native_rows import capture_of, exchange_of
from tests.test_lending import BUSY, SEEDS, blocks_of, damaged, mixed, timed

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

pytestmark = NEEDS_CORE

TIMES = ["ud", "u", "e", "a", "ad", "r", "d", "dd"]
ROWS: dict[str, Callable[[io.TextIOWrapper], JsonLines | CsvLines | FieldLines]] = {
    "json": lambda text: JsonLines(text.buffer.write),
    "csv": lambda text: CsvLines(text.buffer.write),
    "fields": lambda text: FieldLines(text, EXCHANGE),
}
FORMS = [*TIMES, *ROWS]
HEADER = bytes([0, 19, 0, 5, 0, 0, 0, 7, 0, 1, 99])
REJECTIONS = [b"", bytes(4), b"\0\0\0\1\0\x12\0\0\0\3", b"\1\0\x12\0\0\0\2\0\0\0\0"]
TALKS = BUSY if IS_DEEP else ["kafka-4-transactions", "midstream", "quickstart"]


def written(blocks: Sequence[Any], form: str, limits: Limits, *, by_core: bool) -> tuple[list[Any], int]:
    """The lines and what else is known at the end; how many lines the core wrote."""
    out = io.BytesIO()
    text = io.TextIOWrapper(out, "utf-8", newline="", write_through=True)
    demand = Demand(has_latency_parts=form in ROWS, selects_all=by_core)
    sink = (
        Rows(ROWS[form](text), demand)
        if form in ROWS
        else Lines(ExchangeTable(text, Times(form, first_ns=1_790_000_000_000_000_000)), demand)
    )
    dissection = Dissection(blocks, Options(limits=limits), split_latency=form in ROWS)
    rows = taken(dissection, sink)
    lines = out.getvalue().split(b"\n")
    return [lines, dissection.counts, dissection.skipped, dissection.noticed, dissection.now_ns], rows


@pytest.fixture
def compare(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Compares lines with and without the core. Returns how many lines the core wrote."""

    def check(blocks: Sequence[Any], form: str = "ud", limits: Limits = DEFAULT) -> int:
        result, rows = written(blocks, form, limits, by_core=True)
        with without_core():
            expected, none = written(blocks, form, limits, by_core=False)
        assert none == 0
        for own, other in zip(result, expected, strict=True):
            assert own == other
        return rows

    return check


def test_damaged_samples_in_turn(compare: Any, tmp_path: Path) -> None:
    for seed in range(SEEDS):
        random = Random(f"page {seed}")
        packets = damaged(mixed(TALKS, random), random)
        compare(blocks_of(random.choice((pcap, pcapng))(packets), tmp_path), random.choice(FORMS))


def test_connections_that_open_and_close(
    compare: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nearly always one waits for something, so exchanges of all others are held and sorted."""
    if not IS_DEEP:
        monkeypatch.setattr(traffic, "_AT_A_TIME", 6)
    contents = make(MIXED, tmp_path / "mixed", 1)
    packets = timed(tmp_path / "mixed")
    for form in ("ud", "json"):
        assert compare(blocks_of(pcap(packets), tmp_path), form) > contents.exchanges / 3


def test_bodies_that_are_taken(compare: Any, tmp_path: Path) -> None:
    """Bytes after a body, ApiVersions that a broker does not support, and forwarded messages."""
    software = bytes([7, *b"client", 2, *b"1", 0])
    forwarded = bytes([len(HEADER) + 1, *HEADER, 0, 5, 10, 0, 0, 1, 0])
    exchanges = [
        exchange_of("Metadata", 13, [b"\1\0\0\0", bytes(4) + b"\1\0" + bytes(4) + b"\1" + bytes(4)]),
        exchange_of("Heartbeat", 3, [b"\0\1g\0\0\0\5\0\1m\xff\xff!", bytes(4) + b"\0\x1b"]),
        *(exchange_of("ApiVersions", 3, [software, b"\0\x23" + rest]) for rest in REJECTIONS),
        exchange_of("Envelope", 0, [forwarded, bytes([7]) + bytes(6) + bytes(3)]),
        exchange_of("Envelope", 0, [forwarded, bytes(1) + b"\0\x29\0"]),
    ]
    path = capture_of(exchanges * 2, tmp_path / "taken.pcap")
    blocks = blocks_of(path.read_bytes(), tmp_path)
    assert compare(blocks) == 2 + 2 * len(exchanges)
    compare(blocks, "json")


@pytest.mark.parametrize(
    "limits", [{"order_rows": 20}, {"order_rows": 0}, {"order_bytes": 5000}, {"naming_rows": 1}], ids=str
)
def test_limits_of_what_is_held(limits: dict[str, int], compare: Any, tmp_path: Path) -> None:
    random = Random(f"{limits}")
    packets = mixed(TALKS, random)
    assert compare(blocks_of(pcap(packets), tmp_path), limits=Limits(**limits))
    compare(blocks_of(pcap(damaged(packets, random)), tmp_path), limits=Limits(**limits))


def test_times_that_go_back(compare: Any, tmp_path: Path) -> None:
    """Those of each connection rise. The clocks of two interfaces can differ."""
    random = Random(5)
    packets = mixed(TALKS, random)
    ahead = {name: random.choice((0, 700_000, 40_000_000)) for name in range(len(TALKS))}
    shifted = [(time_ns + ahead.get(data[28], 0), data) for time_ns, data in packets]
    assert len({time_ns for time_ns, _ in packets} - {time_ns for time_ns, _ in shifted}) > 100
    assert compare(blocks_of(pcap(shifted), tmp_path))


@pytest.mark.parametrize("connections", [1, 5, 30])
def test_chatty_clients(connections: int, compare: Any, tmp_path: Path) -> None:
    contents = make("chatty", tmp_path / "chatty", 200_000, connections=connections)
    packets = timed(tmp_path / "chatty")
    for form in ("ud", *ROWS):
        assert compare(blocks_of(pcap(packets), tmp_path), form) > contents.exchanges / 2
    for seed in range(SEEDS):
        random = Random(f"{connections} {seed}")
        blocks = blocks_of(random.choice((pcap, pcapng))(damaged(packets, random)), tmp_path)
        compare(blocks, random.choice(FORMS))


def test_only_plain_tables_are_left_to_the_core() -> None:
    def are_plain(times: str = "ud", **settings: Any) -> bool:
        return ExchangeTable(io.StringIO(), Times(times, first_ns=0), **settings).core_plan is not None

    assert all(are_plain(name) for name in TIMES)
    assert are_plain(heading=True, style=PLAIN)
    assert not ExchangeTable(io.StringIO(), Times("r")).core_plan  # what times count from comes first
    assert not are_plain(width=80)
    assert not are_plain(style=COLORED)
    assert not are_plain(by_request=True)
