"""Responses before the first captured request of a connection, in every output. The sample kafka-4-lag from a
time on at which a request has no response yet, and the next one follows seconds later.
"""

from __future__ import annotations

import json
from itertools import pairwise
from typing import TYPE_CHECKING

import pytest

from kdissect.limits import DEFAULT
from kdissect.model import ORPHAN
from kdissect.pipeline import dissect
from samples.golden import ROOT
from tests.exports import json_rows
from tests.rings import packets_of, write
from tests.shared import say

if TYPE_CHECKING:
    from pathlib import Path

SAMPLE = ROOT / "samples" / "kafka-4-lag.pcap.gz"


@pytest.fixture(scope="module")
def capture(tmp_path_factory: pytest.TempPathFactory) -> Path:
    packets = packets_of(SAMPLE)
    of_connections: dict[str, list[tuple[int, int]]] = {}
    for exchange in dissect(packets):
        if exchange.response_frame is not None:
            times = of_connections.setdefault(exchange.connection.id, [])
            times.append((exchange.time_ns, exchange.response_frame.end_ns))
    begin_ns = next(
        sent_ns
        for times in of_connections.values()
        for (sent_ns, answered_ns), (next_ns, _) in pairwise(times)
        if next_ns - answered_ns > DEFAULT.reorder_window_ns
    )
    path = tmp_path_factory.mktemp("orphans") / "cut.pcapng"
    return write(path, [packet for packet in packets if packet.time_ns > begin_ns])


def test_each_has_its_own_time(capture: Path) -> None:
    times = {
        (each.connection.client, each.correlation_id): each.response_frame.end_ns
        for each in dissect(packets_of(SAMPLE))
        if each.response_frame is not None
    }
    orphans = [each for each in dissect(packets_of(capture)) if each.kind == ORPHAN]
    assert len(orphans) > 1
    for each in orphans:
        assert each.time_ns == times[each.connection.client, each.correlation_id]


def test_late_ones_are_marked_in_every_output(capture: Path, tmp_path: Path) -> None:
    in_json = [json.loads(line) for line in say("read", "--json", capture).out.splitlines()]
    late = [row for row in in_json if any(each["kind"] == "late" for each in row["anomalies"])]
    assert late
    assert {row["kind"] for row in late} == {"orphan"}
    lines = say("read", capture).out.decode().splitlines()
    assert [line.endswith("! late") for line in lines] == [row in late for row in in_json]
    assert f"late     note      {len(late):9}" in say("check", capture).out.decode()
    assert say("export", capture, "-o", tmp_path / "tables").status == 0
    exported = [row for row in json_rows(tmp_path / "tables" / "anomalies") if row["kind"] == "late"]
    keys = {(row["connection"], row["number"]) for row in late}
    assert {(row["connection"], row["number"]) for row in exported} == keys
    for way in (("-j", 3), ("--names", "window")):
        assert say("read", "--json", *way, capture).out == say("read", "--json", capture).out


def test_late_ones_are_marked_in_the_data_source(capture: Path) -> None:
    pytest.importorskip("pyspark")
    from tests.sources import rows

    in_json = [json.loads(line) for line in say("read", "--json", capture).out.splitlines()]
    late = sum(any(each["kind"] == "late" for each in row["anomalies"]) for row in in_json)
    assert late
    assert sum("'kind': 'late'" in row for row in rows(capture, "anomalies").elements()) == late
