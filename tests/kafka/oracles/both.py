"""Their bytes against our two decoders and our encoder."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kdissect.kafka.compiler import decoder
from kdissect.kafka.primitives import DecodeBudget
from kdissect.kafka.walker import walk
from tests.kafka.encoder import encoder

if TYPE_CHECKING:
    from kdissect.kafka.schema import Message
    from kdissect.model import Body

LETTERS = "abc._- \x00éßЖ中文𝄞🐘"
RENAMED = {
    ("acceptable_recovery_lag", "acceptable_recovery_lag_legacy"),
    ("authorized_operations", "cluster_authorized_operations"),
    ("authorized_operations", "topic_authorized_operations"),
    ("generation_id", "generation_id_or_member_epoch"),
}
"""(theirs, ours): Kafka renamed a field after kio's release, or kafka-python changes names."""


def check(message: Message, version: int, raw: bytes, expected: Body, *, canonical: bool = True) -> None:
    """``raw`` is ``expected``, whole, to compiled code, to the walker and to our encoder."""
    body, end = decoder(message, version)(raw, 0, DecodeBudget())
    walked = walk(message, version, raw)
    assert body == expected
    assert end == len(raw)
    assert walked.error is None
    assert walked.value == expected
    assert walked.end == len(raw)
    if canonical:
        assert encoder(message, version)(expected) == raw


def same_name(theirs: str, ours: str) -> bool:
    """Whether two names are one, spelled differently: ``isr_nodes`` and ``isrNodes``, ``timeout``."""
    if (theirs, ours) in RENAMED:
        return True
    left, right = (name.replace("_", "").lower() for name in (theirs, ours))
    return left == right or f"{left}ms" == right
