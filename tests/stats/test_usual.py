"""Exchanges that the native core counts: summaries and verdicts are the same as without it."""

from __future__ import annotations

import gc
import json
from pathlib import Path
from random import Random
from typing import Any

import pytest

from kdissect import core, dissect, open_capture, pipeline, summarize
from kdissect.cli.main import main
from kdissect.exchanges.group_events import usual_events
from kdissect.exchanges.learned import FIND_COORDINATOR, METADATA
from kdissect.kafka import apis
from kdissect.kafka.headers import API_VERSIONS
from kdissect.limits import DEFAULT, SECOND_NS
from kdissect.model import Exchange
from kdissect.stats import core_tallies, intervals
from kdissect.stats.cluster import NODE_APIS
from kdissect.stats.contents import COUNTED_BY_CORE, ONE
from kdissect.stats.core_tallies import COUNTED, ONLY_COUNTED
from kdissect.stats.findings.rules import Findings
from kdissect.stats.summarizer import PARTS, Summarizer
from kdissect.stats.transactions import Transactions
from tests.captures import pcap
from tests.core import needs_core
from tests.exchange_factory import connection
from tests.frames import request, response
from tests.record_batches import BASE_MS, Item, batch
from tests.rings import packets_of, write
from tests.segments import ACK, FIN, Talk
from tests.shared import summary
from tests.test_lending import SAMPLES, SEEDS, damaged, timed
from tests.usual_traffic import FETCH, PRODUCE, usual_traffic

LATECOMER = Path(__file__).resolve().parents[2] / "samples" / "kafka-4-latecomer.pcap.gz"
PARTS_SHOWN = ("--groups", "--lag", "--versions", "--transactions", "--connections", "--findings")
COMMANDS = (["summary", "-j", "1", "--json", *PARTS_SHOWN], ["summary", "-j", "1"], ["check", "--json"])


@pytest.fixture
def compare(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Any:
    """Compares output with and without the core. Returns how many exchanges of a summary the core counted."""

    def check(path: Path, *options: str) -> int:
        fed: list[int] = []
        for command in COMMANDS[:1] if options else COMMANDS:
            outputs = []
            for is_used in (core.is_used, False):
                with monkeypatch.context() as context:
                    context.setattr(core, "is_used", is_used)
                    fed.append(0)
                    context.setattr(Summarizer, "feed", counting(Summarizer.feed, fed))
                    assert main([*command, *options, str(path)]) in (0, 1)
                outputs.append(tuple(capfd.readouterr()))
            assert outputs[0][0]
            assert outputs[0] == outputs[1], command
        return fed[1] - fed[0]

    return check


def counting(feed: Any, fed: list[int]) -> Any:
    """``feed``, which also counts its calls in the last number."""

    def counted(self: Summarizer, exchange: Any, *more: Any) -> None:
        fed[-1] += 1
        feed(self, exchange, *more)

    return counted


@needs_core
def test_damaged_samples(compare: Any, tmp_path: Path) -> None:
    path = tmp_path / "damaged.pcap"
    for name in ("kafka-4-lag", "kafka-4-transactions", "mock-librdkafka"):
        path.write_bytes(pcap(damaged(timed(SAMPLES[name]), Random(name))))
        compare(path)


@needs_core
@pytest.mark.parametrize(
    ("name", "limit"),
    [
        ("kafka-4-storm", "summary_total_group_events=7"),
        ("mock-rebalance", "summary_group_members=2"),
        ("kafka-4-transactions", "summary_transaction_events=3"),
    ],
)
def test_the_first_events_are_kept(compare: Any, name: str, limit: str) -> None:
    """Of all connections: exchanges that are counted one by one come in order."""
    assert compare(SAMPLES[name], "--limits", limit) > 0


@needs_core
@pytest.mark.parametrize("options", [(), ("--api", "SyncGroup"), ("--api", "!JoinGroup")], ids=" ".join)
def test_the_protocol_of_a_group_is_learned(compare: Any, tmp_path: Path, options: tuple[str, ...]) -> None:
    """From exchanges that are not selected, too."""
    path, talk = tmp_path / "connect.pcap", Talk().handshake()
    protocols = [{"name": "x", "metadata": b""}]
    talk.client_sends(
        request(11, 1, {"group_id": "workers", "protocol_type": "connect", "protocols": protocols})
    )
    talk.broker_sends(response(11, 1, {"generation_id": 1, "protocol_name": "x"}))
    talk.client_sends(request(14, 1, {"group_id": "workers", "generation_id": 1}, correlation_id=2))
    assignment = bytes.fromhex("0000 00000001 0001 61 00000001 00000000 ffffffff")  # of a consumer
    talk.broker_sends(response(14, 1, {"assignment": assignment}, correlation_id=2))
    path.write_bytes(pcap([(each.time_ns, each.data) for each in talk.packets]))
    compare(path, *options)
    assert b"malformed_payload" in summary(*options, path).out


@needs_core
def test_usual_traffic(compare: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "usual.pcap"
    counted = 0
    for seed in range(10 * SEEDS):
        random = Random(seed)
        packets = usual_traffic(random, 60)
        with monkeypatch.context() as context:
            context.setattr(pipeline, "_TICK_PACKETS", random.choice((20, 1000)))
            path.write_bytes(pcap(damaged(packets, random) if random.random() < 0.3 else packets))
            counted += compare(path)
    assert counted > 400 * SEEDS


@needs_core
def test_the_polls_of_a_session(compare: Any, tmp_path: Path) -> None:
    """All but the first are counted; every third names partitions."""
    path, talk = tmp_path / "session.pcap", Talk(("10.0.0.1", 40_000)).handshake()
    for epoch in range(60):
        named = range(5) if epoch == 0 else [epoch % 5] if epoch % 3 == 0 else []
        requested = [{"partition": each, "fetch_offset": 40 + epoch} for each in named]
        ends = [{"partition_index": each, "high_watermark": 50 + epoch, "records": b""} for each in named]
        request_body = {
            "replica_id": -1,
            "max_wait_ms": 500,
            "min_bytes": 1,
            "session_id": 77 if epoch else 0,
            "session_epoch": epoch,
            "topics": [{"topic": "orders", "partitions": requested}] if named else [],
        }
        responses = [{"topic": "orders", "partitions": ends}] if named else []
        talk.client_sends(request(FETCH, 12, request_body, correlation_id=epoch))
        talk.broker_sends(
            response(FETCH, 12, {"session_id": 77, "responses": responses}, correlation_id=epoch)
        )
    path.write_bytes(pcap([(each.time_ns, each.data) for each in talk.packets]))
    assert compare(path) >= 60 - 1


@needs_core
def test_last_stable_offsets_that_come_and_go(compare: Any, tmp_path: Path) -> None:
    """Every second response has none, right after one that shows that readers are held up."""
    path, talk = tmp_path / "held-up.pcap", Talk(("10.0.0.1", 40_000), step_ns=10_000).handshake()
    for number in range(60):
        requested = [{"topic": "orders", "partitions": [{"partition": 0, "fetch_offset": 5}]}]
        stable = -1 if number % 2 else 5
        end = {"partition_index": 0, "high_watermark": 9, "last_stable_offset": stable, "records": b""}
        answer = {"responses": [{"topic": "orders", "partitions": [end]}]}
        talk.client_sends(request(FETCH, 11, {"replica_id": -1, "topics": requested}, correlation_id=number))
        talk.broker_sends(response(FETCH, 11, answer, correlation_id=number))
        talk.time_ns += number % 2 * SECOND_NS
    path.write_bytes(pcap([(each.time_ns, each.data) for each in talk.packets]))
    assert compare(path) >= 60 - 1
    assert b"readers-blocked" in summary("--findings", path).out


@needs_core
def test_timestamps_that_cannot_be_right(compare: Any, tmp_path: Path) -> None:
    """One in four is in seconds, and is not counted."""
    path, talk = tmp_path / "seconds.pcap", Talk(("10.0.0.1", 40_000)).handshake()
    for number in range(60):
        time_ms = BASE_MS // 1000 if number % 4 == 0 else BASE_MS
        written = {"index": 0, "records": batch([Item()], base_ms=time_ms, max_ms=time_ms)}
        answer = {"index": 0, "base_offset": number}
        topics = [{"name": "orders", "partition_data": [written]}]
        answers = [{"name": "orders", "partition_responses": [answer]}]
        talk.client_sends(request(PRODUCE, 8, {"acks": -1, "topic_data": topics}, correlation_id=number))
        talk.broker_sends(response(PRODUCE, 8, {"responses": answers}, correlation_id=number))
    path.write_bytes(pcap([(each.time_ns, each.data) for each in talk.packets]))
    assert 60 - 15 - 1 <= compare(path) <= 60 - 15
    with open_capture(path) as packets:
        findings = summarize(dissect(packets), parts=["findings"]).findings or ()
    (row,) = (row for row in findings if row.rule == "far-timestamps")
    assert (row.count, row.subject) == (15, "client test-client, topic orders")


@needs_core
def test_a_broker_that_stops_while_it_holds_a_fetch(compare: Any, tmp_path: Path) -> None:
    path, talk = tmp_path / "stopped.pcap", Talk().handshake()
    for number in range(20):
        talk.client_sends(request(FETCH, 12, {}, correlation_id=number))
        if number < 19:
            talk.broker_sends(response(FETCH, 12, {}, correlation_id=number))
    talk.put(1, FIN | ACK)
    path.write_bytes(pcap([(each.time_ns, each.data) for each in talk.packets]))
    assert compare(path) > 0


@needs_core
@pytest.mark.parametrize("names", ["whole", "window"])
def test_fetch_sessions_of_topics_without_a_name(names: str, compare: Any, tmp_path: Path) -> None:
    """As when clients run before the capture begins: the responses with the names are missing."""
    packets = packets_of(LATECOMER)
    path = write(tmp_path / "cut.pcapng", packets[len(packets) // 3 :])
    assert compare(path, "--lag", "--names", names) > 200


@needs_core
def test_versions_that_a_broker_supports(compare: Any, tmp_path: Path) -> None:
    """The last response holds, also for what a throttle time means."""
    path, talk = tmp_path / "versions.pcap", Talk().handshake()
    software = {"client_software_name": "library", "client_software_version": "1.0"}
    for number in range(40):
        versions = [{"api_key": 0, "min_version": 0, "max_version": 5 + number % 2}]
        talk.client_sends(request(API_VERSIONS, 3, software, correlation_id=number))
        talk.broker_sends(response(API_VERSIONS, 3, {"api_keys": versions}, correlation_id=number))
    path.write_bytes(pcap([(each.time_ns, each.data) for each in talk.packets]))
    assert compare(path) >= 40 - 1
    assert compare(SAMPLES["kafka-0.11"]) > 0


def metadata(topics: dict[str, str], node: int, cluster: str | None, leader: int) -> dict[str, Any]:
    """A response: names and IDs of topics, and the leader of their partitions."""
    partition = {"partition_index": 0, "leader_id": leader, "replica_nodes": [1, 2], "isr_nodes": [1, leader]}
    return {
        "brokers": [{"node_id": node, "host": "10.0.0.2", "port": 9092}],
        "cluster_id": cluster,
        "topics": [
            {"name": name, "topic_id": each, "partitions": [partition]} for name, each in topics.items()
        ],
    }


@needs_core
def test_equal_bodies_are_decoded_once(compare: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of several connections, some of which name the cluster late, or another name of a topic."""
    one, other = "AAAAAAAAAAAAAAAAAAAACg", "AAAAAAAAAAAAAAAAAAAACw"
    packets = []
    for number in range(40):
        talk = Talk(("10.0.0.1", 40_000 + number)).handshake()
        bodies = [
            metadata({"orders": one}, 1, "first", 1),
            metadata({"orders": one}, 1, "first", 2 if number % 5 == 0 else 1),
            metadata({"orders": one if number % 3 else other, "audit": other}, 2, "first", 2),
            metadata({}, 1, None, 1),
        ]
        for place, body in enumerate(reversed(bodies) if number % 2 else bodies):
            body_of_request = {"topics": None, "allow_auto_topic_creation": True}
            talk.client_sends(request(METADATA, 12, body_of_request, correlation_id=place))
            talk.broker_sends(response(METADATA, 12, body, correlation_id=place))
        packets += [(each.time_ns + number, each.data) for each in talk.packets]
    path = tmp_path / "metadata.pcap"
    path.write_bytes(pcap(sorted(packets)))
    decoded, decode = [], core_tallies._content
    monkeypatch.setattr(core_tallies, "_content", lambda *each: decoded.append(each) or decode(*each))
    assert compare(path) > 100
    assert len(decoded) <= 6 * len(COMMANDS)


@pytest.mark.deep
@needs_core
def test_few_bodies_are_kept_at_a_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    talk = Talk(("10.0.0.1", 40_000)).handshake()
    for number in range(9000):
        talk.client_sends(request(FIND_COORDINATOR, 0, {"key": f"{number}"}, correlation_id=number))
        talk.broker_sends(response(FIND_COORDINATOR, 0, {"host": "b", "port": 1}, correlation_id=number))
    path = tmp_path / "coordinators.pcap"
    path.write_bytes(pcap([(each.time_ns, each.data) for each in talk.packets]))
    most, decoded, decode = 0, 0, core_tallies._content

    def counted(*each: Any) -> Any:
        nonlocal most, decoded
        decoded += 1
        if decoded % 500 == 0:
            most = max(most, sum(isinstance(each, Exchange) for each in gc.get_objects()))
        return decode(*each)

    monkeypatch.setattr(core_tallies, "_content", counted)
    assert main(["summary", "-j", "1", str(path)]) == 0
    assert decoded > 8500
    assert 1000 < most < 8200


@needs_core
def test_several_processes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    path, feed = tmp_path / "usual.pcap", Summarizer.feed
    fed = {"1": tmp_path / "pure", "2": tmp_path / "core"}
    for seed in range(3 * SEEDS):
        path.write_bytes(pcap(usual_traffic(Random(seed), 60)))
        outputs = []
        for is_used, jobs in ((core.is_used, "2"), (False, "1")):

            def noted(self: Summarizer, exchange: Any, *more: Any, note: Path = fed[jobs]) -> None:
                with note.open("ab") as file:  # that all processes have
                    file.write(b".")
                feed(self, exchange, *more)

            with monkeypatch.context() as context:
                context.setattr(core, "is_used", is_used)
                context.setattr(Summarizer, "feed", noted)
                assert main(["summary", "-j", jobs, "--json", *PARTS_SHOWN, str(path)]) == 0
            outputs.append(tuple(capfd.readouterr()))
        assert outputs[0] == outputs[1]
    assert 2 * fed["2"].stat().st_size < fed["1"].stat().st_size


@needs_core
@pytest.mark.parametrize(
    "options",
    [
        ["--interval", "1s"],
        ["--interval", "100ms", "--by", "topic"],
        ["--interval", "1s", "--by", "partition"],
        ["--interval", "1s", "--by", "group"],
        ["--interval", "1s", "--by", "connection"],
        ["--by", "topic"],
        ["--by", "partition"],
        ["--by", "group"],
        ["--by", "group,api,broker"],
        ["--by", "partition,client"],
    ],
    ids=" ".join,
)
def test_tables_and_intervals_are_counted_too(options: list[str], tmp_path: Path, compare: Any) -> None:
    path = tmp_path / "usual.pcap"
    for seed in range(2 * SEEDS):
        path.write_bytes(pcap(usual_traffic(Random(seed), 80)))
        assert compare(path, *options) > 40


@needs_core
def test_intervals_become_longer_while_the_core_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, out, fed, documents = tmp_path / "usual.pcap", tmp_path / "report.json", [0], []
    path.write_bytes(pcap(usual_traffic(Random(5), 300)))
    monkeypatch.setattr(intervals, "MAX_INTERVALS", 8)
    monkeypatch.setattr(Summarizer, "feed", counting(Summarizer.feed, fed))
    for is_used in (core.is_used, False):
        monkeypatch.setattr(core, "is_used", is_used)
        fed.append(0)
        assert main(["report", "-j", "1", "--format", "json", "-o", str(out), str(path)]) == 0
        documents.append(json.loads(out.read_bytes())["summary"])
    assert documents[0] == documents[1]
    assert documents[0]["intervals"][0]["seconds"] > 1
    assert fed[1] < fed[2] - 300


@needs_core
def test_what_needs_each_exchange_gets_it(tmp_path: Path, compare: Any) -> None:
    path = tmp_path / "usual.pcap"
    path.write_bytes(pcap(usual_traffic(Random(1), 60)))
    assert compare(path, "--topic", "*") > 40
    assert compare(path, "--topic", "!none*") == 0  # which takes the IDs of topics


@needs_core
@pytest.mark.parametrize(
    "options", [["--api", "Fetch"], ["--slower-than", "1us"], ["--api", "!Fetch"]], ids=str
)
def test_filters_leave_the_rest_of_a_connection_as_it_is(
    options: list[str], tmp_path: Path, compare: Any
) -> None:
    path = tmp_path / "usual.pcap"
    path.write_bytes(pcap(usual_traffic(Random(2), 300)))
    assert compare(path, *options) > 0


def test_everything_that_takes_usual_exchanges_one_by_one_takes_their_counts() -> None:
    summarizer, findings = Summarizer(parts=frozenset(PARTS)), Findings(DEFAULT)
    for part in (summarizer.traffic, summarizer.records, *summarizer.parts.values()):
        assert COUNTED_BY_CORE in part.takes
    for api in map(apis.by_key, COUNTED):
        assert api is not None
        if api.key in ONLY_COUNTED:
            assert usual_events(api.name) == "never"
            assert api.name not in Transactions._handlers
            assert api.name not in NODE_APIS
        of_cluster = findings.of_clusters.of(connection())
        for rule in (
            *findings.of_connections.rules_for(ONE, api.name, has_flaw=False),
            *of_cluster.rules_for(ONE, api.name, has_flaw=False),
        ):
            is_odd = rule.name in (
                "oversized-messages",
                "consumer-stuck",
                "epoch-duplicates",
                "transaction-failed",
                "fenced-producers",
                "offset-out-of-range",
                "far-timestamps",
            )  # the core counts none of those
            assert is_odd or COUNTED_BY_CORE in rule.takes, rule.name
