from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from kdissect.capture.reader import open_capture
from kdissect.limits import DEFAULT
from kdissect.pipeline import Dissection
from kdissect.stats.summarizer import Summarizer

if TYPE_CHECKING:
    from kdissect.stats.document import FindingRow

FIELD = Path(__file__).resolve().parents[2] / "field"


def summarized(name: str) -> Summarizer:
    summarizer = Summarizer(DEFAULT, parts=frozenset({"findings", "lag"}))
    with open_capture(str(FIELD / f"{name}.pcap")) as capture:
        for exchange in Dissection(capture.packet_blocks()):
            summarizer.feed(exchange)
    summarizer.settle()
    return summarizer


def findings(name: str) -> list[FindingRow]:
    rows: list[FindingRow] = summarized(name).parts["findings"].rows()
    return rows


def test_a_consumer_that_does_not_get_past_a_compacted_batch() -> None:
    summarizer = summarized("compacted-tail-stuck")
    (row,) = summarizer.parts["findings"].rows()
    assert (row.rule, row.severity, row.count) == ("consumer-stuck", "warning", 29)
    assert row.subject == "client backup, partition state-0"
    assert row.message == "30 fetches in a row from offset 120, although records came; its lag is 4,880"
    (lag,) = summarizer.parts["lag"].rows()
    assert (lag.position, lag.lag) == (120, 4880)


def test_records_sent_again_after_an_epoch_bump() -> None:
    rows = [row for row in findings("idempotent-epoch-bump-duplicates") if row.rule == "epoch-duplicates"]
    (row,) = rows
    assert (row.severity, row.count) == ("warning", 2)
    assert row.subject == "client prod, partition seqs-0"
