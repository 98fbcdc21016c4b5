from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from docs.generate import schema
from kdissect.cli.gate import REPORTED
from kdissect.cli.terminal import OK, USAGE
from kdissect.stats.quality import VERDICTS, Check
from tests.captures import counters, gzipped, interface, pcap, section
from tests.cli.commands import capture_bytes, run, spawn, talk, write
from tests.segments import Talk

SAMPLES = Path(__file__).parents[2] / "samples"

if TYPE_CHECKING:
    Capsys = pytest.CaptureFixture[str]


def test_tls_that_no_server_answered_needs_no_key_log(capsys: Capsys) -> None:
    for path, is_answered in (
        (SAMPLES / "troubles" / "tls-only.pcap.gz", False),
        (SAMPLES / "tls.pcap", True),
    ):
        for command in ("check", "summary"):
            done = run(capsys, command, str(path))
            assert ("key log" in done.out + done.err) == is_answered
            assert ("no server answered a ClientHello" in done.out + done.err) != is_answered


PAGE = """\
capture: good, all 4 exchanges fully captured, 1 still pending; packets span 6.00ms
- 1 request had no response yet when the capture ended.

traffic: good, 4 requests, 0 unanswered, 1 pending, 0 with errors

{path}
pcap, little endian, 812 B
7 packets, 0.006 s from 2023-11-14 22:13:20.000000 to 22:13:20.006000 UTC
interface 0: Ethernet, timestamps in us, snaplen 262,144, 7 packets, 676 B

Packets
7 packets
TCP: 0 gaps

Connections
1 connection: 1 Kafka
Kafka: 1 captured from the start, 0 joined mid-stream
1 still open at the end

Exchanges
4 exchanges, 3 answered, 1 pending
"""


def test_drop_counters_beyond_64_bits(tmp_path: Path, capsys: Capsys) -> None:
    """Each counter, their sum, and the sum of two files."""
    max_count = (1 << 64) - 1
    data = section() + (interface(resolution=0x7F) + counters(dropped=max_count, dropped_by_system=max_count))
    paths = [tmp_path / "one.pcapng", tmp_path / "two.pcapng"]
    for path in paths:
        path.write_bytes(data)
    done = run(capsys, "check", "--json", *map(str, paths))
    assert (done.status, done.err) == (OK, "")
    files = json.loads(done.out)["files"]
    assert [file["interfaces"][0]["dropped_by_system"] for file in files] == [(1 << 63) - 1] * 2
    assert "9,223,372,036,854,775,807 dropped" in run(capsys, "check", str(paths[0])).out


def verdict(capsys: Capsys, *arguments: str) -> str:
    verdict_text: str = json.loads(run(capsys, "check", "--json", *arguments).out)["verdict"]
    return verdict_text


def test_the_page(tmp_path: Path, capsys: Capsys) -> None:
    path = write(tmp_path / "a.pcap", talk())
    done = run(capsys, "check", path)
    lines = "".join(f"{line.rstrip()}\n" for line in done.lines)
    size = Path(path).stat().st_size
    sized = PAGE.replace("812 B", f"{size} B").replace("676 B", f"{size - 24 - 7 * 16} B")
    assert (done.status, done.err, lines) == (OK, "", sized.format(path=path))


def test_the_document_matches_its_schema(capsys: Capsys) -> None:
    import jsonschema  # takes a second

    document = json.loads(run(capsys, "check", "--json", str(SAMPLES / "mock-rebalance.pcapng")).out)
    jsonschema.validate(document, schema(Check))
    assert document["verdict"] in VERDICTS


@pytest.mark.parametrize("name", ["quickstart.pcap", "midstream.pcap", "kafka-4-basics.pcap"])
def test_real_traffic_is_good(capsys: Capsys, name: str) -> None:
    assert verdict(capsys, str(SAMPLES / name)) == "good"


FILTERS = (
    ("--api", "Fetch"),
    ("--client", "kp*"),
    ("--topic", "!orders"),
    ("--partition", "0"),
    ("--error", "*"),
    ("--kind", "answered", "--since", "10:45:25"),
    ("-Y", "latency > 1ms or request.group_id"),
)


@pytest.mark.parametrize("options", FILTERS, ids=" ".join)
def test_filters_select_what_the_verdict_on_the_traffic_is_about(
    capsys: Capsys, options: tuple[str, ...]
) -> None:
    """All else is the same as without them."""
    capture = str(SAMPLES / "kafka-4-basics.pcap")
    whole = json.loads(run(capsys, "check", "--json", capture).out)
    some = json.loads(run(capsys, "check", "--json", *options, capture).out)
    summary = json.loads(run(capsys, "summary", "--json", *options, capture).out)
    assert some["health"] == summary["health"] != whole["health"]
    assert 0 < some["exchanges"]["selected"] == summary["capture"]["exchanges"] < whole["exchanges"]["total"]
    for document in (whole, some):
        del document["health"], document["exchanges"]["selected"]
    assert some == whole
    count = summary["capture"]["exchanges"]
    assert f"\ntraffic ({count} of 246 exchanges): " in run(capsys, "check", *options, capture).out


def test_a_filter_that_selects_nothing(capsys: Capsys) -> None:
    done = run(capsys, "check", "--fail", "--topic", "order", str(SAMPLES / "kafka-4-basics.pcap"))
    assert done.status == REPORTED
    assert done.err == 'kdissect: no match in 246 exchanges: no topic "order"; did you mean "orders"?\n'


def test_a_subscription_that_ends_early_is_no_fault_of_the_capture(capsys: Capsys) -> None:
    done = run(capsys, "check", "--json", "tests/field/subscription-v1-without-owned.pcap")
    document = json.loads(done.out)
    assert document["verdict"] == "good"
    assert [(each["anomaly"], each["severity"]) for each in document["anomalies"]] == [
        ("truncated_payload", "note")
    ]


def test_verdicts(tmp_path: Path, capsys: Capsys) -> None:
    lost, cut = talk(), talk(snaplen=90)
    del lost.packets[4]  # the answer to Metadata
    one_sided = talk()
    one_sided.packets = [packet for packet in one_sided.packets if packet.data[29] == 1]
    tls = Talk().handshake().client_sends(bytes.fromhex("1603010005 0100000100"))
    lost.client_acks()
    for capture, expected in (
        (lost, "lossy"),
        (one_sided, "one-sided"),
        (tls, "no Kafka"),
        (Talk(), "empty"),
    ):
        assert verdict(capsys, write(tmp_path / "a.pcap", capture)) == expected
    path = tmp_path / "cut.pcap"
    path.write_bytes(pcap(((packet.time_ns, packet.data) for packet in cut.packets), longer=40))
    assert verdict(capsys, str(path)) == "truncated"
    doubts = json.loads(run(capsys, "summary", "--findings", "--json", str(path)).out)["quality_findings"]
    assert doubts[0]["rule"] == "truncated-packets"
    assert doubts[0]["message"] in run(capsys, "summary", "--findings", str(path)).out


def test_a_damaged_file_is_reported(tmp_path: Path, capsys: Capsys) -> None:
    path = tmp_path / "a.pcap"
    path.write_bytes(capture_bytes(talk()) + b"\xff" * 16)
    assert verdict(capsys, str(path)) == "damaged"
    path.write_bytes(capture_bytes(talk())[:-1])
    page = run(capsys, "check", str(path)).out
    assert page.startswith("capture: good, ")
    assert "ends in the middle of packet 7" in page
    path.write_bytes(gzipped(capture_bytes(talk()))[:-9])
    assert "gzip data is truncated" in run(capsys, "check", str(path)).out


def test_a_file_that_is_not_a_capture_is_an_error(tmp_path: Path, capsys: Capsys) -> None:
    path = tmp_path / "a.txt"
    path.write_text("hello")
    assert run(capsys, "check", str(path)).status == USAGE


def test_exit_status_on_request(tmp_path: Path, capsys: Capsys) -> None:
    good, empty = write(tmp_path / "a.pcap", talk()), write(tmp_path / "b.pcap", Talk())
    assert run(capsys, "check", "--fail", good).status == OK
    assert run(capsys, "check", empty).status == OK
    assert run(capsys, "check", "--fail", empty).status == 1
    assert run(capsys, "check", "--fail-on", "error", empty).status == 1


def test_the_level_of_findings_that_fail(capsys: Capsys) -> None:
    sample = "samples/kafka-4-basics.pcap"  # with a warning
    statuses = [run(capsys, "check", "--fail-on", level, sample).status for level in ("error", "warning")]
    assert statuses == [OK, 1]


def test_a_file_name_that_is_not_utf8(tmp_path: Path, capsys: Capsys) -> None:
    path = write(tmp_path / "\udcff.pcap", talk())
    (file,) = json.loads(run(capsys, "check", "--json", path).out)["files"]
    assert file["file"].endswith("/\\udcff.pcap")


def test_several_files_and_stdin(tmp_path: Path, capsys: Capsys) -> None:
    other = write(tmp_path / "b.pcap", talk(client=("10.0.0.9", 40_000)))
    process = spawn("check", "--json", "-", other, stdin=subprocess.PIPE)
    out, _ = process.communicate(gzipped(capture_bytes(talk())))
    document = json.loads(out)
    assert [file["compression"] for file in document["files"]] == ["gzip", None]
    assert [file["file"] for file in document["files"]] == ["-", other]
    assert (document["packets"], document["connections"]["total"]) == (14, 2)


def test_options_for_ports_and_rows(tmp_path: Path, capsys: Capsys) -> None:
    talks = [
        Talk(broker=("10.0.0.2", port)).handshake().client_sends(bytes.fromhex("1603010005 0100000100"))
        for port in (9093, 9094)
    ]
    path = write(tmp_path / "a.pcap", *talks)
    assert "1 more; use --max-rows to show them" in run(capsys, "check", "--max-rows", "1", path).out
    assert "9094" not in run(capsys, "check", "--port", "9093", path).out
