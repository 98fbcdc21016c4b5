from __future__ import annotations

import io
import re
from typing import TYPE_CHECKING, Any

import pytest

from kdissect.kafka.records import RecordData
from kdissect.model import UNACKNOWLEDGED, Anomaly, ConnectionInfo, Endpoint
from kdissect.phrases import columns_of
from kdissect.text.style import COLORED, PLAIN, Times
from kdissect.text.table import ExchangeTable
from tests.exchange_factory import connection, exchange

if TYPE_CHECKING:
    from kdissect.model import Exchange

ODD = Anomaly("trailing_bytes", "response", "3 bytes after the complete body")
WORSE = Anomaly("malformed_body", "response", "a length of -7")


def metadata(**attributes: Any) -> Exchange:
    response = {"brokers": [{}], "topics": [{"error_code": 3, "name": "orders"}]}
    return exchange(
        "Metadata", 9, {"topics": [{"name": "orders"}]}, response, client_id="web-shop", **attributes
    )


def produce(**attributes: Any) -> Exchange:
    partition = {"index": 0, "records": RecordData(b"", 0, 0)}
    request = {"acks": 0, "topic_data": [{"name": "orders", "partition_data": [partition]}]}
    return exchange("Produce", 9, request, **attributes)


def lines(*exchanges: Exchange, width: int | None = None, color: bool = False) -> list[str]:
    out = io.StringIO()
    table = ExchangeTable(
        out, Times("u"), width=width, style=COLORED if color else PLAIN, heading=bool(width)
    )
    for each in exchanges:
        table.feed(each)
    table.close()
    return out.getvalue().splitlines()


ENDS = f"{'10.0.0.5:41234':21}  {'10.0.0.1:9092':21}"
PIPED = f"""\
14:13:20.123456  {ENDS}  web-shop              Metadata v9         5.00ms       orders -> 1 broker
14:13:20.123456  {ENDS}  -                     Produce v9          acks=0       orders-0, no records
14:13:20.123456  {ENDS}  -                     Produce v9          no response  orders-0, no records
14:13:20.123456  {ENDS}  -                     -                   orphan       response 7, 24 B, \
request not captured
14:13:20.123456  {ENDS}  -                     SASL token          no response  20 B token
"""


def test_without_a_width_all_columns() -> None:
    shown = lines(
        exchange("Metadata", 9, {"topics": [{"name": "orders"}]}, {"brokers": [{}]}, client_id="web-shop"),
        produce(kind=UNACKNOWLEDGED),
        produce(),
        exchange(None, response={"_undecoded": b"1"}, correlation_id=7, response_size=20),
        exchange(None, request={"sasl_token": b"1"}, request_size=20),
    )
    assert shown == PIPED.splitlines()


def test_errors_and_marks_end_the_line() -> None:
    shown = lines(metadata(anomalies=[ODD, WORSE, ODD]))[0]
    assert shown.endswith("0 partitions  UNKNOWN_TOPIC_OR_PARTITION  ! trailing_bytes  ! malformed_body")


def test_two_blanks_end_a_column_and_no_column_is_empty() -> None:
    for line in lines(metadata(), produce(), exchange(None, response={}, correlation_id=7)):
        assert len(re.split(" {2,}", line)) in (7, 8)


@pytest.mark.parametrize(
    ("width", "heading"),
    [
        (80, "TIME (UTC)   CLIENT        API              LATENCY ABOUT"),
        (120, "TIME (UTC)       CLIENT              CLIENT ID       API               LATENCY      ABOUT"),
        (
            200,
            f"{'TIME (UTC)':17}{'CLIENT':21}  {'BROKER':21}  {'CLIENT ID':20}  {'API':20}LATENCY      ABOUT",
        ),
    ],
)
def test_the_columns_that_fit(width: int, heading: str) -> None:
    out = io.StringIO()
    table = ExchangeTable(
        out, Times("u", digits=3 if width == 80 else 6, in_column=True), width=width, heading=True
    )
    table.feed(metadata())
    shown = out.getvalue().splitlines()
    assert shown[0] == heading
    assert max(map(len, shown)) <= width


@pytest.mark.parametrize("width", [80, 119, 120, 160, 200])
def test_whatever_is_on_the_wire_a_line_of_a_terminal_fits(width: int) -> None:
    long = ConnectionInfo(
        "id", Endpoint("2001:db8:aaaa:bbbb:cccc:dddd:eeee:ffff", 41234), connection().broker
    )
    groups = [{"group_id": "中文" * 80}]
    shown = lines(
        exchange("OffsetFetch", 8, {"groups": groups}, connection=long, client_id="consumer-" * 9),
        exchange("GetTelemetrySubscriptions", 0, {"client_instance_id": "x" * 22}, client_id="中文" * 30),
        exchange("Heartbeat", 3, {"group_id": "g" * 300}, {}, client_id="x"),
        width=width,
    )
    assert max(columns_of(line) for line in shown) <= width
    assert "GetTelemetr" in shown[2]
    assert " v0" in shown[2]
    assert "…" in shown[1]


ERROR, MARK = "UNKNOWN_TOPIC_OR_PARTITION", "! malformed_body"


@pytest.mark.parametrize(
    ("width", "end"),
    [
        (159, f"5.00ms       orders -> …  {ERROR}  ! trailing_bytes  {MARK}"),
        (139, f"5.00ms       {ERROR}  ! trailing_bytes  ! malfor…"),
        (107, f"5.00ms  orders … {ERROR} {MARK}"),
        (99, f"5.00ms  orders … {ERROR} ! malfo…"),
        (87, "5.00ms  orders … UNKNOWN_TOPIC_O… ! mal…"),
        (67, "5.00ms  UNKNOWN_TOP…"),
    ],
)
def test_errors_are_cut_last_and_the_line_never_wraps(width: int, end: str) -> None:
    shown = lines(metadata(anomalies=[ODD, WORSE]), width=width)[1]
    assert columns_of(shown) <= width
    assert shown.endswith(end)


@pytest.mark.parametrize("width", [60, 80, 100, 120, 160, 240])
def test_a_line_with_all_that_can_go_wrong_fits(width: int) -> None:
    response = {"topics": [{"error_code": code} for code in range(1, 60)]}
    many = exchange("Metadata", 9, {}, response, client_id="c" * 99, anomalies=[ODD, WORSE])
    assert {columns_of(line) <= width for line in lines(many, many, width=width)} == {True}


def test_columns_have_fixed_widths_which_a_cell_exceeds_in_a_pipe_alone() -> None:
    exchanges = metadata(), produce(client_id="a-longer-client-id" * 2), metadata()
    for width in (200, None):
        shown = [line for line in lines(*exchanges, width=width) if "TIME" not in line]
        first, long, last = (line.index(api) for line, api in zip(shown, APIS, strict=True))
        assert first == last
        assert long == first if width else long > first


APIS = ("Metadata v9", "Produce v9", "Metadata v9")


def test_colors_only_on_request_and_for_errors() -> None:
    plain, colored = (
        lines(metadata(anomalies=[WORSE]))[0],
        lines(metadata(anomalies=[WORSE]), color=True)[0],
    )
    assert re.findall("\x1b\\[([1-9][0-9;]*)m([^\x1b]+)", colored) == [
        ("1;31", "UNKNOWN_TOPIC_OR_PARTITION"),
        ("1;31", "! malformed_body"),
    ]
    assert re.sub("\x1b\\[[0-9;]*m", "", colored) == plain
    assert "\x1b[33mno response\x1b[0m" in lines(produce(), color=True)[0]


def test_the_wire_cannot_write_escape_sequences() -> None:
    nasty = "\x1b]0;title\x07\n\u202e"
    shown = lines(exchange("DeleteTopics", 4, {"topic_names": [nasty]}, client_id=nasty), width=200)[1:]
    assert len(shown) == 1
    assert shown[0].isprintable()
    assert "\\x1b]0;title\\x07\\n\\u202e" in shown[0]


def test_at_80_columns_the_text_is_kept_before_notes() -> None:
    note, error = Anomaly("truncated_body", "response", "x"), Anomaly("malformed_body", "response", "x")
    text = lines(produce())[0].split("  ")[-1]
    (line,) = lines(produce(anomalies=[note]), width=80)[1:]
    assert (columns_of(line) <= 80, line.endswith(" !"), text[:12] in line) == (True, True, True)
    (line,) = lines(produce(anomalies=[note, error]), width=80)[1:]
    assert (columns_of(line) <= 80, text[:7] in line) == (True, True)
    assert "! malfo" in line
    assert lines(produce(anomalies=[note]), width=160)[1].endswith("  ! truncated_body")
