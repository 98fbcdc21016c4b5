"""Exports by the core, whose tables `brokers`, `rebalances`, `groups` and `connections` need more than rows
of exchanges: the same as without it, of whatever exchanges.
"""

from __future__ import annotations

import io
import struct
from collections import Counter
from random import Random
from typing import TYPE_CHECKING, Any

import pytest

from benchmarks.traffic import Side, Talk, Template, Wire
from kdissect.cli.terminal import OK
from kdissect.exchanges.group_events import usual_events
from kdissect.exchanges.nodes import names_nodes
from kdissect.kafka import apis
from kdissect.kafka.layout import layout
from kdissect.tables.export import Export
from kdissect.tables.native_rows import native_row
from samples.golden import captures, name_of
from tests.cli.commands import run
from tests.core import NEEDS_CORE, without_core
from tests.depth import IS_DEEP
from tests.exports import json_rows
from tests.frames import request, response
from tests.kafka.encoder import encoder
from tests.kafka.random_bodies import TIMES, random_body
from tests.rings import packets_of, write
from tests.tables.test_native_rows import TAKEN, capture_of, exchange_of
from tests.text.test_native_line import messages, usual, versions

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from kdissect.model import Exchange

pytestmark = NEEDS_CORE

METADATA, FIND_COORDINATOR, LEAVE_GROUP, CONSUMER_HEARTBEAT, HEARTBEAT = 3, 10, 13, 68, 12
REBALANCE_IN_PROGRESS = 27
SECOND_US = 1_000_000


class Exports:
    """Exports captures with the core and without. Compares the files."""

    def __init__(self, capsys: pytest.CaptureFixture[str], directory: Path) -> None:
        self.directory = directory
        self._capsys = capsys

    def same(self, path: Path, *options: str) -> list[Exchange]:
        """The exchanges that the core has left, of one process."""
        fed: list[Exchange] = []
        feed, skip = Export.feed, Export.skip
        files = []
        for name in ("core", "pure"):
            out = self.directory / name
            with pytest.MonkeyPatch.context() as patch:
                if name == "core":
                    patch.setattr(Export, "feed", lambda *each: (fed.append(each[1]), feed(*each)))
                    patch.setattr(Export, "skip", lambda *each: (fed.append(each[1]), skip(*each)))
                arguments = (
                    "export",
                    "-o",
                    str(out),
                    "--overwrite",
                    "--compress",
                    "none",
                    *options,
                    str(path),
                )
                if name == "core":
                    status = run(self._capsys, *arguments).status
                else:
                    with without_core():
                        status = run(self._capsys, *arguments).status
            assert status == OK
            files.append({each.relative_to(out): each.read_bytes() for each in sorted(out.glob("*/part-*"))})
        for file, content in files[1].items():
            assert files[0][file].splitlines() == content.splitlines()
        assert files[0] == files[1]
        return fed

    def rows(self, table: str) -> list[dict[str, Any]]:
        """The rows of the core."""
        return json_rows(self.directory / "core" / table)


@pytest.fixture
def exports(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> Exports:
    return Exports(capsys, tmp_path)


def talks(path: Path, *connections: Iterable[tuple[int, int, Any, Any]]) -> Path:
    """A capture of connections to one broker, one after the other: API key and version, and both bodies."""
    with path.open("wb") as file:
        network = Wire(file, 1448)
        for number, exchanges in enumerate(connections):
            talk = network.open(number, Random(number))
            for place, (key, version, *bodies) in enumerate(exchanges):
                one, other = (
                    make(key, version, body) for make, body in zip((request, response), bodies, strict=True)
                )
                network.exchange(talk, Template(one, other), struct.pack(">i", place))
            network.close(talk)
    return path


def metadata(*hosts: str, cluster: str | None = "A", rack: str | None = None) -> tuple[int, int, Any, Any]:
    brokers = [
        {"node_id": number, "host": host, "port": 9092, "rack": rack} for number, host in enumerate(hosts)
    ]
    return METADATA, 5, {"topics": []}, {"brokers": brokers, "cluster_id": cluster}


def coordinator(host: str, error: int = 0) -> tuple[int, int, Any, Any]:
    answer = {"error_code": error, "node_id": -1 if error else 7, "host": host, "port": -1 if error else 9092}
    return FIND_COORDINATOR, 2, {"key": "g", "key_type": 0}, answer


def beat(error: int = 0) -> tuple[int, int, Any, Any]:
    return HEARTBEAT, 0, {"group_id": "g", "generation_id": 3, "member_id": "m"}, {"error_code": error}


def consumer_beat(epoch: int, answered: int, **more: Any) -> tuple[int, int, Any, Any]:
    sent = {"group_id": "n", "member_id": "m", "member_epoch": epoch, **more}
    return CONSUMER_HEARTBEAT, 0, sent, {"member_id": "m", "member_epoch": answered}


LEAVE = (LEAVE_GROUP, 3, {"group_id": "g", "members": [{"member_id": "m"}, {"member_id": "n"}]}, {})


def test_brokers_and_events_are_rows_of_the_core(exports: Exports, tmp_path: Path) -> None:
    one = [beat(), metadata("a", "b", rack="x"), coordinator("c"), metadata("a", "b", rack="y"), beat()]
    other = [
        beat(),
        coordinator("", error=15),
        beat(REBALANCE_IN_PROGRESS),
        LEAVE,
        metadata("a", cluster=None),
    ]
    third = [
        beat(),
        consumer_beat(0, 4, subscribed_topic_names=["t"]),
        consumer_beat(4, 4),
        consumer_beat(-1, -1),
    ]
    path = talks(tmp_path / "capture", one, other, third)
    left = exports.same(path, "-j", "1")
    assert {exchange.number for exchange in left} <= {1, 2}, "the core takes what follows"
    brokers = exports.rows("brokers")
    assert [(row["node_id"], row["host"], row["rack"], row["number"]) for row in brokers] == [
        (0, "a", "y", 2), (1, "b", "y", 2), (7, "c", None, 3),
    ]  # fmt: skip
    events = [(row["event"], row["member_id"], row["error"]) for row in exports.rows("groups")]
    assert events == [
        ("heartbeat", "m", "REBALANCE_IN_PROGRESS"), ("leave", "m", None), ("leave", "n", None),
        ("join", "m", None), ("leave", "m", None),
    ]  # fmt: skip
    assert [row["cause"] for row in exports.rows("rebalances")] == ["first"]


def test_what_is_named_before_the_cluster_counts_for_the_broker(exports: Exports, tmp_path: Path) -> None:
    """A proxy in front of two clusters: what a connection named before is in none of them."""
    cases = [
        [beat(), beat(), coordinator("c"), metadata("a", cluster=each), beat()] for each in ("A", "B", "C")
    ]
    exports.same(talks(tmp_path / "capture", *cases), "-j", "1")
    assert {(row["cluster_id"], row["host"]) for row in exports.rows("brokers")} == {
        ("A", "a"), ("B", "a"), ("C", "a"), (None, "c"),
    }  # fmt: skip


SYN, RST_ACK = 2, 20


def test_advertised_addresses_are_listeners(exports: Exports, tmp_path: Path) -> None:
    """A connection to one of them that was refused has a row, even if what names it is not selected."""
    path = talks(tmp_path / "capture", [beat(), beat(), metadata("10.9.9.8", "10.9.9.9")])
    with path.open("ab") as file:
        network = Wire(io.BytesIO(), 1448)
        network._file, network._us = file, network._us + SECOND_US
        for last in (7, 8, 9):
            refused = Talk((Side(bytes((10, 0, 9, 1)), 50_000), Side(bytes((10, 9, 9, last)), 9092)), [1, 2])
            network.segment(refused, 0, SYN)
            network.segment(refused, 1, RST_ACK)
    for options in ((), ("--api", "Metadata,Heartbeat"), ("-j", "2")):
        exports.same(path, "-j", "1", *options)
        refused_by = [row["broker_ip"] for row in exports.rows("connections") if row["opening"] == "refused"]
        assert refused_by == ([] if "--api" in options else ["10.9.9.8", "10.9.9.9"])
    exports.same(path, "-j", "1", "--api", "Heartbeat")
    assert exports.rows("brokers") == []


def test_the_first_brokers_are_kept(exports: Exports, tmp_path: Path) -> None:
    several = [beat(), beat(), metadata("z", "y"), metadata("x", "w"), metadata("a")]
    exports.same(talks(tmp_path / "capture", several), "-j", "1", "--limits", "export_brokers=3")
    assert [row["host"] for row in exports.rows("brokers")] == ["z", "y", "x"]


def _named(api: str) -> bool:
    key, version = apis.find(api).key, versions(api)[1] - 1
    return names_nodes(key, version) or usual_events(api) != "never"


@pytest.mark.parametrize("api", [api for api in TAKEN if _named(api)])
def test_random_bodies(api: str, exports: Exports, tmp_path: Path) -> None:
    """Exchanges of all versions on one connection, with few different texts."""
    each: list[Template] = []
    for version in range(*versions(api)):
        random = Random(f"whole {api} {version}")
        if native_row(apis.find(api).key, version) is None:
            continue
        for _ in range(TIMES):
            bodies = [
                random_body(layout(message, version), random, letters="ab") for message in messages(api)
            ]
            raws = [
                encoder(message, version)(usual(message.fields, version, body, random))
                for message, body in zip(messages(api), bodies, strict=True)
            ]
            each.append(exchange_of(api, version, raws))
    path = capture_of(each, tmp_path / "capture")
    left = exports.same(path, "-j", "1")
    assert len(left) < 2 + len(each)


@pytest.mark.parametrize("capture", captures()[:: 1 if IS_DEEP else 9], ids=name_of)
def test_all_tables_of_samples(capture: Path, exports: Exports, tmp_path: Path) -> None:
    packets = packets_of(capture)
    exports.same(capture, "-j", "1", "--format", "parquet")
    exports.same(write(tmp_path / "late.pcapng", packets[len(packets) // 3 :]), "-j", "1")
    exports.same(capture, "-j", "1", "--records", "--limits", "export_brokers=2")


def test_members_of_tables_of_all_samples_are_taken(exports: Exports) -> None:
    """Metadata, FindCoordinator and heartbeats of the new groups, in a recording."""
    path = next(path for path in captures() if name_of(path) == "kafka-4-cluster")
    left = Counter(exchange.api for exchange in exports.same(path, "-j", "1"))
    assert len(exports.rows("brokers")) > 3
    assert left["Metadata"] + left["FindCoordinator"] + left["BeginQuorumEpoch"] <= 12
