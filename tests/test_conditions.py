"""Filters and ``-c`` that the native core applies select the exchanges that Python selects, and stop where it
stops. All ways to run a command are compared in tests/ways; here is what the core does of each.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from pyarrow import parquet

from kdissect.pipeline import Dissection
from kdissect.runs.worker import Text
from tests.captures import pcap
from tests.cli.commands import run, write
from tests.core import NEEDS_CORE, without_core
from tests.depth import IS_DEEP
from tests.frames import HEARTBEAT, request, response
from tests.segments import Talk
from tests.test_lending import SAMPLES, timed

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from kdissect.model import Exchange
    from kdissect.sinks.sink import Sink

pytestmark = NEEDS_CORE

LIST_OFFSETS = 2
BASICS = "samples/kafka-4-basics.pcap"
CLUSTER = "samples/kafka-4-cluster.pcap.gz"
SMALL = [BASICS, "samples/mock-acks0.pcap", "samples/midstream.pcap"]
OUTPUTS = {
    "lines": ("read",),
    "json": ("read", "--json"),
    "csv": ("read", "--csv", "--fields", "time,client_id,queued_us,service_us"),
    "count": ("read", "-q"),
    "summary": ("summary", "--json", "--groups", "--lag", "--connections", "--transactions"),
}
SOME = {  # criteria that the core decides
    "an API": ("--api", "Fetch"),
    "any other API": ("--api", "!Fetch,!Metadata"),
    "a client": ("--client", "*1*,127.0.0.1,10.*,172.*"),
    "connections of a kind": ("--connection", "0,1,2,3,4,5,6,7", "--kind", "answered"),
    "a time": ("--since", "00:00:01", "--until", "23:59"),
    "numbers": (
        "-Y",
        "latency > 1ms or 150 < response_bytes < 200 or packet in (1..9, 20) or total_us == null",
    ),
    "a version": ("-Y", "api_version >= 9 or client_port < 40000"),
    "several": ("--api", "Fetch,Produce", "--client", "*", "--bigger-than", "100", "--slower-than", "10us"),
    "a topic": ("--topic", "*o*", "--topic", "!orders"),
    "topics": ("--topic", "*o*", "--topic", "test"),
    "a partition": ("--partition", "0", "--slower-than", "10us"),
    "a group": ("--group", "!nosuch", "--api", "!Metadata"),
    "names": ("-Y", "not ('orders' in topics) and (group_id =~ '.' or not errors or request.topics)"),
    "fields": (
        "-Y",
        "request.group_id != 'readers' or request.session_id == null and not response.topics.name",
    ),
    "times": ("-Y", "not ('2020' >= time) and time <= '2100-01-01T00:00:00.5Z' or time startswith '1'"),
    "other times": ("-Y", "time not in ('1999', '2026-11-21'..'2026-11-21T00:00:01') or time == '2'"),
    "a number": ("-c", "7"),
    "a number of some": ("--api", "Fetch,Heartbeat", "-c", "3"),
}
NONE = {  # the same, without a match
    "no client": ("--client", "nosuch"),
    "a client and another API": ("--client", "*", "--api", "StopReplica"),
    "before all": ("--until", "1971-01-01"),
    "more than any size": ("--bigger-than", "999999TB", "--slower-than", "100000d"),
    "no time": ("-Y", "time < '1980' or time >= '2200'"),
    "no topic": ("--topic", "order", "--api", "Fetch"),
    "no group": ("-Y", "topic == 'nosuch' or group == 'nosuch' or request.group_id == 'nosuch'"),
}
LEFT = [
    ("--error", "*"),
    ("-Y", "request_bytes > response_bytes + api_version"),
    ("-Y", "len(topics) > 0 and time in '2026'"),
    ("-Y", "request.topic_data.partition_data.records.base_offset == 0"),
]
VALUES = [  # and whether some exchange of each output has them that the core takes
    ("service_us > 5", True),
    ("not service_us > 5 and think_us == null", True),
    ("queued_us > 0 or wait_us > 400ms", True),
    ("api == 'Fetch' and queued_us > 0", True),
    ("api == 'Heartbeat' and network_us + throttled_us > 0", False),
    ("service_us < latency_us / 2", True),
    ("think_us in (0..99999999) and errors != null", False),
    ("request_bytes > response_bytes", True),
    ("len(topics) > 0", True),
    ("len(topics) > 1 and topics =~ 'o'", False),
    ("topic != 'orders' and not exists(group_id)", True),
    ("lower(group) contains 'r' or len(group_id) > 20", True),
    ("len(request.topics) == 1 and request.topics.partitions.partition >= 0", True),
    ("all(request.topics.partitions.fetch_offset) > 0", True),
    ("response.responses.partitions.high_watermark > 1.5", True),
    ("response.error_code == 0 and request.generation_id != 7", True),
    ("response.throttle_time_ms > 0", False),
    ("request.topics.topic_id =~ '^[a-zA-Z]'", True),
    ("request.session_id == request.session_epoch", True),
    ("request.allow_auto_topic_creation == true or request.topics.name == null", True),
    ("not (request.acks in (0, 1)) and request.timeout_ms", True),
    ("request.client_software_name != 'x'", True),
]


@pytest.fixture
def taken(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many rows each sink took from the core."""
    rows: list[int] = []
    into = Dissection.into

    def noted(dissection: Dissection, sink: Sink, *arguments: Any, **options: Any) -> Iterator[None]:
        taken, take = len(rows), sink.take
        rows.append(0)

        def counted(output: bytes, exchanges: int) -> None:
            rows[taken] += exchanges
            take(output, exchanges)

        monkeypatch.setattr(sink, "take", counted)
        return into(dissection, sink, *arguments, **options)

    monkeypatch.setattr(Dissection, "into", noted)
    return rows


def shown(capsys: pytest.CaptureFixture[str], taken: list[int], *arguments: str) -> int:
    """How many rows are from the core. All are the same without it, and so are the messages."""
    by_core = run(capsys, *arguments, "-j", "1")
    (from_core,) = taken
    taken.clear()
    with without_core():
        assert by_core == run(capsys, *arguments, "-j", "1")
    assert taken == [0]
    taken.clear()
    return from_core


@pytest.mark.parametrize(
    ("output", "criteria"),
    [
        (output, name)
        for output in OUTPUTS
        for name, options in (SOME | NONE).items()
        if output != "summary" or "-c" not in options
    ],
)
def test_the_core_selects_the_same(
    output: str, criteria: str, taken: list[int], capsys: pytest.CaptureFixture[str]
) -> None:
    """JSON lines say it of a cluster, too; other outputs in the deep profile, and where the core decides
    nothing of what is smaller.
    """
    options = *OUTPUTS[output], *(SOME | NONE)[criteria]
    rows = [shown(capsys, taken, *options, capture) for capture in SMALL]
    if IS_DEEP or output == "json" or (criteria in SOME and not any(rows)):
        rows.append(shown(capsys, taken, *options, CLUSTER))
    assert any(rows) == (criteria in SOME)


@pytest.mark.parametrize("place", range(len(VALUES)))
def test_the_core_selects_by_the_same_values(
    place: int, taken: list[int], capsys: pytest.CaptureFixture[str]
) -> None:
    """Outputs take turns, but all in the deep profile."""
    text, has_any = VALUES[place]
    turn = list(OUTPUTS)[place % len(OUTPUTS)]
    for output in OUTPUTS if IS_DEEP else {turn, "json"}:
        options = *OUTPUTS[output], "-Y", text
        rows = [shown(capsys, taken, *options, capture) for capture in (BASICS, "samples/odd-clients.pcap")]
        if IS_DEEP or (has_any and not any(rows)):
            rows.append(shown(capsys, taken, *options, CLUSTER))
        assert any(rows) or not has_any


@pytest.mark.parametrize("place", ["< 0", "<= -9223372036854775808", ">= -1e300", "> 9e18", "in (-1e19..-1)"])
def test_the_smallest_and_the_largest_number(
    place: str, tmp_path: Path, taken: list[int], capsys: pytest.CaptureFixture[str]
) -> None:
    talk = Talk()
    talk.handshake()
    for number, offset in enumerate((0, -1 << 63, (1 << 63) - 1)):
        partitions = [{"partition_index": 0, "offset": offset}]
        talk.client_sends(request(LIST_OFFSETS, 6, correlation_id=number))
        body = {"topics": [{"name": "t", "partitions": partitions}]}
        talk.broker_sends(response(LIST_OFFSETS, 6, body, correlation_id=number))
    path = write(tmp_path / "offsets.pcap", talk)
    assert shown(capsys, taken, "read", "-Y", f"response.topics.partitions.offset {place}", path) > 0


@pytest.mark.parametrize("text", ["api == 'Fetch' and queued_us > 0", "request.max_wait_ms == 500"])
def test_processes_select_by_the_same_values(text: str, capsys: pytest.CaptureFixture[str]) -> None:
    one, two = (run(capsys, "read", "--json", "-Y", text, "-j", jobs, CLUSTER) for jobs in "12")
    assert one.lines
    assert two == one


def test_latencies_go_on_where_python_splits_some(
    tmp_path: Path, taken: list[int], capsys: pytest.CaptureFixture[str]
) -> None:
    """Packets are missing, so Python pairs exchanges, and the core finishes some. Quotas delay the next."""
    packets = timed(SAMPLES["kafka-4-quota"])
    lossy = tmp_path / "lossy.pcap"
    for dropped in (17, 23, 50):
        lossy.write_bytes(pcap(packet for number, packet in enumerate(packets) if number % dropped))
        for output in ("csv", "lines"):
            options = *OUTPUTS[output], "-Y", "queued_us > 0 or throttled_us > 0"
            assert shown(capsys, taken, *options, str(lossy))


def test_watermarks_of_a_filter_are_limited(taken: list[int], capsys: pytest.CaptureFixture[str]) -> None:
    """Those that the core keeps to split latencies, as Python's."""
    limits = "--limits", "watermarks=2"
    for output in ("lines", "summary"):
        shown(capsys, taken, *OUTPUTS[output], "-Y", "service_us > 5", *limits, CLUSTER)


@pytest.mark.parametrize("criteria", ["any other API", "numbers", "several", "a topic", "no client"])
def test_the_core_adds_the_same_rows_to_tables(
    criteria: str, tmp_path: Path, taken: list[int], capsys: pytest.CaptureFixture[str]
) -> None:
    """Also those of connections, whose exchanges count whether or not they are selected."""

    def rows(name: str, jobs: str) -> dict[str, list[str]]:
        options = "--format", "parquet", "-o", str(tmp_path / name), "-j", jobs
        run(capsys, "export", *(SOME | NONE)[criteria], *options, CLUSTER)
        tables = sorted(path.name for path in (tmp_path / name).iterdir())
        files = {table: sorted((tmp_path / name / table).glob("*.parquet")) for table in tables}
        return {
            table: [str(row) for path in paths for row in parquet.ParquetFile(path).read().to_pylist()]
            for table, paths in files.items()
        }

    by_core = rows("core", "1")
    (from_core,) = taken
    assert (from_core > 0) == (criteria in SOME)
    assert from_core <= len(by_core["exchanges"])
    taken.clear()
    with without_core():
        assert rows("pure", "1") == by_core
    assert taken == [0]
    divided = rows("divided", "2")
    assert {table: sorted(each) for table, each in divided.items()} == {
        table: sorted(each) for table, each in by_core.items()
    }


@pytest.mark.parametrize(
    "options", [("-c", "1"), ("-c", "7"), ("--json", "-c", "60"), ("--csv", "-c", "999")]
)
def test_processes_stop_where_one_does(options: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> None:
    """Also in the middle of what the core has written."""
    arguments = *options, "--api", "!Metadata", BASICS
    one, two = (run(capsys, "read", "-j", jobs, *arguments) for jobs in "12")
    assert two == one


def test_the_core_writes_rows_that_may_be_cut(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    fed, feed = tmp_path / "fed", Text.feed

    def noted(text: Text, exchange: Exchange) -> Any:
        with fed.open("ab") as file:  # in another process
            file.write(b".")
        return feed(text, exchange)

    monkeypatch.setattr(Text, "feed", noted)
    run(capsys, "read", "-j", "2", BASICS)
    without_a_number = fed.stat().st_size
    fed.unlink()
    run(capsys, "read", "-j", "2", "-c", "9999", BASICS)
    assert fed.stat().st_size == without_a_number
    fed.unlink()
    with without_core():
        run(capsys, "read", "-j", "2", "-c", "9999", BASICS)
    assert fed.stat().st_size > without_a_number


@pytest.mark.parametrize(
    "field",
    ["api", "client_id", "principal", "topics", "anomalies", "service_us", "request_size", "response"],
)
@pytest.mark.parametrize("form", [(), ("--csv",)], ids=["fields", "csv"])
def test_a_field_alone(
    form: tuple[str, ...], field: str, taken: list[int], capsys: pytest.CaptureFixture[str]
) -> None:
    """In CSV, it has quotes where it is empty, so that no line is."""
    assert shown(capsys, taken, "read", *form, "--fields", field, CLUSTER)


@pytest.mark.parametrize("form", [(), ("--csv",), ("--json",)], ids=["fields", "csv", "json"])
@pytest.mark.parametrize(
    "fields",
    [
        "request.topics.name,time",
        "request.topics,response.brokers",
        "request.allow_auto_topic_creation",
        "request.topics.topic_id,response.responses.partitions.high_watermark,response.error_code",
        "request.topic_data.partition_data.records",
    ],
)
def test_fields_of_bodies(
    form: tuple[str, ...], fields: str, taken: list[int], capsys: pytest.CaptureFixture[str]
) -> None:
    assert shown(capsys, taken, "read", *form, "--fields", fields, BASICS)


@pytest.mark.parametrize(
    ("options", "is_taken"),
    [
        (("-e", "response.api_keys.api_key"), True),
        (("-e", "response.error_code,request.client_software_name"), True),
        (("-Y", "not response.api_keys"), False),
        (("-Y", "response.error_code == 35"), True),
        (("-Y", "service_us >= 0 and throttled_us == 0"), True),
    ],
)
def test_a_version_that_the_broker_does_not_support(
    options: tuple[str, ...], is_taken: bool, taken: list[int], capsys: pytest.CaptureFixture[str]
) -> None:
    """It responds to ApiVersions in version 0, of which the core decodes the error. Another try succeeds."""
    arguments = *options, "--api", "ApiVersions", "samples/mock-acks0.pcap"
    assert (shown(capsys, taken, "read", *arguments) > 0) == is_taken


@pytest.mark.parametrize("field", ["request._tags", "anomalies.kind", "request.topic_data._tags"])
def test_what_no_message_has_on_the_wire_is_left(
    field: str, taken: list[int], capsys: pytest.CaptureFixture[str]
) -> None:
    assert shown(capsys, taken, "read", "--json", "--fields", f"time,{field}", BASICS) == 0


def test_a_tab_in_a_name_is_escaped(
    tmp_path: Path, taken: list[int], capsys: pytest.CaptureFixture[str]
) -> None:
    talk = Talk()
    talk.handshake()
    for number, name in enumerate(("one", "a\tb", "two"), 1):
        talk.client_sends(request(HEARTBEAT, 4, client_id=name, correlation_id=number))
        talk.broker_sends(response(HEARTBEAT, 4, correlation_id=number))
    path = write(tmp_path / "tab.pcap", talk)
    assert shown(capsys, taken, "read", "--fields", "client_id,latency_us", path) == 2
    names = [
        line.split("\t")[0] for line in run(capsys, "read", "--fields", "client_id,latency_us", path).lines
    ]
    assert names == ["one", r"a\tb", "two"]


@pytest.mark.parametrize("times", ["r", "d", "dd"])
@pytest.mark.parametrize(
    "criteria", [(), ("--api", "!Metadata", "--error", "!*"), ("--client", "nosuch")], ids=" ".join
)
def test_times_may_count_from_exchanges_that_are_left(
    times: str, criteria: tuple[str, ...], taken: list[int], capsys: pytest.CaptureFixture[str]
) -> None:
    """Some exchanges are Python's, which writes the time of the next one of the core."""
    assert (shown(capsys, taken, "read", "-t", times, *criteria, CLUSTER) > 0) == ("nosuch" not in criteria)


@pytest.mark.parametrize("criteria", LEFT, ids=" ".join)
def test_what_needs_bodies_is_left(
    criteria: tuple[str, ...], taken: list[int], capsys: pytest.CaptureFixture[str]
) -> None:
    assert shown(capsys, taken, "read", "--json", *criteria, BASICS) == 0


@pytest.mark.parametrize("criteria", ["an API", "several", "no client", "before all"])
def test_processes_hold_places_for_what_is_not_selected(
    criteria: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """With a limit so low that what is held decides the order."""
    arguments = "--json", *(SOME | NONE)[criteria], "--limits", "order_rows=3", CLUSTER
    one, two = (run(capsys, "read", "-j", jobs, *arguments) for jobs in "12")
    with without_core():
        assert one == run(capsys, "read", "-j", "1", *arguments)
    assert two == one


def test_latencies_depend_on_versions_that_are_not_selected(
    taken: list[int], capsys: pytest.CaptureFixture[str]
) -> None:
    """What clients do while they are throttled follows from the versions that brokers support."""
    assert shown(
        capsys, taken, "summary", "--json", "--api", "Produce", "--by", "topic", "samples/kafka-1.1.pcap.gz"
    )


def test_a_client_of_many_names(tmp_path: Path, taken: list[int], capsys: pytest.CaptureFixture[str]) -> None:
    """More than the core remembers of a connection, and longer ones."""
    names = [f"client-{number % 50}{'x' * (number % 3 * 60)}" for number in range(400)]
    talk = Talk()
    talk.handshake()
    for number, name in enumerate(names, 1):
        talk.client_sends(request(HEARTBEAT, 4, client_id=name, correlation_id=number))
        talk.broker_sends(response(HEARTBEAT, 4, correlation_id=number))
    path = write(tmp_path / "names.pcap", talk)
    assert shown(capsys, taken, "read", "--client", "client-1*", "--json", path) > 50
    assert shown(capsys, taken, "read", "--client", "client", "--json", path) == 0
