"""End to end: commands in child processes, as users run them."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import ssl
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from kdissect.capture.live import InterfaceInfo
from kdissect.capture.reader import open_capture
from kdissect.cli import live_run
from kdissect.cli.terminal import INTERRUPTED, OK, USAGE
from tests.captures import pcapng
from tests.cli.commands import capture_bytes, run, spawn, talk
from tests.cli.live_process import COUNTED, Live, live, on_loopback
from tests.cli.test_metrics_server import certificate
from tests.frames import PRODUCE, heartbeat_answers, heartbeats, request
from tests.loopback import WAIT_S, Client, Pair, broker, listens, makes_interfaces
from tests.record_batches import Item, batch
from tests.segments import Talk

if TYPE_CHECKING:
    from pathlib import Path

EXCHANGES = 4  # of a talk
SECOND_NS = 1_000_000_000


# Interfaces


@listens
@pytest.mark.parametrize("name", ["lo", "any"])
def test_every_exchange_once_in_order_and_nothing_dropped(name: str) -> None:
    with broker() as port, on_loopback(port, "--json", name=name) as running, Client(port) as client:
        client.beat(1)
        first = json.loads(running.line())  # which comes while nothing else does
        assert (first["api"], first["capture"], first["broker_port"]) == ("Heartbeat", name, port)
        client.beat(499)
        status, lines, stderr = running.end()
    assert status == INTERRUPTED
    assert [json.loads(line)["correlation_id"] for line in lines] == list(range(2, 501))
    counted = COUNTED.search(stderr)
    assert counted
    assert counted.groups()[1:] == ("0", "0", "500")
    assert int(counted[1].replace(",", "")) >= 1000
    assert "kdissect: 500 exchanges, all answered\n" in stderr


@listens
def test_a_connection_that_exists_already_is_picked_up() -> None:
    with broker() as port, Client(port) as client:
        client.beat(3)
        with on_loopback(port, "--json") as running:
            client.beat(1)
            assert json.loads(running.line())["correlation_id"] == 4
            client.beat(1)
            assert json.loads(running.line())["correlation_id"] == 5
            assert running.end(signal.SIGTERM)[0] == 128 + signal.SIGTERM


@listens
def test_a_key_log_grows_while_its_clients_talk(tmp_path: Path) -> None:
    pem, keys = tmp_path / "server.pem", tmp_path / "keys.log"
    pem.write_bytes(certificate())
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(pem)
    client = ssl.create_default_context(cafile=str(pem))
    client.keylog_filename = str(keys)
    with broker(server) as port, on_loopback(port, "--json", "--tls-keylog", str(keys)) as running:
        for version in (ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3):
            client.maximum_version, before = version, keys.stat().st_size
            with Client(port, client) as one:
                one.beat(2)
                assert [json.loads(running.line())["correlation_id"] for _ in range(2)] == [1, 2]
            assert keys.stat().st_size > before
        status, lines, stderr = running.end()
    assert (status, lines) == (INTERRUPTED, [])
    assert "kdissect: 4 exchanges, all answered\n" in stderr


@listens
def test_filters_trees_and_a_count() -> None:
    with (
        broker() as port,
        on_loopback(port, "-V", "-c", "1", "--api", "heartbeat") as running,
        Client(port) as client,
    ):
        client.beat(2)
        status, lines, _ = running.rest()
    assert status == OK
    assert re.fullmatch(r"[0-9a-f]+/1  Heartbeat v4  response after \S+", lines[0])
    assert sum("Heartbeat v4" in line for line in lines) == 1


@listens
def test_dropped_packets_are_reported() -> None:
    with (
        broker() as port,
        on_loopback(port, "-q", "--limits", "live_bytes=1", "-a", "packets:1") as running,
        Client(port) as client,
    ):
        client.beat(50)
        _, _, stderr = running.end()
    assert re.search(r"\d+ packets dropped by kdissect, which cannot keep up", stderr)
    counted = COUNTED.search(stderr)
    assert counted
    assert int(counted[3].replace(",", "")) > 0


@listens
def test_what_is_captured_is_written(tmp_path: Path) -> None:
    path = tmp_path / "live.pcapng"
    with (
        broker() as port,
        on_loopback(port, "-q", "-w", str(path), "-a", "packets:20") as running,
        Client(port) as client,
    ):
        client.beat(30)
        status, _, stderr = running.rest()
    assert status == OK
    assert "kdissect: 20 packets, " in stderr
    with open_capture(path) as capture:
        packets = list(capture)
        assert len(packets) == 20
        assert {packet.interface.name for packet in packets} == {"lo"}
        assert len(capture.statistics) == 1


@listens
def test_it_stops_after_a_time() -> None:
    with live("-i", "lo", "-f", "tcp port 1", "-a", "duration:0.1s") as running:
        status, lines, stderr = running.rest()
    assert (status, lines) == (OK, [])
    assert "kdissect: 0 packets, 0 dropped by the kernel, 0 by kdissect; 0 exchanges\n" in stderr


def beats(port: int) -> list[bytes]:
    """Ethernet frames of a conversation of three Heartbeats."""
    conversation = Talk(client=("10.0.0.1", port)).handshake()
    for number in range(1, 4):
        conversation.client_sends(b"".join(heartbeats(1, first=number)))
        conversation.broker_sends(b"".join(heartbeat_answers(1, first=number)))
    return [packet.data for packet in conversation.packets]


@makes_interfaces
def test_an_interface_that_goes_down_and_comes_up_again(tmp_path: Path) -> None:
    path = tmp_path / "all.pcapng"
    with Pair() as pair, live("-i", pair.name, "--json", "-w", str(path)) as running:
        assert running.error_line() == f'kdissect: listening on {pair.name}, filter "tcp"\n'
        pair.send(beats(41_000))
        assert [json.loads(running.line())["correlation_id"] for _ in range(3)] == [1, 2, 3]
        pair.set("down")
        assert running.error_line() == f"kdissect: {pair.name} went down; waiting until it is up again\n"
        pair.set("up")
        assert running.error_line() == f"kdissect: {pair.name} is up again\n"
        pair.send(beats(41_001))
        assert [json.loads(running.line())["client_port"] for _ in range(3)] == [41_001] * 3
        pair.remove()
        assert running.error_line() == f"kdissect: {pair.name} went down; waiting until it is up again\n"
        assert running.error_line() == f"kdissect: {pair.name} disappeared; waiting for it to come back\n"
        pair.add()
        assert running.error_line() == f"kdissect: {pair.name} is up again\n"
        pair.send(beats(41_002))
        assert [json.loads(running.line())["client_port"] for _ in range(3)] == [41_002] * 3
        pair.remove()
        status, lines, stderr = running.end()
    assert (status, lines) == (INTERRUPTED, [])
    assert "kdissect: 9 exchanges, all answered\n" in stderr
    assert "27 packets, 0 dropped by the kernel, 0 by kdissect; 9 exchanges\n" in stderr
    with open_capture(path) as capture:
        assert sum(1 for _ in capture) == 27
        (counted,) = capture.statistics.values()
    assert (counted.accepted, counted.delivered) == (27, 27)


@makes_interfaces
def test_an_interface_that_is_down_is_waited_for() -> None:
    with Pair() as pair:
        pair.set("down")
        with live("-i", pair.name, "--json") as running:
            assert running.error_line() == f"kdissect: {pair.name} is down; waiting until it is up\n"
            pair.set("up")
            assert running.error_line() == f"kdissect: {pair.name} is up again\n"
            pair.send(beats(41_000))
            assert json.loads(running.line())["correlation_id"] == 1
            assert running.end(signal.SIGTERM)[0] == 128 + signal.SIGTERM


@makes_interfaces
def test_a_second_signal_loses_no_count() -> None:
    """Both signals arrive while the command is paused and thousands of packets wait for it."""
    sent = [packet for port in range(41_000, 41_400) for packet in beats(port)]
    with Pair() as pair, live("-i", pair.name, "-q") as running:
        assert running.error_line().startswith(f"kdissect: listening on {pair.name}")
        running.process.send_signal(signal.SIGSTOP)
        pair.send(sent)
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGCONT):
            running.process.send_signal(number)
        _, _, stderr = running.rest()
    counted = COUNTED.search(stderr)
    unread = re.search(
        r"kdissect: ([\d,]+) captured packets? not processed: stopped by a second Ctrl-C\n", stderr
    )
    assert counted is not None, stderr
    assert unread is not None, stderr
    assert sum(int(text.replace(",", "")) for text in (*counted.groups()[:3], unread[1])) == len(sent)


@listens
@pytest.mark.skipif(shutil.which("setpriv") is None, reason="without setpriv no right can be given up")
@pytest.mark.skipif(os.geteuid() != 0, reason="only root has rights to give up")
def test_without_the_right_one_line_says_what_is_needed() -> None:
    command = [sys.executable, "-m", "kdissect", "live", "-i", "lo"]
    done = subprocess.run(
        ["setpriv", "--bounding-set=-net_raw,-net_admin", *command],
        capture_output=True,
        text=True,
        timeout=WAIT_S,
        check=False,
    )
    assert (done.returncode, done.stdout) == (USAGE, "")
    assert re.fullmatch(
        r"kdissect: lo: capturing needs root, or run once: setcap cap_net_raw,cap_net_admin=eip \S+; "
        r"or use a pipe: tcpdump -i lo -U -w - \| kdissect live -\n",
        done.stderr,
    )


@listens
def test_an_unknown_interface(capsys: pytest.CaptureFixture[str]) -> None:
    done = run(capsys, "live", "-i", "nowhere0")
    assert done.status == USAGE
    assert re.fullmatch(r"kdissect: no interface nowhere0; available: .*any\n", done.err)


def test_interfaces_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    done = run(capsys, "live", "-D")
    assert done.status == OK
    assert any(re.match(r"lo +(up  |down)  127\.0\.0\.1", line) for line in done.lines)
    assert re.fullmatch(r"any +all of them", done.lines[-1])


def test_interfaces_have_printable_names(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(live_run, "listed", lambda: [InterfaceInfo("e\x1b[2J", is_up=True, addresses=())])
    assert run(capsys, "live", "-D").lines[0] == r"e\x1b[2J  up"


# Pipes and files, which need no privileges


def test_a_pipe_is_shown_as_it_comes() -> None:
    capture = capture_bytes(talk())
    with live("-", "--json", stdin=subprocess.PIPE) as running:
        assert running.process.stdin is not None
        running.process.stdin.write(capture[:-150])
        running.process.stdin.flush()
        assert json.loads(running.line())["api"] == "Metadata"
        running.process.stdin.write(capture[-150:])
        running.process.stdin.close()
        status, lines, stderr = running.rest()
    assert status == OK
    assert [json.loads(line)["api"] for line in lines] == ["Heartbeat"] * 3
    assert COUNTED.search(stderr)


def test_what_waits_for_a_packet_is_shown_while_nothing_comes() -> None:
    """The first segment of a connection without SYN may be out of order: its deadline passes while idle."""
    conversation = talk()
    del conversation.packets[:3]
    with live("-", "--json", stdin=subprocess.PIPE) as running:
        assert running.process.stdin is not None
        running.process.stdin.write(capture_bytes(conversation))
        running.process.stdin.flush()
        assert [json.loads(running.line())["api"] for _ in range(3)] == ["Metadata", "Heartbeat", "Heartbeat"]
        status, lines, _ = running.end()
    assert status == INTERRUPTED
    assert [json.loads(line)["kind"] for line in lines] == ["unanswered"]


def test_a_directory_is_followed(tmp_path: Path) -> None:
    packets = [
        (n * SECOND_NS // 1000, packet.data) for n, packet in enumerate(talk().packets, 1_700_000_000_000)
    ]
    (tmp_path / "1.pcapng").write_bytes(pcapng(packets[:5]))
    with live("--follow", str(tmp_path), "--json") as running:
        assert json.loads(running.line())["api"] == "Metadata"
        (tmp_path / "2.pcapng").write_bytes(pcapng(packets[5:]))
        rows = [json.loads(running.line()) for _ in range(2)]
        assert [row["capture"] for row in rows] == [str(tmp_path / "2.pcapng")] * 2
        status, lines, stderr = running.end()
    assert status == INTERRUPTED
    assert len(lines) == EXCHANGES - 3
    counted = COUNTED.search(stderr)
    assert counted
    assert counted.groups() == (str(len(packets)), "0", "0", str(EXCHANGES))


def test_a_reader_that_has_gone_ends_it_quietly() -> None:
    with live("-", stdin=subprocess.PIPE) as running:
        assert running.process.stdout is not None
        assert running.process.stdin is not None
        running.process.stdout.close()
        running.process.stdin.write(capture_bytes(talk()))
        running.process.stdin.flush()
        assert running.process.wait(WAIT_S) == OK
        assert running.process.stderr is not None
        assert running.process.stderr.read() == b""


# Records


@listens
def test_records_are_shown_as_they_are_produced() -> None:
    records = batch([Item(b"k", b"v")])
    body = {"acks": 1, "topic_data": [{"name": "orders", "partition_data": [{"records": records}]}]}
    with (
        broker() as port,
        Client(port) as client,
    ):
        process = Live(spawn("records", "-i", "lo", "-f", f"tcp port {port}", "--json"))
        try:
            process.error_line()
            client.beat(1)
            client.send(request(PRODUCE, 9, body, correlation_id=2))
            row = json.loads(process.line())
            assert (row["topic"], row["key"], row["value"]) == ("orders", "k", "v")
            assert process.end()[0] == INTERRUPTED
        finally:
            process.close()


def test_records_of_an_interface_are_not_those_of_a_file(capsys: pytest.CaptureFixture[str]) -> None:
    done = run(capsys, "records", "-i", "lo", "x.pcap")
    assert (done.status, done.out) == (USAGE, "")
    assert "-i captures on an interface and takes no FILE" in done.err
    assert "-f needs -i IFACE" in run(capsys, "records", "-f", "tcp", "x.pcap").err
