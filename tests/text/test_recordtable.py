from __future__ import annotations

import io
import re

from kdissect.phrases import columns_of
from kdissect.text.style import COLORED, PLAIN, Times
from kdissect.text.table import RecordTable
from tests.record_batches import COMMIT_KEY, CONTROL, Item, batch
from tests.record_exchanges import fetch, opened, produce

TRACE = b"0af7651916cd43dd8448eb211c80319c"
MARK = batch([Item(COMMIT_KEY, b"\0\0\0\0\0\7")], flags=CONTROL)


def lines(
    raw: bytes,
    *,
    width: int | None = None,
    topic: str = "orders",
    aborted: bool = False,
    color: bool = False,
) -> list[str]:
    partition = {"aborted_transactions": [{"producer_id": 9, "first_offset": 0}]} if aborted else None
    out = io.StringIO()
    table = RecordTable(out, Times("u"), width=width, style=COLORED if color else PLAIN, heading=bool(width))
    for record in opened(fetch(raw, topic=topic, partition=partition)):
        table.feed(record)
    table.close()
    return out.getvalue().splitlines()


def test_a_line() -> None:
    raw = batch([Item(b"key", b"value"), Item(None, None), Item(b"", b"")], base_offset=7)
    assert lines(raw) == [
        "14:13:20.128456  Fetch    orders-3              7           key               value",
        "14:13:20.128456  Fetch    orders-3              8           NULL              NULL",
        '14:13:20.128456  Fetch    orders-3              9           ""                ""',
    ]


def test_null_empty_and_texts_that_look_like_them_differ() -> None:
    texts = [None, b"", b"NULL", b'""', b'"NULL"', b'"\\"\\""', b"-", b"null", b'"a"']
    shown = [line.split()[-1] for line in lines(batch([Item(b"k", text) for text in texts]))]
    quoted_empty, quoted_twice = r'"\"\""', r'"\"\\\"\\\"\""'
    expected = ["NULL", '""', '"NULL"', quoted_empty, r'"\"NULL\""', quoted_twice, "-", "null", '"a"']
    assert shown == expected
    assert len(set(shown)) == len(texts)
    (line,) = lines(batch([Item(None, None)]), color=True)
    assert "\x1b[2mNULL" in line


def test_the_value_has_the_room_of_schemas_and_traces() -> None:
    value = b"\0\0\0\0\7" + b"v" * 40
    headers = ((b"traceparent", b"00-" + TRACE + b"-b7ad6b7169203331-01"),)
    (line,) = lines(batch([Item(b"k", value, headers)]), width=80)[1:]
    assert (columns_of(line), "schema" in line, "trace" in line) == (80, False, False)
    (line,) = lines(batch([Item(b"k", value, headers)]), width=200)[1:]
    assert line.endswith(f"{'v' * 40}  schema 7  trace {TRACE.decode()}")


def test_an_offset_is_never_cut() -> None:
    (line,) = lines(batch([Item(b"k", b"v")], base_offset=123_456_789_012), width=80)[1:]
    assert " 123456789012 k" in line


def test_a_terminal_has_headings_and_an_edge() -> None:
    shown = lines(batch([Item(b"k" * 100, "世".encode() * 100), Item(b"k", b"v" * 5000)]), width=80)
    assert shown[0] == "TIME (UTC)      API     PARTITION    OFFSET  KEY        VALUE"
    assert [columns_of(line) <= 80 and line.endswith("…") for line in shown[1:]] == [True, True]
    assert "k… 世" in shown[1]


def test_a_narrow_terminal() -> None:
    assert all(columns_of(line) <= 60 for line in lines(batch([Item(b"k" * 90)]), width=60, topic="t" * 200))


def test_elsewhere_nothing_is_cut() -> None:
    assert lines(batch([Item(b"k" * 100, b"v" * 5000)]))[0].endswith("k" * 100 + "  " + "v" * 5000)


def test_rejected_records() -> None:
    def end(error_code: int) -> str:
        out = io.StringIO()
        table = RecordTable(out, Times("u"))
        (record,) = opened(produce(batch([Item(b"k", b"v")]), {"error_code": error_code, "base_offset": -1}))
        table.feed(record)
        return out.getvalue().removesuffix("\n").partition("v")[2]

    assert end(0) == ""
    assert end(-1) == "  [rejected: UNKNOWN_SERVER_ERROR]"
    assert end(20) == "  [unconfirmed: NOT_ENOUGH_REPLICAS_AFTER_APPEND]"


def test_control_records_have_names() -> None:
    assert lines(MARK)[0].endswith("  -                 control COMMIT")


def test_aborted_records_are_marked() -> None:
    raw = batch([Item(b"k", b"v" * 100)], producer_id=9, flags=0x10)
    assert lines(raw, aborted=True)[0].endswith("v  [aborted]")
    assert lines(raw, aborted=True, width=80)[1].endswith("v… [aborted]")


def test_nothing_from_the_wire_moves_the_cursor() -> None:
    raw = batch([Item(b"\x1b]0;x\x07", b"a\r\nb\x1b[2J\xc2\x9b\xff\xe2\x80\xae")])
    for width in (None, 120):
        line = lines(raw, width=width, topic="\x1b[31m")[-1]
        assert line.isprintable()
        assert "\\x1b]0;x\\x07" in line
        assert "a\\r\\nb\\x1b[2J\\x9b\\xff\\u202e" in line


def test_a_credential_is_redacted() -> None:
    assert lines(batch([Item(None, b"secret")]), topic="__cluster_metadata")[0].endswith("redacted (6 bytes)")


def test_an_internal_record_is_decoded() -> None:
    raw = batch([Item(b"\0\2\0\2g1", None)])
    line = lines(raw, topic="__consumer_offsets")[0]
    assert line.endswith('{"_message":"GroupMetadataKey","_version":0,"group":"g1"}  NULL')


def test_schemas_and_traces_are_named() -> None:
    headers = ((b"traceparent", b"00-" + TRACE + b"-b7ad6b7169203331-01"),)
    raw = batch([Item(b"\0\0\0\0\3k", b"\0\0\0\0\x11" + b"v" * 99, headers)])
    trace = TRACE.decode()
    assert lines(raw)[0].endswith(f"v  key schema 3  schema 17  trace {trace}")
    assert lines(raw, width=180)[1].endswith(f"…  key schema 3  schema 17  trace {trace}")
    assert lines(raw, width=112)[1].endswith("… schema 17 trace 0af76519…")


def test_the_most_important_mark_stays_where_there_is_little_room() -> None:
    headers = ((b"traceparent", b"00-" + TRACE + b"-b7ad6b7169203331-01"),)
    raw = batch([Item(b"k", b"\0\0\0\0\x11" + b"v" * 99, headers)], crc=1, producer_id=9, flags=0x10)
    shown = lines(raw, width=80, aborted=True)[1]
    assert shown.endswith(" ! crc_mismatch")
    for width in range(40, 120):
        plain, colored = (lines(raw, width=width, aborted=True, color=color)[1] for color in (False, True))
        assert columns_of(plain) <= width
        assert re.sub(r"\x1b\[[\d;]*m", "", colored) == plain


def test_anomalies_of_the_batch() -> None:
    raw = batch([Item()], crc=1, count=3)
    assert lines(raw)[0].endswith("value  ! crc_mismatch  ! wrong_record_count")


def test_colors() -> None:
    raw = batch([Item()], crc=1)
    shown = lines(raw, width=100, color=True)
    assert shown[0].startswith("\x1b[2mTIME")
    assert shown[1].endswith(" \x1b[1;33m! crc_mismatch\x1b[0m")
    assert "\x1b" not in "".join(lines(raw, width=100))
    assert "\x1b" not in lines(batch([Item(b"k")]), width=100, color=True)[1]
