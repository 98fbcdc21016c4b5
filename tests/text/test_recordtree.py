from __future__ import annotations

import io
from typing import TYPE_CHECKING, Any

from kdissect.text.style import COLORED, Times
from kdissect.text.tree import RecordTree
from tests.exchange_factory import START_NS
from tests.record_batches import BASE_MS, LZ4, Item, batch
from tests.record_exchanges import fetch, opened, produce, snapshot

if TYPE_CHECKING:
    from kdissect.model import Exchange

TRACE, SPAN = b"0af7651916cd43dd8448eb211c80319c", b"b7ad6b7169203331"


def lines(exchange: Exchange, **options: Any) -> list[str]:
    out = io.StringIO()
    tree = RecordTree(out, Times(), **options)
    for record in opened(exchange):
        tree.feed(record)
    tree.close()
    return out.getvalue().splitlines()


def test_a_complete_record() -> None:
    headers = ((b"traceparent", b"00-" + TRACE + b"-" + SPAN + b"-01"), (b"null", None))
    item = Item(b"\0\0\0\0\3k", b"\0\0\0\0\x11{}", headers)
    exchange = fetch(
        batch([item], base_offset=7, codec=LZ4, producer_id=9, producer_epoch=0, base_sequence=4)
    )
    exchange.client_id = "app"
    shown = lines(exchange)
    assert shown[2].startswith("  batch: offsets 7 to 7, 1 record, ")
    assert shown[2].endswith(" bytes, lz4, CreateTime, producer 9 epoch 0 sequence 4, leader epoch 0")
    del shown[2]
    assert shown == [
        "topic orders, partition 3, offset 7",
        '  fetched by: Fetch c0ffee/1, 2026-09-21T14:13:20.128456Z, client ID "app"',
        "  timestamp: 2023-11-14T22:13:20.000Z",
        "  sequence: 4",
        '  key: "\\x00\\x00\\x00\\x00\\x03k"',
        "  headers: [2]",
        f'    traceparent: "00-{TRACE.decode()}-{SPAN.decode()}-01"',
        "    null: null",
        "  key schema: 3",
        "  schema: 17",
        f"  trace: {TRACE.decode()} (w3c)",
        '  value: "\\x00\\x00\\x00\\x00\\x11{}"',
    ]


def test_offsets_without_a_response() -> None:
    shown = lines(produce(batch([Item(None, b"\xff\x00")], crc=1)))
    assert shown[0] == "topic orders, partition 3, offset unknown"
    assert shown[1].startswith("  sent in: Produce c0ffee/1, ")
    assert shown[2].startswith("  batch: 1 record, ")
    assert shown[3] == "  ! crc_mismatch: batch at byte 0: CRC32C stored 1, computed 982733180"
    assert shown[-2:] == ["  key: null", "  value: 2 bytes: ff 00"]


def test_a_snapshot_has_no_offsets() -> None:
    raw = batch([Item()])
    assert lines(snapshot(raw, 0, len(raw)))[0] == "topic __cluster_metadata, partition 0, in a snapshot"


def test_an_internal_record_is_decoded() -> None:
    exchange = fetch(batch([Item(b"\0\2\0\2g1", None)]), topic="__consumer_offsets")
    assert lines(exchange)[-5:] == [
        "  key: 6 bytes: 00 02 00 02 67 31",
        '    (message): "GroupMetadataKey"',
        "    (version): 0",
        '    group: "g1"',
        "  value: null",
    ]


def test_long_values_are_cut_unless_full() -> None:
    exchange = fetch(batch([Item(value=b"x" * 5000)]))
    assert lines(exchange)[-1].endswith(" more characters")
    assert lines(exchange, full=True)[-1] == f'  value: "{"x" * 5000}"'


def test_an_empty_line_between_two_and_colors() -> None:
    exchange = fetch(batch([Item(), Item()], crc=1))
    assert lines(exchange).count("") == 1
    assert lines(exchange, style=COLORED)[0].startswith("\x1b[1m")
    assert "\x1b" not in "".join(lines(exchange))


def test_the_wire_cannot_write_escape_sequences() -> None:
    nasty = b"\x1b]0;x\x07\n"
    exchange = fetch(batch([Item(nasty, nasty, ((nasty, nasty),))]), topic=nasty.decode())
    exchange.client_id = nasty.decode()
    assert all(line.isprintable() for line in lines(exchange))


def test_a_rejected_record() -> None:
    shown = lines(produce(batch([Item()]), {"error_code": 29, "base_offset": -1}))
    assert shown[2] == "  rejected: TOPIC_AUTHORIZATION_FAILED"


def test_a_record_with_its_latency() -> None:
    fetched = fetch(batch([Item()], base_offset=7))
    fetched.produced_ns = {("orders", 3, 7, BASE_MS): START_NS}
    assert lines(fetched)[2] == "  end-to-end latency: 5.00ms"
