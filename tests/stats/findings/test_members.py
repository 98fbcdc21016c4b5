from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any

from kdissect import dissect, open_capture, summarize
from kdissect.model import Anomaly, Embedded
from kdissect.stats.findings.members import MixedGroup, RevocationHeld, _apart
from tests.findings import findings_of
from tests.producers import facts_of

if TYPE_CHECKING:
    from kdissect.stats.facts import Facts

UUID = "-01234567-89ab-cdef-0123-456789abcdef"


def messages_in(name: str) -> dict[str, str]:
    """What is found in a recording, by rule."""
    with open_capture(f"samples/troubles/{name}.pcap.gz") as packets:
        findings = summarize(dissect(packets), parts=["findings"]).findings or ()
    return {row.rule: f"{row.subject}: {row.message}" for row in findings}


def test_recordings() -> None:
    assert messages_in("two-applications") == {
        "mixed-group": "group readers: search (cooperative-sticky) refused 2 times: the group has range; "
        "members have no topic in common: clicks (audit), orders (billing)"
    }
    assert messages_in("open-transaction")["readers-blocked"] == (
        "partition orders-0, client forgetful, transactional ID payments-1: a transaction was open until it "
        "timed out (transaction.timeout.ms is 10,000): the last stable offset stood at 0 for 9.60s, "
        "7 offsets below the high watermark"
    )
    assert messages_in("revocation-held") == {
        "revocation-held": "group readers, client slow: gave back 1 partition only after 12.00s"
    }


def test_who_is_slow_between_polls() -> None:
    rows = messages_in("slow-poll")
    assert rows.keys() == {"slow-poll", "falling-behind"}
    assert rows["slow-poll"] == (
        "2 clients: full-queue and slow, all at 127.0.0.1, topic orders: 28 pauses of 0.5 s or more between "
        "fetches, 83% of the time; the fetches took 126.3ms on average; fetch lag 10,159 records at the end, "
        "400 when first seen"
    )
    assert messages_in("busy-consumer") == {}


# --- members that do not fit together -----------------------------------------------------------------------


def joined(**members: tuple[str, ...]) -> Facts:
    """The response to the leader: members and the topics that they subscribe to."""
    listed = [
        {"member_id": f"{name}{UUID}", "metadata": Embedded(b"", {"topics": list(topics)})}
        for name, topics in members.items()
    ]
    response = {"error_code": 0, "protocol_name": "range", "members": listed}
    return facts_of("JoinGroup", 9, 1, {"group_id": "g", "protocols": []}, response)


def test_members_that_share_topics_fit_together() -> None:
    facts = [joined(a=("t", "u"), b=("u", "v"), c=("v",)), joined(a=("t",), pattern=()), joined()]
    assert findings_of(MixedGroup, facts) == []


def test_two_that_share_none_are_a_note() -> None:
    (row,) = findings_of(MixedGroup, [joined(a=("t", "u"), b=("v",), c=("u",))])
    assert (row.severity, row.subject, row.count) == ("note", "group g", 1)
    assert row.message == "members have no topic in common: t, u (a, c), v (b)"


# --- partitions that are not given back ---------------------------------------------------------------------


def beat(after_s: float, owned: int | None = None, assigned: int | None = None, *, error: int = 0) -> Facts:
    def partitions(count: int | None) -> Any:
        return None if count is None else [{"topic_id": "id", "partitions": list(range(count))}]

    request = {"group_id": "g", "member_id": "m", "topic_partitions": partitions(owned)}
    assignment = None if assigned is None else {"topic_partitions": partitions(assigned)}
    response = {"error_code": error, "member_id": "m", "assignment": assignment}
    return facts_of("ConsumerGroupHeartbeat", 1, after_s, request, response, "slow")


def test_a_member_that_gives_back_its_partitions() -> None:
    soon = [beat(0, 0, 3), beat(1, 3), beat(20, None, 1), beat(25), beat(29, 1), beat(60), beat(70, None, 4)]
    assert findings_of(RevocationHeld, soon) == []


def test_how_long_it_takes_and_how_it_ends() -> None:
    start = [beat(0, 0, 3), beat(1, 3), beat(20, None, 1), beat(25, None, 1)]
    for more, message in (
        ([beat(45, 1)], "gave back 2 partitions only after 25.00s"),
        ([beat(45)], "has not given back 2 partitions after 25.00s"),
        ([beat(45, error=110)], "did not give back 2 partitions in 25.00s, and was removed from the group"),
    ):
        (row,) = findings_of(RevocationHeld, [*start, *more])
        assert (row.subject, row.message) == ("group g, client slow", message)
        assert (row.last - row.first).total_seconds() == 25


def leaving(after_s: float) -> Facts:
    request = {"group_id": "g", "member_id": "m", "member_epoch": -1, "topic_partitions": None}
    response = {"error_code": 0, "member_id": "m", "assignment": None}
    return facts_of("ConsumerGroupHeartbeat", 1, after_s, request, response, "slow")


def test_one_that_may_keep_them_or_leaves() -> None:
    start = [beat(0, 0, 3), beat(1, 3), beat(20, None, 1)]
    assert findings_of(RevocationHeld, [*start, beat(22, None, 3), beat(60)]) == []
    assert findings_of(RevocationHeld, [*start, leaving(25), beat(60)]) == []
    (row,) = findings_of(RevocationHeld, [*start, leaving(31), beat(60)])
    assert row.message == "gave back 2 partitions only by leaving the group, after 11.00s"


# --- messages that were damaged -----------------------------------------------------------------------------


def cut(facts: Facts, where: str) -> Facts:
    """Only the first fields of one of its messages were captured."""
    facts.exchange.anomalies.append(Anomaly("uncaptured_body", where, ""))
    return facts


def test_what_is_cut_off_is_not_missing() -> None:
    assert findings_of(MixedGroup, [cut(joined(a=("t", "u"), b=("v",)), "response")]) == []
    start = [beat(0, 0, 3), beat(1, 3)]
    assert findings_of(RevocationHeld, [*start, cut(beat(20, None, 1), "response"), beat(60)]) == []
    assert findings_of(RevocationHeld, [*start, beat(20, None, 1), cut(beat(21), "request"), beat(60)]) == []


def test_nulls() -> None:
    request = {"group_id": "g", "protocols": [{"name": None}]}
    (row,) = findings_of(MixedGroup, [facts_of("JoinGroup", 9, 1, request, {"error_code": 23})])
    assert row.message == ("payments (?) refused once: INCONSISTENT_GROUP_PROTOCOL")
    members = [
        {"member_id": None, "metadata": Embedded(b"", {"topics": [None, topic]})} for topic in ("t", "u")
    ]
    response = {"error_code": 0, "protocol_name": "range", "members": members}
    (row,) = findings_of(MixedGroup, [facts_of("JoinGroup", 9, 1, {"group_id": "g"}, response)])
    assert row.message == "members have no topic in common: t (?), u (?)"


def test_a_group_of_many_members_takes_no_longer_for_each() -> None:
    """Compared with each other they would take a minute; those of a chain of topics are one part."""
    names = [f"t{number:05}" for number in range(20_000)]
    assert len(_apart([_member(name) for name in names])) == 20_000
    chain = [_member(one, two) for one, two in itertools.pairwise(names)]
    ((topics, _),) = _apart(chain[::2] + chain[1::2])
    assert topics == set(names)


def _member(*topics: str) -> dict[str, Any]:
    return {"member_id": f"{topics[0]}{UUID}", "metadata": Embedded(b"", {"topics": list(topics)})}
