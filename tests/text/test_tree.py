from __future__ import annotations

import io
import re
from typing import TYPE_CHECKING, Any

import pytest

from kdissect.kafka.bodies import decode_exchange
from kdissect.kafka.headers import read_request_header
from kdissect.kafka.internal.payloads import open_payloads
from kdissect.model import ANSWERED, ORPHAN, Anomaly, Exchange, Frame, Interface
from kdissect.phrases import columns_of
from kdissect.tables.record_bodies import Opener
from kdissect.text.style import BOLD, COLORED, Times, folded, unpainted
from kdissect.text.tree import ExchangeTree
from tests.exchange_factory import START_NS, connection, exchange
from tests.frames import request_payload, response_payload
from tests.record_batches import Item, batch

if TYPE_CHECKING:
    from kdissect.model import Body

CAPTURE = Interface("test.pcap", 0, 1)


def framed(payload: bytes, packet: int, time_ns: int = START_NS, size: int | None = None) -> Frame:
    return Frame(payload, len(payload) if size is None else size, packet, CAPTURE, time_ns, time_ns)


def real(
    api: int,
    version: int,
    request_body: Body,
    response_body: Body,
    *,
    trailing: bytes = b"",
    show_secrets: bool = False,
) -> Exchange:
    """An exchange of frames from our own encoder, decoded as in the pipeline."""
    request = request_payload(api, version, request_body, correlation_id=7, client_id="web-shop")
    response = response_payload(api, version, response_body, correlation_id=7) + trailing
    header = read_request_header(request)
    exchange = Exchange(
        connection=connection(),
        number=12,
        kind=ANSWERED,
        request_frame=framed(request, 41),
        response_frame=framed(response, 43, START_NS + 1_500_000),
        api_key=api,
        api_version=version,
        correlation_id=7,
        client_id=header.client_id,
    )
    decode_exchange(exchange, show_secrets=show_secrets)
    return exchange


def tree(*exchanges: Exchange, **options: Any) -> list[str]:
    out = io.StringIO()
    sink = ExchangeTree(out, Times(), **options)
    for each in exchanges:
        sink.feed(each)
    sink.close()
    return out.getvalue().splitlines()


HEARTBEAT = real(12, 4, {"group_id": "shipping", "member_id": "m-1"}, {"error_code": 27}, trailing=b"\0\1\2")


def test_a_complete_exchange() -> None:
    HEARTBEAT.client_software_name, HEARTBEAT.client_software_version = "librdkafka", "2.16.0"
    assert tree(HEARTBEAT) == [
        "c0ffee/12  Heartbeat v4  response after 1.50ms",
        "  time:   2026-09-21T14:13:20.123456Z, packet 41 of test.pcap",
        '  client: 10.0.0.5:41234, client ID "web-shop", librdkafka 2.16.0',
        "  broker: 10.0.0.1:9092",
        "  ! trailing_bytes (note) in response, 3 bytes after the complete body",
        "  request: 42 bytes",
        "    request_api_key: 12 (Heartbeat)",
        "    request_api_version: 4",
        "    correlation_id: 7",
        '    client_id: "web-shop"',
        '    group_id: "shipping"',
        "    generation_id: 0",
        '    member_id: "m-1"',
        "    group_instance_id: null",
        "  response: 19 bytes",
        "    correlation_id: 7",
        "    throttle_time_ms: 0",
        "    error_code: 27 (REBALANCE_IN_PROGRESS)",
        "    (trailing): 3 bytes: 00 01 02",
    ]


def test_with_the_bytes() -> None:
    shown = [line.rstrip() for line in tree(HEARTBEAT, show_bytes=True)]
    assert shown[6:12] == [
        "000000  00 0c                    request_api_key: 12 (Heartbeat)",
        "000002  00 04                    request_api_version: 4",
        "000004  00 00 00 07              correlation_id: 7",
        '000008  00 08 77 65 62 2d 73 68  client_id: "web-shop"',
        "000010  6f 70",
        "000012  00                       _tags: 0",
    ]
    assert shown[-4:] == [
        "000005  00 00 00 00              throttle_time_ms: 0",
        "000009  00 1b                    error_code: 27 (REBALANCE_IN_PROGRESS)",
        "00000b  00                       _tags: 0",
        "    (trailing): 3 bytes: 00 01 02",
    ]


def test_an_empty_line_between_two() -> None:
    assert tree(HEARTBEAT, HEARTBEAT).count("") == 1


def test_exchanges_without_one_of_the_two() -> None:
    payload = response_payload(12, 4, {}, correlation_id=7)
    orphan = Exchange(
        connection(), 1, ORPHAN, None, framed(payload, 3), None, None, 7, response={"_undecoded": b"1"}
    )
    shown = tree(orphan)
    assert shown[0] == "c0ffee/1  -  orphan"
    assert shown[-3:] == ["  response: 16 bytes", "    correlation_id: 7", "    (not decoded): 1 byte: 31"]
    unanswered = tree(exchange("Metadata", 9, {"topics": None}))
    assert unanswered[0] == "c0ffee/1  Metadata v9  no response"
    assert "  response" not in "".join(unanswered)
    token = tree(exchange(None, request={"sasl_token": b"1"}))
    assert token[-1] == "    (SASL token): 1 byte: 31"


def test_truncated_frames() -> None:
    cut = exchange("Metadata", 9, {"topics": None})
    assert cut.request_frame is not None
    assert "  request: 100 bytes, 96 of them not captured" in tree(cut)


@pytest.mark.parametrize("show_bytes", [False, True])
def test_a_credential_is_shown_only_on_request(show_bytes: bool) -> None:
    request_body = {"auth_bytes": b"\0alice\0hunter2"}
    hidden = "\n".join(tree(real(36, 2, request_body, {}), show_bytes=show_bytes))
    assert "redacted (14 bytes)" in hidden
    assert b"hunter2".hex(" ") not in hidden
    shown = tree(real(36, 2, request_body, {}, show_secrets=True), show_bytes=show_bytes, show_secrets=True)
    assert (
        b"hunter2".hex() in "".join(line.replace(" ", "") for line in shown if "auth" in line) or show_bytes
    )


def test_the_wire_cannot_write_escape_sequences() -> None:
    nasty = "\x1b]0;title\x07\n\u202e"
    odd = real(3, 4, {"topics": [{"name": nasty}]}, {"cluster_id": nasty})
    odd.client_id = odd.client_software_name = odd.principal = odd.sasl_mechanism = nasty
    odd.anomalies.append(Anomaly("trailing_bytes", f"response.{nasty}", nasty))
    for show_bytes in (False, True):
        assert all(line.isprintable() for line in tree(odd, show_bytes=show_bytes))


def test_colors() -> None:
    shown = tree(HEARTBEAT, style=COLORED)
    assert shown[0].startswith("\x1b[1m")
    assert shown[4].startswith("  \x1b[33m! trailing_bytes")
    assert "\x1b" not in "".join(tree(HEARTBEAT))


def test_forwarded_requests_have_names_for_numbers() -> None:
    request_body = {
        "request_data": request_payload(19, 4, {"topics": [{"name": "orders"}]}, client_id="admin")
    }
    response_body = {
        "response_data": response_payload(19, 4, {"topics": [{"name": "orders", "error_code": 36}]})
    }
    exchange = real(58, 0, request_body, response_body)
    for show_bytes in (False, True):
        shown = [line.strip() for line in tree(exchange, show_bytes=show_bytes)]
        assert "request_api_key: 19 (CreateTopics)" in shown
        assert '[0] name: "orders", error_code: 36 (TOPIC_ALREADY_EXISTS), error_message: null' in shown


def test_embedded_messages_are_below_their_bytes() -> None:
    subscription = b"\0\0\0\0\0\1\0\6orders\xff\xff\xff\xff"
    protocols = [{"name": "range", "metadata": subscription}, {"name": "sticky", "metadata": b"?"}]
    exchange = real(11, 5, {"protocol_type": "consumer", "protocols": protocols}, {})
    open_payloads(exchange)
    shown = tree(exchange, show_bytes=True)
    at = next(number for number, line in enumerate(shown) if " metadata: 18 bytes: " in line)
    assert shown[at + 3 : at + 7] == [
        " " * 39 + '(message): "ConsumerProtocolSubscription"',
        " " * 39 + "(version): 0",
        " " * 39 + 'topics: ["orders"]',
        " " * 39 + "user_data: null",
    ]
    assert [line for line in shown[at + 7 :] if "(message)" in line] == []


def test_records_are_shown_on_request() -> None:
    raw = batch([Item(b"k", b"hunter2")])
    partitions = [{"partition_index": 3, "records": raw}]
    for topic, value in (("orders", '"hunter2"'), ("__cluster_metadata", "redacted (7 bytes)")):
        exchange = real(1, 11, {}, {"responses": [{"topic": topic, "partitions": partitions}]})
        for show_bytes in (False, True):
            shown = tree(exchange, show_bytes=show_bytes, opener=Opener())
            assert len([line for line in shown if line.endswith(f"value: {value}")]) == 1
            assert "value: " not in "".join(tree(exchange, show_bytes=show_bytes))


def test_long_lines_are_broken_at_the_width_of_the_terminal() -> None:
    words = " ".join(f"word{number}" for number in range(30))
    lines = folded(f"    name: {words}", 60)
    assert max(map(columns_of, lines)) <= 60
    assert [line[:6].strip() for line in lines[1:]] == [""] * (len(lines) - 1)
    assert " ".join(" ".join(lines).split()) == f"name: {words}"
    assert folded("short", 60) == ["short"]
    dump = "0000a0  00 01 02 03              key: " + "x" * 80
    first, *rest = folded(dump, 70)
    assert (first, rest[0][:35], max(map(columns_of, rest)) <= 70) == (dump[:70], " " * 35, True)


def test_color_does_not_change_where_lines_break() -> None:
    plain = "  a: " + ", ".join(f"field{number}: {number}" for number in range(20))
    colored = re.sub(
        r"(?<=: )(\d+)", lambda match: COLORED.paint(match[1], BOLD), plain.replace("  a: ", "  a: ", 1)
    )
    assert [unpainted(line) for line in folded(colored, 50)] == folded(plain, 50)


def test_errors_and_values_that_are_no_defaults_are_in_color() -> None:
    out = io.StringIO()
    body = {"throttle_time_ms": 0, "error_code": 27}
    tree = ExchangeTree(out, Times(), style=COLORED)
    tree.feed(exchange("Heartbeat", 3, {"group_id": "g", "generation_id": 7, "member_id": ""}, body))
    text = out.getvalue()
    assert "error_code: \x1b[1;31m27 (REBALANCE_IN_PROGRESS)\x1b[0m\n" in text
    assert "generation_id: \x1b[1m7\x1b[0m\n" in text
    assert "throttle_time_ms: 0\n" in text
    assert 'member_id: ""\n' in text
