"""What operators ask of a summary: each story was recorded, the summary tells it as clients, brokers and
Kafka's own tools do, and is silent about it where all is well."""

from __future__ import annotations

import json
from collections import Counter
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from kdissect import dissect, open_capture, summarize
from kdissect.exchanges import content
from kdissect.phrases import duration
from kdissect.stats.rows import moment
from kdissect.stats.summarizer import PARTS
from kdissect.stats.views import ordered
from samples.golden import captures, name_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kdissect.stats.document import FindingPart, FindingRow, GroupHistory, LagRow, Summary

SAMPLES = {name_of(path): path for path in captures()}
# Nothing went wrong when these were recorded: groups of both protocols and of both kinds of rebalance,
# transactions of four libraries, producers of all codecs, a Streams application.
HEALTHY = (
    *("kafka-4-transactions", "kafka-4-streams", "quickstart", "mock-rebalance", "mock-next-groups"),
    *("tansu-librdkafka", "tansu-kafka-python", "tansu-aiokafka"),
)


@cache
def summary_of(sample: str) -> Summary:
    with open_capture(SAMPLES[sample]) as packets:
        return summarize(dissect(packets), by=["partition", "connection"], parts=PARTS)


@cache
def truth(sample: str) -> dict[str, Any]:
    result: dict[str, Any] = json.loads(Path(f"samples/{sample}.truth.json").read_text())
    return result


def rows_of(rows: Sequence[Any] | None) -> Sequence[Any]:
    """A requested part."""
    assert rows is not None
    return rows


def findings(sample: str, rule: str) -> list[FindingRow | FindingPart]:
    """What a rule found, each of its parts apart."""
    rows = [row for row in rows_of(summary_of(sample).findings) if row.rule == rule]
    return [part for row in rows for part in row.parts or [row]]


def client(sample: str, name: str) -> Any:
    (row,) = (row for row in rows_of(summary_of(sample).clients) if row.client == name)
    return row


@pytest.mark.parametrize("sample", HEALTHY)
def test_where_all_is_well_there_are_no_findings(sample: str) -> None:
    summary = summary_of(sample)
    assert summary.findings == []
    assert [history.group for history in rows_of(summary.group_history) if history.storms] == []
    assert [row.client for row in rows_of(summary.clients) if row.throttled] == []
    assert summary.transactions is not None
    assert summary.transactions.fenced == []
    for row in summary.transactions.producers:
        assert (row.superseded, row.timed_out, row.missing) == (0, 0, 0), row.transactional_id


# --- a group that finds no rest -----------------------------------------------------------------------------

CAUSES = {"joins": "join", "leaves": "leave", "dies": "timeout"}


def group(sample: str, name: str) -> GroupHistory:
    (history,) = (history for history in rows_of(summary_of(sample).group_history) if history.group == name)
    return history  # type: ignore[no-any-return]


def test_each_rebalance_of_a_storm_has_the_cause_that_the_clients_logged() -> None:
    did = [step for step in truth("kafka-4-storm")["facts"]["did"] if step[0] == "restless"]
    history = group("kafka-4-storm", "restless")
    (_, first, _), *others = did
    causes = [(row.causes[0].client, row.causes[0].cause) for row in history.rebalances]
    assert causes == [(first, "first"), *((who, CAUSES[what]) for _, who, what in others)]
    joined = Counter(who for _, who, what in did if what == "joins")
    assert Counter(member.client for member in history.members) == joined
    assert [row.members_after for row in history.rebalances] == [1, *([2, 1] * (len(others) // 2))]


def test_a_rebalance_starts_at_its_first_sign_on_the_wire() -> None:
    """Of all requests about the group, judged without rounds: the first one since the assignments before."""
    with open_capture(SAMPLES["kafka-4-storm"]) as packets:
        signs = [
            (moment(each.time_ns), f"{each.connection.id}/{each.number}")
            for each in dissect(packets)
            if (each.request or {}).get("group_id") == "restless"
            and (each.api in ("JoinGroup", "LeaveGroup") or "REBALANCE_IN_PROGRESS" in content.errors(each))
        ]
    end = moment(0)
    for row in group("kafka-4-storm", "restless").rebalances:
        assert (row.start, row.exchange) == min(sign for sign in signs if sign[0] > end)
        assert row.end is not None
        end = row.end


def test_a_storm_is_reported() -> None:
    did = [step for step in truth("kafka-4-storm")["facts"]["did"] if step[0] == "restless"]
    (storm,) = group("kafka-4-storm", "restless").storms
    causes = Counter(CAUSES[what] for _, _, what in did[2:])  # two members start: that is no storm
    assert (storm.rebalances, storm.causes) == (len(did) - 2, dict(causes))
    (row,) = findings("kafka-4-storm", "rebalance-storm")
    assert (row.subject, row.count, row.first, row.last) == (
        "group restless",
        storm.rebalances,
        storm.start,
        storm.end,
    )
    assert row.message.endswith(
        "(4 leaves, 4 joins, 1 timeout); triggered by clients restless (7 times), mortal (2 times)"
    )


def test_a_calm_group_beside_it_is_not_reported() -> None:
    calm = group("kafka-4-storm", "calm")
    assert (len(calm.rebalances), calm.storms) == (1, [])


# --- a consumer that is too slow ----------------------------------------------------------------------------


def lag(kind: str, name: str) -> dict[int, LagRow]:
    rows = [row for row in rows_of(summary_of("kafka-4-lag").lag) if (row.kind, row.name) == (kind, name)]
    assert {row.topic for row in rows} == {"orders"}
    return {row.partition: row for row in rows}


def test_a_consumer_that_keeps_up_ranks_no_slower_than_one_that_lags() -> None:
    """Its fetches wait for records, which is no service time."""
    with open_capture(SAMPLES["kafka-4-lag"]) as packets:
        fetches = [each for each in dissect(packets) if each.api == "Fetch"]
    of_client = {}
    for name in ("quick", "slow"):
        ((row,),) = [summarize([each for each in fetches if each.client_id == name]).apis or ()]
        of_client[name] = row
    quick, slow = of_client["quick"], of_client["slow"]
    assert quick.wait_us.count > slow.wait_us.count
    assert (quick.wait_us.p99 or 0) > (slow.service_us.p99 or 0) > 0
    assert (quick.service_us.p99 or 0) <= (slow.service_us.p99 or 0)
    ranking = [row.client for row in ordered(summary_of("kafka-4-lag"), "service").clients or ()]
    assert ranking.index("quick") > ranking.index("slow")


def test_offsets_and_lag_are_those_of_kafka_consumer_groups() -> None:
    described = truth("kafka-4-lag")["facts"]["kafka-consumer-groups"]
    assert len(described) == 4
    for client_log in described:
        row = lag("group", client_log["group"])[client_log["partition"]]
        assert row.committed_offset == client_log["current-offset"]
        assert row.high_watermark == client_log["log-end-offset"]
        assert row.lag == client_log["lag"]
        members = {member.member_id: member for member in group("kafka-4-lag", client_log["group"]).members}
        assert client_log["partition"] in (members[client_log["consumer-id"]].assignment or {})["orders"]
        assert members[client_log["consumer-id"]].client == client_log["client-id"]


def test_the_lag_of_groups_over_time_ends_as_kafka_consumer_groups_says() -> None:
    described: Counter[str] = Counter()
    for client_log in truth("kafka-4-lag")["facts"]["kafka-consumer-groups"]:
        described[client_log["group"]] += client_log["lag"]
    with open_capture(SAMPLES["kafka-4-lag"]) as packets:
        rows = summarize(dissect(packets), parts=("lag",), interval_s=1).lag_over_time or []
    assert {row.group: row.points[-1].lag for row in rows} == described


def test_positions_and_lag_are_those_of_librdkafka() -> None:
    for name in ("quick", "slow"):
        for number, row in lag("client", name).items():
            client_log = truth("kafka-4-lag")["facts"]["statistics"][name]["partitions"][f"orders-{number}"]
            assert row.position == client_log["rxmsgs"]  # it read from the beginning
            assert row.lag == client_log["hi_offset"] - client_log["rxmsgs"]
            committed = lag("group", name)[number].committed_offset
            assert committed == client_log["committed_offset"]


def test_the_lag_of_the_slow_group_grew() -> None:
    """As it committed after every tenth round, in which 125 records came to each partition."""
    for number, row in lag("group", "slow").items():
        commits = [
            each["offset"]
            for each in truth("kafka-4-lag")["commits"]
            if (each["group_id"], each["partition"]) == ("slow", number)
        ]
        known = [(125 * place, offset) for place, offset in enumerate(commits, start=1) if offset >= 0]
        assert row.lag_first == known[0][0] - known[0][1]
        assert row.count == len(known) + 1  # and what kafka-consumer-groups was answered
        before = [end - offset for (_, offset), (end, _) in pairwise(known)]
        assert row.lag_worst == max(*before, *(end - offset for end, offset in known))
        assert row.lag is not None
        assert row.lag > row.lag_first


def test_who_falls_behind_is_reported_and_who_keeps_up_is_not() -> None:
    (row,) = findings("kafka-4-lag", "falling-behind")
    assert row.subject == "client slow, topic orders"
    behind = sum(each.lag or 0 for each in lag("client", "slow").values())
    assert row.message.startswith(f"fetch lag {behind:,} records at the end, 0 when first seen")
    assert all(each.lag == 0 for each in lag("group", "quick").values())


# --- what tools and statistics count ------------------------------------------------------------------------


def test_bytes_of_partitions_are_those_of_kafka_log_dirs() -> None:
    sizes = truth("kafka-4-lag")["facts"]["kafka-log-dirs"]
    produced = {
        f"{row.topic}-{row.partition}": row.produced_bytes
        for row in rows_of(summary_of("kafka-4-lag").partitions)
        if row.topic == "orders"
    }
    assert produced == sizes


def test_records_of_partitions_are_those_of_librdkafka() -> None:
    facts = truth("kafka-4-lag")["facts"]
    for row in rows_of(summary_of("kafka-4-lag").partitions):
        if row.topic == "orders":
            name = f"{row.topic}-{row.partition}"
            sent = facts["statistics"]["shop"]["partitions"][name]["txmsgs"]
            assert row.produced_records == sent == facts["delivered"][name]
            got = [facts["statistics"][who]["partitions"][name]["rxmsgs"] for who in ("quick", "slow")]
            assert row.fetched_records == sum(got)


def batches(sample: str, *clients: str) -> Counter[str]:
    """By librdkafka's statistics."""
    counted: Counter[str] = Counter()
    for name in clients:
        counted.update(truth(sample)["facts"]["statistics"][name]["batches"])
    return counted


def test_batches_are_those_of_librdkafka() -> None:
    (row,) = (row for row in rows_of(summary_of("kafka-4-lag").topics) if row.topic == "orders")
    sent, got = batches("kafka-4-lag", "shop"), batches("kafka-4-lag", "quick", "slow")
    assert (row.produced_batches, row.produced_records) == (sent["batches"], sent["records"])
    assert row.produced_bytes == sent["bytes"]  # of what it got librdkafka counts keys and values alone
    assert (row.fetched_batches, row.fetched_records) == (got["batches"], got["records"])


def test_small_and_large_batches_are_those_of_librdkafka() -> None:
    """There are none of the client that comes and goes; each of its batches has one record."""
    (row,) = (row for row in rows_of(summary_of("kafka-4-habits").topics) if row.topic == "clicks")
    sent = batches("kafka-4-habits", "single", "gathering")
    alone = truth("kafka-4-habits")["facts"]["delivered"]["hasty"]
    assert (row.produced_batches, row.produced_records) == (sent["batches"] + alone, sent["records"] + alone)


# Others may still be sent after the last statistics, or were sent over the first connection, whose numbers
# librdkafka forgets.
COUNTED = ("Produce", "Fetch", "ListOffsets", "OffsetCommit", "OffsetFetch", "JoinGroup", "SyncGroup")


@pytest.mark.parametrize("sample", ["kafka-4-lag", "kafka-4-habits"])
def test_requests_are_those_of_librdkafka(sample: str) -> None:
    for name, client_log in truth(sample)["facts"]["statistics"].items():
        seen = client(sample, name).apis
        assert {api: seen.get(api, 0) for api in COUNTED} == {
            api: client_log["requests"].get(api, 0) for api in COUNTED
        }


@pytest.mark.parametrize(
    ("sample", "name"),
    [("kafka-4-lag", "shop"), ("kafka-4-habits", "single"), ("kafka-4-habits", "gathering")],
)
def test_bytes_of_a_connection_are_those_of_librdkafka(sample: str, name: str) -> None:
    client_log = truth(sample)["facts"]["statistics"][name]
    seen = {
        (row.exchanges, row.request_bytes, row.response_bytes)
        for row in rows_of(summary_of(sample).connections)
        if row.client == name
    }
    assert (client_log["tx"], client_log["tx_bytes"], client_log["rx_bytes"]) in seen


# --- a quota, two producers with one id, bad habits ---------------------------------------------------------


def test_throttle_times_are_those_that_the_clients_received() -> None:
    times: Counter[str] = Counter()
    counts: Counter[str] = Counter()
    most: dict[str, int] = {}
    for each in truth("kafka-4-quota")["facts"]["throttled"]:
        name, milliseconds = each["client_id"], each["throttle_time_ms"]
        times[name] += milliseconds
        counts[name] += 1
        most[name] = max(most.get(name, 0), milliseconds)
    assert set(times) == {"limited-writer", "limited-reader"}
    for row in rows_of(summary_of("kafka-4-quota").clients):
        assert (row.throttled, row.throttle_time_ms) == (counts[row.client], times[row.client])
    rows = findings("kafka-4-quota", "throttled")
    assert {row.subject.partition(",")[0].removeprefix("client "): row.message for row in rows} == {
        name: f"{counts[name]} responses with a throttle time, {duration(time * 1_000_000)} in total, "
        f"longest {duration(most[name] * 1_000_000)}"
        for name, time in times.items()
    }


def test_who_was_fenced_by_whom() -> None:
    outcomes = truth("kafka-4-fenced")["facts"]["outcomes"]
    part = summary_of("kafka-4-fenced").transactions
    assert part is not None
    (fenced,) = part.fenced
    assert outcomes["first"] == ["_FENCED"]
    assert (fenced.transactional_id, fenced.client, fenced.by_client) == ("pay-shared", "first", "second")
    (row,) = findings("kafka-4-fenced", "fenced-producers")
    assert (row.subject, row.count) == ("client first, transactional ID pay-shared", fenced.count)
    producers = {each.transactional_id: each for each in part.producers}
    for name, clients in (("pay-alone", ["alone"]), ("pay-shared", ["first", "second"])):
        committed = sum(outcomes[each].count("committed") for each in clients)
        lost = sum(outcomes[each].count("_FENCED") for each in clients)
        each = producers[name]
        assert (each.clients, each.committed, each.superseded, each.fenced) == (
            clients,
            committed,
            lost,
            lost,
        )
        sent = [row for row in truth("kafka-4-fenced")["produced"] if row["client_id"] in clients]
        assert each.records == len(sent)


def test_habits_that_cost() -> None:
    facts = truth("kafka-4-habits")["facts"]
    (tiny,) = findings("kafka-4-habits", "tiny-batches")
    assert tiny.subject == "client single, topic clicks"
    assert tiny.count == facts["statistics"]["single"]["batches"]["batches"] == facts["delivered"]["single"]
    (hasty,) = findings("kafka-4-habits", "connection-per-request")
    assert hasty.subject.startswith("client hasty at 127.0.0.1")
    assert hasty.count == client("kafka-4-habits", "hasty").connections >= facts["delivered"]["hasty"]


# --- what the older captures show ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    "sample", ["kafka-4-cluster", "kafka-3.9", "kafka-3.9-zookeeper", "kafka-2.8", "kafka-1.1"]
)
def test_a_leader_that_moves_and_who_wrote_meanwhile(sample: str) -> None:
    """The writer gets that error as often as the brokers logged it."""
    (row,) = findings(sample, "leaders-moving")
    assert row.subject == "topic spread"
    refused = sum(
        each["client_id"] == "mover" and each["api"] == "Produce" and 6 in (each["errors"] or ())
        for each in truth(sample)["answered"]
    )
    (errors,) = (
        row.count
        for row in rows_of(summary_of(sample).errors)
        if (row.error, row.api, row.client) == ("NOT_LEADER_OR_FOLLOWER", "Produce", "mover")
    )
    assert errors == refused > 0


def test_logins_with_a_wrong_password() -> None:
    """They are named after the user that they forget the password of, the others end in -good."""
    rows = findings("kafka-4-sasl", "sasl-failures")
    failed = {row.subject.removeprefix("client ").partition(" at ")[0]: row.count for row in rows}
    wrong = {f"{who}-{how}" for who in ("rd", "kp", "aio") for how in ("plain-alice", "scram-sha-256-bob")}
    assert set(failed) == wrong | {"java-scram-sha-256"}
    client_log = Counter(
        row["client_id"] for row in truth("kafka-4-sasl")["requests"] if 58 in (row["errors"] or ())
    )
    # kafka-python hangs up before the answer, and librdkafka does not tell it.
    assert client_log == {name: count for name, count in failed.items() if name.startswith("aio-")}


# The first versions that Kafka 4 takes (KIP-896) of what these clients send; 4.0.1 took back JoinGroup 0, 1.
FLOORS = {"Produce": 3, "Fetch": 4, "ListOffsets": 1, "OffsetCommit": 2, "OffsetFetch": 1}


def test_clients_that_are_too_old_for_kafka_4() -> None:
    """By the versions that clients say they sent."""
    part = summary_of("mock-old-versions").versions
    assert part is not None
    refused: Counter[tuple[str, str, int]] = Counter()
    for row in truth("mock-old-versions")["requests"]:
        if row["version"] < FLOORS.get(row["api"], 0):
            refused[row["client_id"], row["api"], row["version"]] += 1
    seen = {(row.client, row.api, row.version): row.count for row in part.used if row.removed}
    assert seen == dict(refused)
    assert part.rejected == len(refused)
    assert {"rd-0.9.0", "kp-0.9.0"} <= {name for name, _, _ in seen}


@pytest.mark.parametrize("sample", ["quickstart", "kafka-4-lag", "kafka-4-storm", "kafka-4-streams"])
def test_clients_of_today_break_nothing(sample: str) -> None:
    part = summary_of(sample).versions
    assert part is not None
    assert part.rejected == 0
