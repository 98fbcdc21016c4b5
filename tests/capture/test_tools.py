"""Wireshark's tools as independent judges: they convert, we read; we write, they read."""

from __future__ import annotations

import shutil
import subprocess
from decimal import Decimal
from typing import TYPE_CHECKING

import pytest

from kdissect.capture.reader import open_capture
from kdissect.capture.write import PcapngWriter
from kdissect.model import Interface, Packet
from tests.captures import (
    EXAMPLE,
    VARIANTS,
    block,
    enhanced,
    gzipped,
    interface,
    obsolete,
    pcap,
    pcapng,
    section,
    simple,
)

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.tools


def tool(name: str) -> str:
    path = shutil.which(name)
    if path is None:
        pytest.skip(f"{name} is not installed")
    return path


def tshark_packets(path: Path) -> list[tuple[int, int, int, int]]:
    """Number, time, captured length and length on the wire of each packet."""
    fields = ["frame.number", "frame.time_epoch", "frame.cap_len", "frame.len"]
    command = [
        tool("tshark"),
        "-r",
        str(path),
        "-T",
        "fields",
        *(word for field in fields for word in ("-e", field)),
    ]
    out = subprocess.run(command, capture_output=True, check=True, text=True).stdout
    rows = [line.split("\t") for line in out.splitlines()]
    return [
        (int(n), int(Decimal(time) * 10**9), int(captured), int(length)) for n, time, captured, length in rows
    ]


def our_packets(path: Path) -> list[tuple[int, int, int, int]]:
    with open_capture(path) as capture:
        return [(p.number, p.time_ns, len(p.data), p.length) for p in capture]


@pytest.mark.parametrize("variant", VARIANTS)
def test_tshark_reads_the_same(tmp_path: Path, variant: str) -> None:
    path = tmp_path / "a.pcap"
    path.write_bytes(VARIANTS[variant](EXAMPLE))
    assert our_packets(path) == tshark_packets(path)


def test_tshark_reads_the_same_clocks_sections_and_numbers(tmp_path: Path) -> None:
    path = tmp_path / "a.pcapng"
    data = section() + interface(resolution=9) + interface(resolution=0x80 | 10, offset=100) + interface()
    data += (
        enhanced(10**18 + 1, b"a")
        + enhanced(10**12, b"bc", index=1, longer=90)
        + obsolete(10**15, b"d", index=2)
    )
    data += (
        block(9, b"__REALTIME_TIMESTAMP=1700000000000000\n")
        + block(0x7777, b"skip")
        + enhanced(10**18 + 2, b"e", index=0)
    )
    data += section(order=">") + interface(order=">") + enhanced(10**15 + 3, b"f", order=">")
    path.write_bytes(data)
    own, tsharks = our_packets(path), tshark_packets(path)
    assert own == [row for row in tsharks if row[0] != 4]
    assert len(tsharks) == 6


def test_tshark_numbers_and_lengths_of_simple_packets(tmp_path: Path) -> None:
    path = tmp_path / "a.pcapng"
    path.write_bytes(section() + interface(snaplen=3) + simple(b"abc", length=50) + simple(b"de"))
    fields = ["-e", "frame.number", "-e", "frame.cap_len", "-e", "frame.len"]
    command = [tool("tshark"), "-r", str(path), "-T", "fields", *fields]
    out = subprocess.run(command, capture_output=True, check=True, text=True).stdout
    tsharks = [tuple(map(int, line.split())) for line in out.splitlines()]
    assert [(n, captured, length) for n, _, captured, length in our_packets(path)] == tsharks


@pytest.mark.parametrize("form", ["pcap", "nsecpcap", "modpcap", "pcapng"])
def test_what_editcap_converts(tmp_path: Path, form: str) -> None:
    source, path = tmp_path / "a", tmp_path / "b"
    source.write_bytes(pcapng(EXAMPLE))
    subprocess.run([tool("editcap"), "-F", form, str(source), str(path)], capture_output=True, check=True)
    with open_capture(path) as capture:
        assert [(p.time_ns, p.data) for p in capture] == list(EXAMPLE)


def test_a_snaplen_of_editcap(tmp_path: Path) -> None:
    source, path = tmp_path / "a", tmp_path / "b"
    source.write_bytes(pcap([(0, bytes(500))]))
    subprocess.run([tool("editcap"), "-s", "96", str(source), str(path)], capture_output=True, check=True)
    assert our_packets(path) == [(1, 0, 96, 500)]


def test_mergecap_merges_the_same(tmp_path: Path) -> None:
    paths = []
    for index in range(3):
        paths.append(tmp_path / f"{index}.pcap")
        paths[-1].write_bytes(pcap(EXAMPLE[index::3]))
    merged = tmp_path / "merged"
    subprocess.run([tool("mergecap"), "-w", str(merged), *map(str, paths)], capture_output=True, check=True)
    with open_capture(*paths) as own, open_capture(merged) as tsharks:
        assert [(p.time_ns, p.data) for p in own] == [(p.time_ns, p.data) for p in tsharks] == list(EXAMPLE)


def test_tshark_reads_what_we_write(tmp_path: Path) -> None:
    packets = [
        Packet(0, ns + 7, Interface("a", 0, 113, 96, "any"), data, len(data) + 3) for ns, data in EXAMPLE
    ]
    expected = [(n, p.time_ns, len(p.data), p.length) for n, p in enumerate(packets, 1)]
    path = tmp_path / "a.pcapng"
    with path.open("wb") as file:
        writer = PcapngWriter(file)
        for packet in packets:
            writer.write(packet)
    assert tshark_packets(path) == our_packets(path) == expected
    out = subprocess.run([tool("capinfos"), str(path)], capture_output=True, check=True, text=True).stdout
    assert "Name = any" in out
    assert "Encapsulation = Linux cooked-mode capture v1" in out
    assert "Time precision = nanoseconds (9)" in out


def test_tcpdump_reads_the_same(tmp_path: Path) -> None:
    path, copy = tmp_path / "a.pcap", tmp_path / "b.pcap"
    path.write_bytes(pcapng(EXAMPLE[1:]))
    subprocess.run([tool("tcpdump"), "-r", str(path), "-w", str(copy)], capture_output=True, check=True)
    assert our_packets(copy) == our_packets(path)


def test_a_capture_piped_through_gzip_the_program(tmp_path: Path) -> None:
    path = tmp_path / "a.pcap.gz"
    packed = subprocess.run([tool("gzip"), "-9"], input=pcap(EXAMPLE), capture_output=True, check=True).stdout
    path.write_bytes(packed + gzipped(b""))
    with open_capture(path) as capture:
        assert [(p.time_ns, p.data) for p in capture] == list(EXAMPLE)
