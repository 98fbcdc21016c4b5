"""A task that reads a file and those before it reports each exchange of the file exactly once."""

from __future__ import annotations

from itertools import pairwise
from random import Random
from typing import TYPE_CHECKING

import pytest

from kdissect.spark.batches import columns_of
from kdissect.spark.datasource import Reader
from kdissect.spark.options import FILES, parse
from samples.golden import ROOT, captures, name_of
from tests.damage import DAMAGES
from tests.frames import heartbeat_answers, heartbeats
from tests.rings import packets_of, pieces, write
from tests.segments import START_NS, Talk
from tests.sources import BY_FILE, OF_EARLIER, OF_FILES, OF_STARTS, rows

if TYPE_CHECKING:
    from collections import Counter
    from pathlib import Path

IDENTITY = {"client_port", "broker_port", "correlation_id", "api", "request_bytes", "response_bytes", "time"}


@pytest.mark.parametrize("name", ["quickstart", "mock-rebalance", "tansu-sasl"])
def test_a_long_enough_look_back_loses_only_handshakes(name: str, tmp_path: Path) -> None:
    (sample,) = (path for path in captures() if name_of(path) == name)
    pieces(packets_of(ROOT / sample), tmp_path, 4)
    for table in BY_FILE:
        but = OF_FILES | OF_STARTS | OF_EARLIER
        assert rows(tmp_path, table, but, split=FILES) == rows(tmp_path, table, but, split="none"), table


@pytest.mark.parametrize("files", [5, 37, pytest.param(200, marks=pytest.mark.deep)])
def test_what_a_deadline_brings_is_of_one_file(files: int, tmp_path: Path) -> None:
    """Requests that a reset left unanswered, wherever files end, and whenever tasks notice it."""
    pieces(packets_of(ROOT / "samples" / "kafka-4-transactions.pcap"), tmp_path, files)
    but = OF_FILES | OF_STARTS
    complete = rows(tmp_path, "exchanges", but, split="none", kind="unanswered")
    assert complete
    assert rows(tmp_path, "exchanges", but, split=FILES, lookback="1000", kind="unanswered") == complete


def test_exchanges_lost_without_look_back_are_reported(tmp_path: Path) -> None:
    packets = packets_of(ROOT / "samples" / "quickstart.pcap")
    pieces(packets, tmp_path, 20)
    but = OF_FILES | OF_STARTS | OF_EARLIER | {"anomalies"}
    complete = rows(tmp_path, "exchanges", but)
    cut = rows(tmp_path, "exchanges", but, split=FILES, lookback="0")
    given_up = rows(tmp_path, "anomalies", split=FILES, lookback="0", where='"given_up" in anomalies.kind')
    lost = (complete - cut).total()
    assert 0 < lost <= given_up.total()


@pytest.mark.parametrize("files", [10, 40])
def test_exchanges_held_back_for_lost_packets_belong_to_the_file_that_has_them(
    files: int, tmp_path: Path
) -> None:
    """Deadlines are longer than a file; all lost exchanges are counted, and none is reported twice."""
    packets = packets_of(ROOT / "samples" / "mock-librdkafka.pcap")
    left = DAMAGES["10 % lost, duplicated, shuffled"](packets, Random(1)).packets
    pieces(left, tmp_path, files)
    complete, cut = answered_rows(tmp_path), answered_rows(tmp_path, split=FILES)
    given_up = rows(tmp_path, "anomalies", split=FILES, where='"given_up" in anomalies.kind')
    assert complete.total() > 150
    assert not cut - complete
    assert (complete - cut).total() <= given_up.total()


def test_packets_between_which_a_file_ends_may_come_in_another_order(tmp_path: Path) -> None:
    packets = packets_of(ROOT / "samples" / "quickstart.pcap")
    swapped = list(packets)
    half = len(packets) // 2
    swapped[half - 1], swapped[half] = swapped[half], swapped[half - 1]
    numbered = [packet._replace(number=number) for number, packet in enumerate(swapped, 1)]
    write(tmp_path / "1.pcapng", numbered[:half])
    write(tmp_path / "2.pcapng", numbered[half:])
    expected = rows(tmp_path, "exchanges", split="none")
    assert rows(tmp_path, "exchanges", split=FILES) == expected


def test_bytes_that_come_in_the_next_file_complete_it_there(tmp_path: Path) -> None:
    """Of three responses, the first lacks its start at the end of a file; the others belong to that file."""
    talk = Talk()
    talk.handshake()
    cuts = []
    for first in (1, 3):
        talk.client_sends(b"".join(heartbeats(2, first=first)))
        talk.broker_sends(b"".join(heartbeat_answers(2, first=first)))
        cuts.append(len(talk.packets))
    talk.client_sends(b"".join(heartbeats(4, first=5)))
    talk.broker_sends(b"".join(heartbeat_answers(1, first=5)))
    answers = b"".join(heartbeat_answers(3, first=6))
    talk.broker_sends(answers[:6])
    late = talk.packets.pop()
    talk.broker_sends(answers[6:])
    cuts.append(len(talk.packets))
    talk.packets.append(late)
    talk.client_sends(b"".join(heartbeats(1, first=9)))
    talk.broker_sends(b"".join(heartbeat_answers(1, first=9)))
    packets = [packet._replace(time_ns=START_NS + place) for place, packet in enumerate(talk.packets)]
    for begin, end in pairwise((0, *cuts, len(packets))):
        write(tmp_path / f"{begin:03}.pcapng", packets[begin:end])
    assert answered_rows(tmp_path).total() == 9
    assert answered_rows(tmp_path, split=FILES) == answered_rows(tmp_path)
    parsed = parse({"path": str(tmp_path), "split": FILES, "kind": "answered"})
    reader = Reader(parsed, ["number"])
    counts = [sum(batch.num_rows for batch in reader.read(part)) for part in reader.partitions()]
    assert counts == [2, 2, 3, 2]


def answered_rows(directory: Path, **options: str) -> Counter[str]:
    """Answered exchanges, without the columns that depend on what is known of the connection."""
    but = {column.name for column in columns_of("exchanges")} - IDENTITY
    return rows(directory, "exchanges", but, kind="answered", **options)
