"""No string of any API speaks to the terminal: those that would, against all ways of printing."""

from __future__ import annotations

import csv
import io
import json
import re
import sys
from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest
from opentelemetry.proto.metrics.v1.metrics_pb2 import MetricsData
from prometheus_client import generate_latest

from kdissect import dissect, open_capture
from kdissect.cli.live import LiveSummary
from kdissect.cli.main import main
from kdissect.cli.terminal import USAGE
from kdissect.kafka import apis, schema
from kdissect.kafka.layout import layout, split
from kdissect.limits import DEFAULT
from kdissect.options import Options
from kdissect.phrases import printable
from kdissect.query.filters import Filter
from kdissect.runs.run import Query, Totals
from kdissect.stats.facts import Facts
from kdissect.stats.pulse import Pulse
from kdissect.stats.survey import Survey
from kdissect.stats.traffic import BY
from kdissect.text.dashboard import StatusBar, UiState, draw
from kdissect.text.dashboard_panes import PANES
from kdissect.text.metrics import Metrics
from samples.pages import Terminal
from tests.captures import enhanced, interface, section
from tests.cli.commands import run
from tests.frames import (
    FETCH,
    SASL_AUTHENTICATE,
    SASL_HANDSHAKE,
    request,
    request_payload,
    response,
    response_payload,
    sized,
)
from tests.kafka.internal.framed import encoded, every_case, framing_of, prefix
from tests.record_batches import Item, batch
from tests.segments import Talk

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from kdissect.kafka.layout import Layout
    from kdissect.kafka.schema import Field
    from kdissect.model import Body

FORGED = "FORGED"  # what a line begins with that none of ours does
ESCAPES = "\x1b]0;PWNED\x07\x1b[2J\x9b2J\x9d0;x\x9c\x00\x08\x7f"
MARKS = "\u061c\u200e\u200f\u202a\u202b\u202d\u202e\u2066\u2067\u2068\u2069\u2028\u2029\ufeff\U000e0041"
HOSTILE = f"{ESCAPES}{MARKS}\r\n{FORGED}[red]x[/red]"
NO_UTF8 = HOSTILE.encode() + b"\xff\xed\xa0\x80"  # and half of a surrogate pair
FILE_NAME = f"{ESCAPES}{MARKS[:9]}\udcff\n{FORGED}.pcapng".replace("\0", "")

ENVELOPE, PUSH_TELEMETRY = 58, 72
INTERNAL = {
    "group_coordinator": "__consumer_offsets",
    "txn_coordinator": "__transaction_state",
    "share_coordinator": "__share_group_state",
    "metadata_record": "__cluster_metadata",
    "remote_log_metadata": "__remote_log_metadata",
}
EMBEDDED = {
    "subscription": "ConsumerProtocolSubscription",
    "assignment": "ConsumerProtocolAssignment",
}
_OWN_COLORS = re.compile(r"\x1b\[[0-9;]*m")


def body(shape: Layout, error: int) -> Body:
    """Every field set, every array with one element, every string and all bytes hostile."""
    return _struct(shape, shape.fields, error)


def _struct(shape: Layout, fields: tuple[Field, ...], error: int) -> Body:
    positional, tagged = split(fields, shape.version)
    return {field.name: _value(shape, field, error) for field in (*positional, *tagged)}


def _value(shape: Layout, field: Field, error: int) -> Any:
    value = _single(shape, field, error)
    return [value] if field.array else value


def _single(shape: Layout, field: Field, error: int) -> Any:
    if field.type == "struct":
        return _struct(shape, field.fields, error)
    if field.name == "protocol_type":
        return "consumer"
    if field.role in EMBEDDED:
        return _embedded(EMBEDDED[field.role])
    match field.type:
        case "bool":
            return True
        case "uuid":
            return "AAAAAAAAAAAAAAAAAAAAAQ"
        case "float64":
            return 1.5
        case "records":
            return batch([Item(HOSTILE.encode(), NO_UTF8, ((NO_UTF8, HOSTILE.encode()),))])
        case "bytes":
            return NO_UTF8
        case "int8" | "int16" | "uint16" | "int32" | "uint32" | "int64":
            return error if field.role == "error" else 1
    return HOSTILE


def _embedded(name: str) -> bytes:
    for family, case in every_case():
        if case.message.name == name and case.draft is None:
            return prefix(case, framing_of(family, case)) + encoded(case, body(case.layout, 0))
    raise AssertionError(name)


def exchanges(*, every_version: bool) -> Iterator[tuple[int, int, Body, Body]]:
    """Each API with a response that says yes, and with one that says no."""
    for api in apis.all_apis():
        requested, answered = schema.request(api.key), schema.response(api.key)
        assert requested is not None
        assert answered is not None
        newest = api.versions.last
        for version in range(api.versions.first if every_version else newest, newest + 1):
            for error in (0, 3):
                pair = (body(layout(message, version), error) for message in (requested, answered))
                yield api.key, version, *_opened(api.key, *pair)


def _opened(api_key: int, requested: Body, answered: Body) -> tuple[Body, Body]:
    """Payloads that are messages themselves."""
    if api_key == ENVELOPE:
        names = {"topics": [{"name": HOSTILE}]}
        requested["request_data"] = request_payload(3, 12, names, client_id=HOSTILE)
        answered["response_data"] = response_payload(3, 12, names)
    elif api_key == PUSH_TELEMETRY:
        metrics = MetricsData()
        metric = metrics.resource_metrics.add().scope_metrics.add().metrics.add()
        metric.name = metric.unit = metric.description = HOSTILE
        metric.gauge.data_points.add(as_int=1)
        requested |= {"metrics": metrics.SerializeToString(), "compression_type": 0}
    elif api_key == SASL_AUTHENTICATE:
        requested["auth_bytes"] = f"\0{HOSTILE}\0secret".encode()
    return requested, answered


def internal_records() -> Iterator[tuple[str, bytes]]:
    """Every record of Kafka's own topics."""
    for family, case in every_case():
        if family in INTERNAL and case.draft is None:
            framing = framing_of(family, case)
            data = prefix(case, framing) + encoded(case, body(case.layout, 0))
            key = (
                case.message.api_key.to_bytes(2, "big") if framing == "v16" and case.message.api_key else b""
            )
            yield INTERNAL[family], batch([Item(data, None) if framing == "type16" else Item(key, data)])


def conversation(*, every_version: bool) -> Talk:
    talk = Talk().handshake()
    talk.client_sends(request(SASL_HANDSHAKE, 1, {"mechanism": "PLAIN"}, correlation_id=0))
    talk.broker_sends(response(SASL_HANDSHAKE, 1, {"mechanisms": ["PLAIN"]}, correlation_id=0))
    number = 0
    for number, (api, version, requested, answered) in enumerate(exchanges(every_version=every_version), 1):
        talk.client_sends(request(api, version, requested, correlation_id=number, client_id=HOSTILE))
        talk.broker_sends(response(api, version, answered, correlation_id=number))
    for topic, records in internal_records():
        number += 1
        result = {"responses": [{"topic": topic, "partitions": [{"records": records}]}]}
        talk.client_sends(request(FETCH, 11, correlation_id=number, client_id=HOSTILE))
        talk.broker_sends(response(FETCH, 11, result, correlation_id=number))
    talk.client_sends(request(3, 12, {"topics": [{"name": HOSTILE}]}, correlation_id=-1))  # is not answered
    talk.broker_sends(sized(b"\x7f\0\0\0" + NO_UTF8))  # answers nobody
    return talk


@pytest.fixture(scope="module", params=["newest", pytest.param("all", marks=pytest.mark.deep)])
def capture(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("hostile") / FILE_NAME
    packets = conversation(every_version=request.param == "all").packets
    blocks = (enhanced(packet.time_ns // 1000, packet.data) for packet in packets)
    path.write_bytes(section() + interface(name=HOSTILE) + b"".join(blocks))
    return path


AS_KAFKA = ("-d", "tcp.port==9092,kafka")  # nobody's client ID looks like these
LINES, DETAILS = ("--colour", "always"), ("--full", "--colour", "always")
COMMANDS = [
    *(("read", *options) for options in (LINES, ("-V", *DETAILS), ("-x", *DETAILS), ("-q",))),
    *(("read", look, "--records", *DETAILS) for look in ("-V", "-x")),
    *(("records", *options) for options in (LINES, ("-V", *DETAILS), ("-q",))),
    *(("summary", *LINES, *options) for options in ((), *(("--by", column) for column in BY))),
    *(("summary", *LINES, f"--{part}") for part in ("groups", "lag", "versions", "transactions", "findings")),
    ("check", "--colour", "always"),
]
QUIET = ("-q",)  # shows no names


def assert_harmless(text: str) -> None:
    """Nothing but our own colors and ends of lines, and no line that we did not write."""
    text = _OWN_COLORS.sub("", text)
    odd = {character for character in text if not (character.isprintable() or character == "\n")}
    assert odd == set()
    assert [line for line in text.split("\n") if line.lstrip().startswith(FORGED)] == []


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_no_text_speaks_to_the_terminal(
    command: tuple[str, ...], capture: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    done = run(capsys, *command, *AS_KAFKA, str(capture))
    assert done.status == 0
    assert_harmless(done.out)
    assert_harmless(done.err)
    assert r"\x1b]0;PWNED" in done.out + done.err or command[-1:] == QUIET


@pytest.mark.parametrize("is_there", [True, False])
def test_nor_does_a_message_about_a_file(
    is_there: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / FILE_NAME
    if is_there:
        path.write_bytes(HOSTILE.encode() * 9)
    done = run(capsys, "read", str(path))
    assert done.status == USAGE
    assert_harmless(done.err)
    assert r"\x1b]0;PWNED" in done.err


@pytest.mark.parametrize("columns", ["60", "100", "200"])
@pytest.mark.parametrize(
    "command", [("read",), ("records",), ("summary",), ("summary", "--groups")], ids=" ".join
)
def test_nor_does_text_that_is_cut(
    command: tuple[str, ...], columns: str, capture: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    screen = Terminal()
    monkeypatch.setattr(sys, "stdout", screen)
    monkeypatch.setenv("COLUMNS", columns)
    assert main([*command, *AS_KAFKA, str(capture)]) == 0
    assert_harmless(screen.shown())


MACHINE = [
    ("read", "--json"),
    ("read", "--csv"),
    ("read", "--json", "--records"),
    ("read", "--csv", "--records"),
    ("read", "--json", "-j", "2"),
    ("read", "--csv", "-j", "2"),
    ("records", "--json"),
    ("records", "--csv"),
    ("summary", "--json", "--groups"),
    ("check", "--json"),
]


@pytest.mark.parametrize("command", MACHINE, ids=" ".join)
def test_json_and_csv_are_escaped_on_a_terminal_alone(
    command: tuple[str, ...],
    capture: Path,
    capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """JSON stays the same; CSV has in each cell what a line for people would have there."""
    assert main([*command, *AS_KAFKA, str(capture)]) == 0
    piped = capfd.readouterr().out
    assert "\u202e" in piped
    screen = Terminal()
    monkeypatch.setattr(sys, "stdout", screen)
    assert main([*command, *AS_KAFKA, str(capture)]) == 0
    shown = screen.shown()
    if "--json" in command:
        assert_harmless(shown)
        assert shown != piped
        assert values(shown) == values(piped)
    else:
        assert_harmless(shown.replace("\r\n", "\n"))
        cells = [[printable(cell) for cell in row] for row in csv.reader(io.StringIO(piped, newline=""))]
        assert list(csv.reader(io.StringIO(shown, newline=""))) == cells


def values(text: str) -> list[Any]:
    """JSON, line by line or as one document."""
    return [json.loads(text)] if text[:2] == "{\n" else [json.loads(line) for line in text.split("\n")[:-1]]


@pytest.fixture(scope="module")
def facts(capture: Path) -> list[Facts]:
    with open_capture(str(capture)) as packets:
        return list(map(Facts, dissect(packets, kafka_ports=[9092])))


def test_the_dashboard_and_the_metrics_speak_neither(facts: list[Facts]) -> None:
    pulse = Pulse()
    metrics = Metrics(DEFAULT, pulse.now, lambda: (0, 0))
    for each in facts:
        pulse.feed(each)
        metrics.feed(each)
    for key in range(len(PANES)):
        choices = UiState()
        choices.press(str(key + 1))
        lines = draw(pulse.now(), choices, StatusBar(HOSTILE, message=HOSTILE), 160, 50)
        assert_harmless("\n".join(line.plain for line in lines))
    assert r"\x1b]0;PWNED" in "\n".join(line.plain for line in lines)
    text = generate_latest(metrics.registry).decode()
    assert_harmless(text)
    assert r"\x1b]0;PWNED" in text


def test_nor_does_what_live_says_at_the_end(
    capture: Path, facts: list[Facts], capsys: pytest.CaptureFixture[str]
) -> None:
    recap = LiveSummary(Query((), Options(), Filter(), no_progress=True), is_recorded=False)
    for each in facts:
        recap.feed(each.exchange)
    with open_capture(str(capture)) as packets:
        totals = Totals(Counter(), Counter(), [], [HOSTILE], packets.sources, HOSTILE, unreadable=False)
        recap.write([HOSTILE], totals, Survey(DEFAULT), "always")
    output = capsys.readouterr().err
    assert_harmless(output)
    assert r"\x1b]0;PWNED" in output
