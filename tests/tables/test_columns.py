from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from kdissect.errors import UsageError
from kdissect.model import Anomaly, Frame
from kdissect.query.where import compile_where
from kdissect.tables import columns
from kdissect.tables.columns import DATE, INT16, INT32, INT64, OBJECT, STRING, TIMESTAMP, Array, Scalar
from kdissect.tables.lines import CsvLines, JsonLines
from tests.exchange_factory import INTERFACE, exchange, frame

# The contract, repeated: a change here breaks programs that read our output.
CONTRACT = """\
capture string, connection string, number int64, packet int64, kind string, outcome string, time timestamp
latency_us int64
queued_us int64, throttled_us int64, network_us int64, wait_us int64, service_us int64
think_us int64, request_transfer_us int64, response_transfer_us int64, total_us int64
client_ip string, client_port int32, broker_ip string, broker_port int32
cluster_id string
hop_ip string, hop_port int32
proxy PROXY, community_id string
client_id string, client_software_name string, client_software_version string
principal string, sasl_mechanism string
api string, api_key int16, api_version int16, correlation_id int32, request_bytes int64, response_bytes int64
request_size int32, request_received int64, response_size int32, response_received int64
topics array<string>, group_id string, transactional_id string, errors array<string>
expected_errors array<string>
throttle_time_ms int32
records int64, records_bytes int64, request object, response object
anomalies array<struct<kind:string;where:string;detail:string>>"""

PROXY = (
    "struct<version:int32;server_name:string;alpn:string;tls_version:string;common_name:string;"
    "aws_endpoint_id:string>"
)

PYTHON_TYPES = {STRING: str, INT16: int, INT32: int, INT64: int, TIMESTAMP: int, DATE: str, OBJECT: dict}


def test_names_and_types_are_the_contract() -> None:
    named = CONTRACT.replace("PROXY", PROXY)
    contract = [tuple(entry.split()) for line in named.splitlines() for entry in line.split(", ")]
    assert [(c.name, str(c.type).replace(",", ";")) for c in columns.EXCHANGE] == contract


def test_names_are_unique_in_any_case() -> None:
    names = [column.name.lower() for column in columns.EXCHANGE]
    assert len(names) == len(set(names))


def test_values_have_their_columns_types() -> None:
    full = exchange(
        "Metadata",
        9,
        {"topics": [{"name": "orders"}]},
        {"throttle_time_ms": 0, "topics": [{"error_code": 3}]},
        client_id="app",
        anomalies=[Anomaly("trailing_bytes", "request", "3 bytes")],
    )
    for column in columns.EXCHANGE:
        value = column.get(full)
        if isinstance(column.type, Array):
            assert isinstance(value, list), column.name
        elif value is not None:
            assert isinstance(column.type, Scalar)
            assert isinstance(value, PYTHON_TYPES[column.type]), column.name


@pytest.mark.parametrize(
    ("name", "shown"),
    [("a.pcap", "a.pcap"), ("f\u00fcr.pcap", "f\u00fcr.pcap"), ("\udcff\udc80.pcap", "\\udcff\\udc80.pcap")],
)
def test_a_file_can_have_any_name(name: str, shown: str) -> None:
    example = exchange()
    example.request_frame = frame()._replace(interface=replace(INTERFACE, capture=name))
    (column,) = (column for column in columns.EXCHANGE if column.name == "capture")
    assert column.get(example) == shown
    for sink in (JsonLines, CsvLines):
        chunks: list[bytes] = []
        lines = sink(chunks.append)
        lines.feed(example)
        lines.close()
        assert shown.encode() in b"".join(chunks).replace(b"\\\\", b"\\")


def test_orphan() -> None:
    example = exchange(None, response={}, correlation_id=7)
    row = {column.name: columns.text_getter(column)(example) for column in columns.EXCHANGE}
    assert row["kind"] == "orphan"
    assert row["packet"] == 9
    assert row["time"] == "2026-09-21T14:13:20.123456Z"
    absent = ("latency_us", "api", "api_key", "api_version", "client_id", "request_bytes", "request")
    assert [row[name] for name in absent] == [None] * len(absent)
    assert (row["correlation_id"], row["response_bytes"], row["topics"], row["errors"]) == (7, 200, [], [])


def test_api_that_is_not_known_keeps_its_number() -> None:
    example = exchange(None, 3, {}, api_key=200, api_version=3)
    by_name = {column.name: column.get(example) for column in columns.EXCHANGE}
    assert (by_name["api"], by_name["api_key"], by_name["api_version"]) == (None, 200, 3)


def test_a_latency_below_zero_is_shown() -> None:
    example = exchange("Metadata", 9, {}, {}, latency_ns=-1500)
    assert next(c for c in columns.EXCHANGE if c.name == "latency_us").get(example) == -2


@pytest.mark.parametrize(
    ("request_ns", "latency_ns", "response_ns", "changes", "shown"),
    [
        (2_000_999, 5_000_999, 7_000_999, {}, (2000, 7000, 14000)),  # each in whole microseconds
        (0, 5_000_000, 0, {}, (0, 0, 5000)),
        (0, -1500, 0, {}, (0, 0, None)),
        (-1000, 5_000_000, 0, {}, (None, 0, None)),  # its first bytes were sent again
        (2_000_000, 5_000_000, 7_000_000, {"announced": 300}, (2000, None, None)),
    ],
)
def test_transfers_and_latency_add_up(
    request_ns: int,
    latency_ns: int,
    response_ns: int,
    changes: dict[str, Any],
    shown: tuple[int | None, int | None, int | None],
) -> None:
    example = exchange("Metadata", 9, {}, {}, latency_ns=latency_ns)
    assert example.request_frame
    assert example.response_frame
    end_ns, start_ns = example.request_frame.end_ns, example.response_frame.start_ns
    frames = {
        "request_frame": Frame(b"ab", 2, 1, INTERFACE, end_ns - request_ns, end_ns),
        "response_frame": Frame(b"ab", 2, 2, INTERFACE, start_ns, start_ns + response_ns),
    }
    names = ("request_transfer_us", "response_transfer_us", "total_us")

    def values(**attributes: Any) -> tuple[Any, ...]:
        for name, value in attributes.items():
            setattr(example, name, value)
        return tuple(columns.resolve(name).get(example) for name in names)

    assert values(**frames, **changes) == shown
    assert values(request_frame=frames["request_frame"]._replace(data=b"a"))[::2] == (None, None)
    assert values(request_frame=None) == (None, shown[1], None)


@pytest.mark.parametrize("column", columns.EXCHANGE, ids=lambda column: str(column.name))
def test_every_column_resolves(column: columns.Column) -> None:
    reference = columns.resolve(column.name)
    assert reference.needs_bodies == column.needs_bodies
    reference.get(exchange())


def test_resolve_reads_times_as_text() -> None:
    assert columns.resolve("time").get(exchange()) == "2026-09-21T14:13:20.123456Z"


def test_resolve_paths() -> None:
    example = exchange(
        "Metadata", 9, {"topics": [{"name": "a"}, {"name": "b"}]}, anomalies=[Anomaly("gap", "x", "y")]
    )
    assert columns.resolve("request.topics.name").get(example) == ["a", "b"]
    assert columns.resolve("anomalies.kind").get(example) == ["gap"]


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("latency_u", 'no column "latency_u"; did you mean "latency_us"?'),
        ("Topics", 'no column "Topics"; did you mean "topics"?'),
        ("qqqqqq", 'no column "qqqqqq"; strings must be quoted ("qqqqqq"); kdissect fields lists columns'),
        ("kafka.api_key", 'no column "kafka"; did you mean "api_key"?'),
        (
            "kafka.xyzzy",
            'no column "kafka"; strings must be quoted ("kafka"); kdissect fields lists columns',
        ),
        ("client_id.x", 'no "x" in column client_id; it has no fields'),
        ("anomalies.sort", 'no "sort" in column anomalies; its fields are kind, where, detail'),
        ("topics.name", 'no "name" in column topics; it has no fields'),
    ],
)
def test_resolve_names_the_nearest(name: str, message: str) -> None:
    with pytest.raises(UsageError) as caught:
        columns.resolve(name)
    assert str(caught.value) == message


@pytest.mark.parametrize(
    ("text", "why_invalid"),
    [
        ('api == "Fecth"', 'no api "Fecth"; did you mean "Fetch"?'),
        ('"Fecth" != api', 'no api "Fecth"; did you mean "Fetch"?'),
        ('kind == "orfan"', 'no kind "orfan"; did you mean "orphan"?'),
        ('"NOT_LEADER" in errors', 'no error "NOT_LEADER"; did you mean "NOT_LEADER_OR_FOLLOWER"?'),
        ("api == 1", "api is a string; put it in quotes"),
        ("5 in topics", "topics is a string; put it in quotes"),
        ('"gap" in anomalies', "anomalies have several parts: use anomalies.kind"),
        ('anomalies.kind == "gaps"', 'no anomaly "gaps"; did you mean "gap"?'),
        ("time > 2026", "time is a string; put it in quotes"),
        ('client_port == "58808"', "client_port is a number; remove the quotes"),
        ('1 < 2 and latency_us > "50"', "latency_us is a number; remove the quotes"),
    ],
)
def test_impossible_comparisons_are_errors(text: str, why_invalid: str) -> None:
    with pytest.raises(UsageError) as caught:
        compile_where(text, columns.resolve)
    reason, shown, carets = str(caught.value).split("\n")
    assert reason == f"--where: {why_invalid}"
    assert shown.strip() == text
    assert "^" in carets


def test_one_spelling_of_an_anomaly() -> None:
    example = exchange(anomalies=[Anomaly("unexpected_response", "response", "acks=0")])
    assert compile_where('anomalies.kind == "unexpected_response"', columns.resolve).matches(example)
    with pytest.raises(UsageError, match='no anomaly "unasked_response"'):
        compile_where('anomalies.kind == "unasked_response"', columns.resolve)


@pytest.mark.parametrize(
    "text",
    [
        *(
            '"Fet" in api',
            'api < "M"',
            'api in ["Fetch", "x"]',
            "api == null",
            'errors == "UNKNOWN_ERROR_999"',
        ),
        *('"5" + 1 == api_key', "latency_us == 1.5", 'request.acks == "x"', "records_bytes / records < 9"),
        *('client_id == "5"', 'anomalies.kind == "gap"', "kind == client_id", 'not "x" in topics'),
    ],
)
def test_possible_comparisons_are_accepted(text: str) -> None:
    compile_where(text, columns.resolve)
