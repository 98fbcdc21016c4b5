"""Which compressed batches of a connection are opened does not depend on how the capture is read: by one
process or several, parts of a shuffle, or with a filter.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from kdissect.limits import DEFAULT, Limits
from tests.cli.commands import run
from tests.frames import PRODUCE, request, response
from tests.record_batches import Item, batch
from tests.segments import Talk
from tests.shuffling import alone, counted, cut_up, decoded

if TYPE_CHECKING:
    from collections import Counter
    from pathlib import Path

TABLES = ("records",)
ZSTD, VERSION = 4, 9
EXCHANGES, FIRST, ALWAYS, VALUE = 30, 10, 30_000, 20_000
LIMITS = Limits(inflated_always_bytes=ALWAYS, inflated_always_exchanges=FIRST, inflated_ratio=10)
OPTIONS = (
    "--limits",
    f"inflated_always_bytes={ALWAYS},inflated_always_exchanges={FIRST},inflated_ratio=10",
)
OPENED = set(range(1, FIRST * ALWAYS // (VALUE + 20) + 1))
"""Numbers of the exchanges whose batch is within what is left: 30,000 bytes, from the tenth on less."""


@pytest.fixture(scope="module")
def names(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """Several connections at the same time, each with batches of one small bomb."""
    talks = [Talk(("10.0.0.1", 40_000 + number), step_ns=3_000_000).handshake() for number in range(5)]
    for number in range(1, EXCHANGES + 1):
        records = batch([Item(b"key", bytes(VALUE))], codec=ZSTD)
        partition = {"index": number % 3, "records": records}
        body = {"acks": -1, "topic_data": [{"name": "bombs", "partition_data": [partition]}]}
        for talk in talks:
            talk.client_sends(request(PRODUCE, VERSION, body, correlation_id=number))
            talk.broker_sends(response(PRODUCE, VERSION, {}, correlation_id=number))
    packets = sorted((packet for talk in talks for packet in talk.packets), key=lambda packet: packet.time_ns)
    return cut_up(packets, tmp_path_factory.mktemp("bombs") / "ring", 2)


def opened(tables: dict[str, Counter[bytes]]) -> dict[str, set[int]]:
    """By connection, the exchanges of which there are records."""
    numbers: dict[str, set[int]] = {}
    for line in tables["records"]:
        row = json.loads(line)
        numbers.setdefault(row["connection"], set()).add(row["number"])
    return numbers


def test_everyone_opens_the_same(
    names: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    alone(names, tmp_path / "alone", LIMITS, tables=TABLES)
    decoded(names, tmp_path / "parts", limits=LIMITS, tables=TABLES)
    ways = [counted(tmp_path / way) for way in ("alone", "parts")]
    assert set(map(len, opened(ways[0]).values())) == {len(OPENED)}
    assert all(numbers == OPENED for numbers in opened(ways[0]).values())
    assert ways[1] == ways[0]
    output = tmp_path / "processes"
    assert run(capsys, "export", "-o", str(output), "--tables", *TABLES, "-j2", *OPTIONS, *names).status == 0
    assert opened(counted(output)) == opened(ways[0])
    assert run(capsys, "records", "--json", *OPTIONS, *names).out.count('"key":') == 5 * len(OPENED)


def test_a_filter_opens_no_more(names: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    for shown in (3, FIRST, max(OPENED), max(OPENED) + 1, EXCHANGES):
        lines = run(capsys, "records", "--json", "-Y", f"correlation_id == {shown}", *OPTIONS, *names).lines
        assert len(lines) == (5 if shown in OPENED else 0)


def test_without_these_limits_all_are_opened(names: list[str], tmp_path: Path) -> None:
    alone(names, tmp_path, DEFAULT, tables=TABLES)
    assert all(len(numbers) == EXCHANGES for numbers in opened(counted(tmp_path)).values())
