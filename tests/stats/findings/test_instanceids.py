from __future__ import annotations

from kdissect.stats.findings.consumers import InstanceIds
from tests.findings import findings_of
from tests.producers import facts_of

FENCED_INSTANCE_ID, UNKNOWN_MEMBER_ID = 82, 25
REQUEST = {"group_id": "g", "generation_id": 1, "member_id": "m", "group_instance_id": "static-1"}


def test_a_static_member_that_was_fenced() -> None:
    (row,) = findings_of(
        InstanceIds, [facts_of("Heartbeat", 3, 1, REQUEST, {"error_code": FENCED_INSTANCE_ID})]
    )
    assert row.subject == "group g, instance static-1, client payments"
    assert row.severity == "error"
    assert "once" in row.message


def test_members_that_only_have_to_join_again() -> None:
    assert (
        findings_of(InstanceIds, [facts_of("Heartbeat", 3, 1, REQUEST, {"error_code": UNKNOWN_MEMBER_ID})])
        == []
    )
    assert findings_of(InstanceIds, [facts_of("Heartbeat", 3, 1, REQUEST, {"error_code": 0})]) == []
