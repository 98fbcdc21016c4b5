from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kdissect import dissect, open_capture, summarize
from kdissect.model import Embedded
from kdissect.stats.findings.members import MixedGroup, RevocationHeld
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
