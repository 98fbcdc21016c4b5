"""``read -w``: what is written, read again; Wireshark's tools judge the file."""

from __future__ import annotations

import io
import json
import re
import shutil
import subprocess
import sys
from pathlib import Path
from struct import pack
from typing import TYPE_CHECKING, Any

import pytest

from kdissect import dissect
from kdissect.capture.reader import open_capture
from kdissect.cli.terminal import FAILED, INTERRUPTED, OK, USAGE
from kdissect.exchanges import content
from tests.captures import enhanced, gzipped, interface, pcap, section
from tests.cli.commands import capture_bytes, run, spawn, talk, write
from tests.frames import METADATA, SASL_AUTHENTICATE, request, response, sized
from tests.segments import START_NS, UDP, Talk, ipv4, link
from tests.test_secrets import SECRETS, exchanges_with_secrets
from tests.test_secrets import packets as packets_with_secrets

if TYPE_CHECKING:
    from kdissect.model import Packet

SAMPLES = Path(__file__).parents[2] / "samples"
OTHER = ("10.0.0.9", 50_000)


def exchanges(capsys: pytest.CaptureFixture[str], *arguments: str) -> list[dict[str, Any]]:
    """The exchanges of a capture, but for what is different in every file."""
    rows = [json.loads(line) for line in run(capsys, "read", "--json", *arguments).lines]
    for row in rows:
        del row["capture"], row["packet"]
    return rows


def packets(path: Path | str) -> list[Packet]:
    with open_capture(path) as capture:
        return list(capture)


def bare(captured: list[Packet]) -> list[tuple[int, bytes, int, int, int, str | None]]:
    return [
        (p.time_ns, p.data, p.length, p.interface.link_type, p.interface.snaplen, p.interface.name)
        for p in captured
    ]


@pytest.mark.parametrize(
    "name", ["quickstart.pcap", "mock-rebalance.pcapng", "midstream.pcap", "mock-acks0.pcap"]
)
def test_all_that_is_kafka_reads_the_same(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    out, sample = tmp_path / "out.pcapng", SAMPLES / name
    assert run(capsys, "read", "--show-secrets", "-w", str(out), str(sample)).out == ""
    assert exchanges(capsys, str(out)) == exchanges(capsys, str(sample))


def test_of_one_connection_all_packets_and_no_other(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    one, two = talk().finish(), talk(client=OTHER).finish()
    path, out = write(tmp_path / "in.pcap", one, two), tmp_path / "out.pcapng"
    done = run(capsys, "read", "--client", OTHER[0], "-w", str(out), path)
    assert (done.status, done.out) == (OK, "")
    assert done.err == f"kdissect: {len(two.packets)} packets of 1 connection written to {out}\n"
    assert bare(packets(out)) == bare(packets(path)[len(one.packets) :])
    assert exchanges(capsys, str(out)) == exchanges(capsys, "--client", OTHER[0], path)


def test_one_exchange_selects_its_connection(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path, out = write(tmp_path / "in.pcap", talk(), talk(client=OTHER)), tmp_path / "out.pcapng"
    for options in (["-c", "1"], ["--api", "Metadata", "--client", "10.0.0.1"], ["-Y", "packet < 9"]):
        run(capsys, "read", *options, "-w", str(out), path)
        assert exchanges(capsys, str(out)) == exchanges(capsys, "--client", "10.0.0.1", path)


def test_connections_of_the_same_ends_are_distinguished(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    second = Talk(client_start=900_000).handshake()
    second.client_sends(request(METADATA, 12, {"topics": [{"name": "other"}]}, correlation_id=1))
    third = talk(client_start=70_000_000)
    path, out = write(tmp_path / "in.pcap", talk(), second, third), tmp_path / "out.pcapng"
    run(capsys, "read", "--topic", "other", "-w", str(out), path)
    before = len(talk().packets)
    assert bare(packets(out)) == bare(packets(path)[before : before + len(second.packets)])


def test_fragments_of_a_datagram_are_written_too(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    conversation, stranger = talk(), talk(client=OTHER)
    pieces = []
    for number, packet in enumerate(conversation.packets):
        segment = packet.data[34:]
        parts = [(at, segment[at : at + 16]) for at in range(0, len(segment), 16)]
        pieces += [
            link(
                ipv4(
                    "10.0.0.1" if packet.data[29] == 1 else "10.0.0.2",
                    "10.0.0.2" if packet.data[29] == 1 else "10.0.0.1",
                    part,
                    identification=number,
                    offset=at,
                    more=at + 16 < len(segment),
                )
            )
            for at, part in reversed(parts)
        ]
    timed = [(START_NS + number * 1000, data) for number, data in enumerate(pieces)]
    others = [(START_NS + number * 1000 + 500, packet.data) for number, packet in enumerate(stranger.packets)]
    path, out = tmp_path / "in.pcap", tmp_path / "out.pcapng"
    path.write_bytes(pcap(sorted(timed + others)))
    run(capsys, "read", "--client", "10.0.0.1", "-w", str(out), str(path))
    assert [packet.data for packet in packets(out)] == pieces
    assert len(exchanges(capsys, str(out))) == 4


def test_what_was_in_a_tunnel_is_written_with_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def tunnelled(data: bytes) -> bytes:
        vxlan = bytes.fromhex("0800000000002a00") + data
        return link(
            ipv4(
                "192.0.2.1", "192.0.2.2", pack(">HHHH", 50_000, 4789, 8 + len(vxlan), 0) + vxlan, protocol=UDP
            )
        )

    timed = [
        (START_NS + number * 1000, tunnelled(packet.data))
        for number, packet in enumerate((*talk().packets, *talk(client=OTHER).packets))
    ]
    path, out = tmp_path / "in.pcap", tmp_path / "out.pcapng"
    path.write_bytes(pcap(timed))
    run(capsys, "read", "--client", OTHER[0], "-w", str(out), str(path))
    assert [packet.data for packet in packets(out)] == [data for _, data in timed[len(talk().packets) :]]
    assert len(exchanges(capsys, str(out))) == 4


def test_interfaces_times_and_lengths_are_kept(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    conversation = talk()
    blocks = [
        section(),
        interface(name="unused", link_type=113),
        interface(name="eth0", snaplen=9999, resolution=9),
        interface(name="eth1", snaplen=128),
    ]
    for number, packet in enumerate(conversation.packets):
        clock = START_NS + number if number % 2 else (START_NS + number) // 1000 + number
        blocks.append(enhanced(clock, packet.data, index=1 if number % 2 else 2, longer=number))
    path, out = tmp_path / "in.pcapng", tmp_path / "out.pcapng"
    path.write_bytes(b"".join(blocks))
    run(capsys, "read", "-w", str(out), str(path))
    assert bare(packets(out)) == bare(packets(path))
    assert {packet.interface.name for packet in packets(out)} == {"eth0", "eth1"}


def test_several_files_are_written_as_one(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    conversation = talk().packets
    halves = [tmp_path / "client.pcap.gz", tmp_path / "broker.pcap"]
    for side, path in enumerate(halves):
        own = [(packet.time_ns, packet.data) for packet in conversation if packet.data[29] == side + 1]
        path.write_bytes(gzipped(pcap(own)) if side == 0 else pcap(own))
    out = tmp_path / "out.pcapng"
    run(capsys, "read", "-w", str(out), *map(str, halves))
    assert [packet.data for packet in packets(out)] == [packet.data for packet in conversation]
    assert [packet.interface.index for packet in packets(out)] == [
        int(packet.data[29] != conversation[0].data[29]) for packet in conversation
    ]


def test_through_pipes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data = capture_bytes(talk(), talk(client=OTHER))
    (tmp_path / "in.pcap").write_bytes(data)
    process = spawn("read", "--client", OTHER[0], "-w", "-", "-", stdin=subprocess.PIPE)
    out, err = process.communicate(data)
    (tmp_path / "out.pcapng").write_bytes(out)
    assert process.returncode == OK
    assert err.decode().endswith("packets of 1 connection written to stdout\n")
    expected = exchanges(capsys, "--client", OTHER[0], str(tmp_path / "in.pcap"))
    assert exchanges(capsys, str(tmp_path / "out.pcapng")) == expected


def test_up_to_where_a_capture_is_damaged(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path, out = tmp_path / "in.pcap", tmp_path / "out.pcapng"
    data = capture_bytes(talk())
    path.write_bytes(data + b"\xff" * 16)
    done = run(capsys, "read", "-w", str(out), str(path))
    assert "the rest was not read" in done.err
    path.write_bytes(data)
    assert bare(packets(out)) == bare(packets(path))


def test_no_match_is_an_empty_capture(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path, out = write(tmp_path / "in.pcap", talk()), tmp_path / "out.pcapng"
    done = run(capsys, "read", "--api", "Fetch", "-w", str(out), path)
    assert done.status == OK
    assert "no match in 4 exchanges" in done.err
    assert packets(out) == []


# What may not be written


def test_a_connection_with_a_credential_is_left_out(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path, out = tmp_path / "in.pcap", tmp_path / "out.pcapng"
    path.write_bytes(pcap((packet.time_ns, packet.data) for packet in packets_with_secrets()))
    done = run(capsys, "read", "--api", "SaslHandshake", "-w", str(out), str(path))
    assert done.err == (
        f"kdissect: 0 packets of 0 connections written to {out}\n"
        "kdissect: 1 connection omitted because they carry, or may carry, credentials; "
        "use --show-secrets to include them\n"
    )
    assert packets(out) == []
    run(capsys, "read", "--show-secrets", "-w", str(out), str(path))
    captured = [secret for secret in SECRETS if secret in path.read_bytes()]  # others span segments
    assert len(captured) > 10
    assert all(secret in out.read_bytes() for secret in captured)


@pytest.mark.parametrize("index", range(1, len(exchanges_with_secrets())))
def test_no_credential_is_written(tmp_path: Path, capsys: pytest.CaptureFixture[str], index: int) -> None:
    api, version, sent, answered = exchanges_with_secrets()[index]
    conversation = talk()
    conversation.client_sends(request(api, version, sent, correlation_id=50))
    conversation.broker_sends(response(api, version, answered, correlation_id=50))
    path, out = write(tmp_path / "in.pcap", conversation, talk(client=OTHER)), tmp_path / "out.pcapng"
    assert b"hunter2" in Path(path).read_bytes()
    assert "1 connection omitted" in run(capsys, "read", "--api", "Metadata", "-w", str(out), path).err
    assert b"hunter2" not in out.read_bytes()
    assert {row["client_ip"] for row in exchanges(capsys, str(out))} == {OTHER[0]}


@pytest.mark.parametrize("goes_on", [True, False])
@pytest.mark.parametrize("is_raw", [True, False])
def test_nor_is_the_rest_of_a_credential_that_began_in_a_gap(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], goes_on: bool, is_raw: bool
) -> None:
    token = b"\0alice\0hunter2-in-a-gap"
    framed = request(SASL_AUTHENTICATE, 2, {"auth_bytes": token}, correlation_id=50)
    sent = sized(token) if is_raw else framed
    conversation = talk()
    conversation.client_sends(sent[:6])
    lost = len(conversation.packets) - 1
    conversation.client_sends(sent[6:])
    if goes_on:
        for number in (51, 52):
            conversation.client_sends(request(METADATA, 12, {}, correlation_id=number))
            conversation.broker_sends(response(METADATA, 12, {}, correlation_id=number))
    del conversation.packets[lost]
    path, out = write(tmp_path / "in.pcap", conversation, talk(client=OTHER)), tmp_path / "out.pcapng"
    done = run(capsys, "read", "-w", str(out), path)
    assert "1 connection omitted" in done.err
    assert {row["client_ip"] for row in exchanges(capsys, str(out))} == {OTHER[0]}
    run(capsys, "read", "--show-secrets", "-w", str(out), path)
    assert b"hunter2" in out.read_bytes()


@pytest.mark.parametrize("options", [[], ["--show-secrets"]])
def test_after_ctrl_c_nothing_is_written_without_show_secrets(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, options: list[str]
) -> None:
    path, out = write(tmp_path / "in.pcap", talk()), tmp_path / "out.pcapng"

    def pressed(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("kdissect.capture.connection_index.ConnectionIndex.select", pressed)
    done = run(capsys, "read", *options, "-w", str(out), path)
    assert done.status == INTERRUPTED
    assert ("nothing written" in done.err) == (not options)
    assert out.exists() == bool(options)
    out.write_bytes(b"what stood here before")
    run(capsys, "read", *options, "-w", str(out), path)
    assert (out.read_bytes() == b"what stood here before") == (not options)


@pytest.mark.parametrize("name", ["out.pcapng.gz", "out.pcapng.zst"])
def test_a_name_that_promises_compression_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    done = run(capsys, "read", "-w", str(tmp_path / name), write(tmp_path / "in.pcap", talk()))
    assert done.status == USAGE
    assert "use out.pcapng and compress it afterwards" in done.err
    assert not (tmp_path / name).exists()


@pytest.mark.parametrize("same", ["in.pcap", "./in.pcap", "link.pcap"])
def test_an_input_is_never_overwritten(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, same: str
) -> None:
    monkeypatch.chdir(tmp_path)
    write(tmp_path / "in.pcap", talk())
    (tmp_path / "link.pcap").symlink_to("in.pcap")
    before = (tmp_path / "in.pcap").read_bytes()
    done = run(capsys, "read", "-w", same, "in.pcap")
    assert (done.status, done.err) == (
        USAGE,
        f"kdissect: -w {same} would overwrite an input file (see kdissect read --help)\n",
    )
    with (tmp_path / "in.pcap").open("rb") as stdin:
        process = spawn("read", "-w", same, "-", stdin=stdin)
        process.communicate()
        assert process.returncode == USAGE
    assert (tmp_path / "in.pcap").read_bytes() == before


def test_an_unwritable_file_is_reported(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = write(tmp_path / "in.pcap", talk())
    done = run(capsys, "read", "-w", f"{tmp_path}/nowhere/out.pcapng", path)
    assert done.status == FAILED
    assert re.fullmatch(
        r"kdissect: cannot write .*/nowhere/out.pcapng: No such file or directory\n", done.err
    )


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_a_full_disk_is_reported(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = write(tmp_path / "in.pcap", talk())
    done = run(capsys, "read", "-w", "/dev/full", path)
    assert (done.status, done.err) == (
        FAILED,
        "kdissect: cannot write /dev/full: No space left on device\n",
    )


def test_no_capture_goes_to_a_terminal(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    done = run(capsys, "read", "-w", "-", write(tmp_path / "in.pcap", talk()))
    assert (done.status, "redirect stdout" in done.err) == (USAGE, True)


@pytest.mark.parametrize("other", ["--json", "-V", "-q", "--csv"])
def test_it_writes_instead_of_showing(tmp_path: Path, capsys: pytest.CaptureFixture[str], other: str) -> None:
    path, out = write(tmp_path / "in.pcap", talk()), tmp_path / "out.pcapng"
    assert run(capsys, "read", other, "-w", str(out), path).status == USAGE
    assert not out.exists()


# Wireshark's word on it


@pytest.mark.tools
def test_capinfos_and_tshark_read_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    tools = {name: shutil.which(name) for name in ("capinfos", "tshark")}
    if None in tools.values():
        pytest.skip("capinfos or tshark is not installed")
    out = tmp_path / "out.pcapng"
    run(capsys, "read", "-w", str(out), str(SAMPLES / "mock-rebalance.pcapng"))

    def run_tool(name: str, *arguments: str) -> str:
        command = [str(tools[name]), *arguments]
        return subprocess.run(command, capture_output=True, check=True, text=True).stdout

    info = dict(
        line.split(": ", 1) for line in run_tool("capinfos", "-M", str(out)).splitlines() if ": " in line
    )
    assert info["Number of packets"].strip() == str(len(packets(out)))
    assert info["Capture application"].strip().startswith("kdissect ")
    assert info["File timestamp precision"].strip() == "nanoseconds (9)"
    times = run_tool("tshark", "-r", str(out), "-T", "fields", "-e", "frame.time_epoch").split()
    assert [int(time.replace(".", "")) for time in times] == [packet.time_ns for packet in packets(out)]
    assert io.StringIO(run_tool("tshark", "-r", str(out), "-Y", "tcp.analysis.flags")).read() == ""


SHARK_SAMPLES = ["quickstart.pcap", "kafka-4-basics.pcap", "mock-rebalance.pcapng", "kafka-4-sasl.pcap"]


def _tshark(*arguments: str) -> list[str]:
    if (tshark := shutil.which("tshark")) is None:
        pytest.skip("tshark is not installed")
    done = subprocess.run([tshark, *arguments], capture_output=True, check=True, text=True)
    return done.stdout.splitlines()


@pytest.mark.tshark
@pytest.mark.parametrize("name", SHARK_SAMPLES)
def test_comments_are_on_the_packets_that_complete_an_exchange(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    out = tmp_path / "out.pcapng"
    done = run(capsys, "read", "--comments", "--show-secrets", "-w", str(out), str(SAMPLES / name))
    assert done.status == OK
    commented: dict[str, str] = {}
    comments = []
    fields = ("frame.time_epoch", "frame.comment")
    command = ("-T", "fields", *(word for each in fields for word in ("-e", each)), "-E", "separator=/t")
    for line in _tshark("-r", str(out), "-Y", "frame.comment", *command):
        time, comment = line.split("\t", 1)
        comments.append(comment)
        for each in comment.replace("\\n", "\n").split("\n"):
            commented[each.split()[1]] = time.replace(".", "")
    with open_capture(str(SAMPLES / name)) as capture:
        exchanges = list(dissect(capture, show_secrets=True))
    assert commented == {
        f"{each.connection.id}/{each.number}": str((each.response_frame or each.first_frame).end_ns)
        for each in exchanges
    }
    errors = [each for each in exchanges if content.errors(each)]
    for error in {error for each in errors for error in content.errors(each)}:
        packets = {each.completed_ns for each in errors if error in content.errors(each)}
        assert sum(error in comment for comment in comments) == len(packets)


@pytest.mark.tshark
@pytest.mark.parametrize("name", ["kafka-4-cluster.pcap.gz", "kafka-4-storm.pcap.gz"])
def test_findings_are_on_the_exchanges_that_they_name(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    out = tmp_path / "out.pcapng"
    path = str(SAMPLES / name)
    run(capsys, "read", "--comments", "--show-secrets", "--error", "*", "-w", str(out), path)
    shown = "\n".join(_tshark("-r", str(out), "-T", "fields", "-e", "frame.comment")).replace("\\n", "\n")
    summary = json.loads(run(capsys, "summary", "--findings", "--json", path).out)
    selected = set(re.findall(r"^kdissect (\S+)  ", shown, re.MULTILINE))
    named = {
        (
            each,
            f"{row['severity']} {row['rule']}: {row['subject']}: {row['message']}"
            + (f" (explained by {row['explained_by']})" if row["explained_by"] else ""),
        )
        for row in summary["findings"]
        for each in row["evidence"]
        if each in selected
    }
    assert named
    assert named <= set(
        re.findall(r"^kdissect (\S+)  ((?:error|warning|note) \S+: .+)$", shown, re.MULTILINE)
    )


def test_comments_from_a_pipe_and_what_they_exclude(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path, out = SAMPLES / "quickstart.pcap", tmp_path / "out.pcapng"
    run(capsys, "read", "--comments", "-w", str(out), str(path))
    with path.open("rb") as stdin:
        piped = subprocess.run(
            [sys.executable, "-m", "kdissect", "read", "--comments", "-w", "-", "-"],
            stdin=stdin,
            capture_output=True,
            check=True,
        )
    assert piped.stdout == out.read_bytes()
    assert b"  Produce v10  " in piped.stdout
    for arguments in (
        ("--comments",),
        ("--comments", "--decrypted", "-w", str(out)),
        ("--comments", "-w", "-", "-"),
    ):
        paths = (str(path), str(path)) if "-" in arguments[2:] else (str(path),)
        assert run(capsys, "read", *arguments, *paths).status == USAGE


def test_comments_have_no_secrets(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path, out = tmp_path / "in.pcap", tmp_path / "out.pcapng"
    path.write_bytes(pcap((packet.time_ns, packet.data) for packet in packets_with_secrets()))
    run(capsys, "read", "--comments", "-w", str(out), str(path))
    assert not [secret for secret in SECRETS if secret in out.read_bytes()]


def test_comments_do_not_show_what_stays_encrypted(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    keys, path, out = SAMPLES / "tls/kafka-4-tls.keys", SAMPLES / "tls/kafka-4-tls.pcap.gz", tmp_path / "out"
    arguments = "read", "--comments", "--show-secrets", "--tls-keylog", str(keys), "-w", str(out), str(path)
    assert run(capsys, *arguments).status == OK
    assert b"  SaslHandshake v" not in out.read_bytes()
    assert run(capsys, *arguments, "--with-keys").status == OK
    assert b"  SaslHandshake v" in out.read_bytes()


@pytest.mark.tshark
@pytest.mark.parametrize("name", SHARK_SAMPLES)
def test_display_filters_show_the_packets_of_an_exchange(
    capsys: pytest.CaptureFixture[str], name: str
) -> None:
    """One tshark counts the packets of every filter, and those of them that end a message of its exchange."""
    path = str(SAMPLES / name)
    with open_capture(path) as capture:
        exchanges = list(dissect(capture))
    filters, expected = [], []
    for each in exchanges[:: max(1, len(exchanges) // 6)]:
        chosen = f"{each.connection.id}/{each.number}"
        (display_filter,) = run(capsys, "read", "--exchange", chosen, "--wireshark-filter", path).lines
        frames = {frame.packet for frame in (each.request_frame, each.response_frame) if frame is not None}
        is_end = " || ".join(f"frame.number == {packet}" for packet in frames)
        filters += [display_filter, f"({display_filter}) && ({is_end})"]
        expected.append(len(frames))
    shown = _tshark("-q", "-r", path, "-z", ",".join(("io,stat,0", *filters)))
    (row,) = (line for line in shown if re.match(r"\|\s*[\d.]+ <>", line))
    counts = [int(cell) for cell in row.split("|")[2:-2]][::2]  # beside each, how many bytes
    assert counts[1::2] == expected
    assert max(counts) < 20


@pytest.mark.tshark
def test_a_filter_for_several_exchanges(capsys: pytest.CaptureFixture[str]) -> None:
    path = str(SAMPLES / "quickstart.pcap")
    (display_filter,) = run(capsys, "read", "--error", "*", "--wireshark-filter", path).lines
    with open_capture(path) as capture:
        frames = [
            frame.packet
            for each in dissect(capture)
            if content.errors(each)
            for frame in (each.request_frame, each.response_frame)
            if frame is not None
        ]
    shown = _tshark("-r", path, "-Y", display_filter, "-T", "fields", "-e", "frame.number")
    assert {str(packet) for packet in frames} <= set(shown)
    assert run(capsys, "read", "--error", "nosuch*", "--wireshark-filter", path).out == ""
