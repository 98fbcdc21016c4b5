"""Captures as a whole: one file, several, pipes, bad ones among good ones; and what no input may do."""

from __future__ import annotations

import io
import os
import random
import subprocess
import sys
import threading
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kdissect.capture.reader import is_capture, open_capture
from kdissect.errors import CaptureError, UnexpectedError
from tests.capture.reading import read
from tests.captures import (
    COMPRESSIONS,
    EXAMPLE,
    SECOND_NS,
    VARIANTS,
    counters,
    gzipped,
    interface,
    open_in,
    pcap,
    pcapng,
    section,
)

if TYPE_CHECKING:
    from pathlib import Path

    from kdissect.capture.reader import Capture
    from kdissect.model import Packet


def write(path: Path, data: bytes) -> str:
    path.write_bytes(data)
    return str(path)


def timed(capture: Capture) -> list[tuple[int, bytes]]:
    return [(packet.time_ns, packet.data) for packet in capture]


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("block_bytes", [1, 3, 65536])
def test_the_content_determines_the_format_not_the_name(
    tmp_path: Path, variant: str, block_bytes: int
) -> None:
    path = write(tmp_path / "capture.txt", VARIANTS[variant](EXAMPLE))
    with open_capture(path) as capture:
        assert timed(capture) == list(EXAMPLE)
        assert capture.bytes_read == capture.bytes_total == os.stat(path).st_size  # noqa: PTH116
        assert (capture.packets, capture.warnings, capture.statistics) == (len(EXAMPLE), [], {})
    assert read(VARIANTS[variant](EXAMPLE), block_bytes=block_bytes).timed == list(EXAMPLE)


def test_a_capture_is_read_once_and_interfaces_have_its_name(tmp_path: Path) -> None:
    path = tmp_path / "a.pcap"
    write(path, pcap(EXAMPLE))
    with open_capture(path) as capture:
        packets = iter(capture)
        assert next(packets).interface.capture == str(path)
        assert len(list(capture)) == len(EXAMPLE) - 1
        assert list(capture) == []


def test_closing_early_closes_the_file_and_counts_what_was_read(tmp_path: Path) -> None:
    path = write(tmp_path / "a.pcap", pcap(EXAMPLE))
    with open_capture(path) as capture:
        assert next(iter(capture)).number == 1
        assert open_in(tmp_path) == 1
    assert open_in(tmp_path) == 0
    assert capture.packets == 12  # all that stand in the block that was read
    assert list(capture) == []


def test_counters_of_the_capturing_program(tmp_path: Path) -> None:
    path = write(tmp_path / "a.pcapng", section() + interface(name="eth0") + counters(dropped=7))
    with open_capture(path) as capture:
        assert list(capture) == []
        assert [(i.name, c.dropped_by_interface) for i, c in capture.statistics.items()] == [("eth0", 7)]


def test_a_cut_capture_is_a_warning(tmp_path: Path) -> None:
    path = write(tmp_path / "a.pcap", pcap(EXAMPLE)[:-1])
    with open_capture(path) as capture:
        assert timed(capture) == list(EXAMPLE[:-1])
        (warning,) = capture.warnings
    assert warning.startswith(f"{path}: ends in the middle of packet 12, which begins at byte ")


BAD = {
    "empty": (b"", "neither pcap nor pcapng; it is empty"),
    "text": (b"time,client,broker\n", "neither pcap nor pcapng; it is text"),
    "one byte": (b"\xa1", "neither pcap nor pcapng; it is an unknown format"),
    "other magic": (b"\xa1\xb2\xc3\xd5" + bytes(40), "neither pcap nor pcapng; it is an unknown format"),
    "zip": (b"PK\x03\x04" + bytes(40), "neither pcap nor pcapng; it is a zip archive; extract it first"),
}


@pytest.mark.parametrize("name", BAD)
def test_not_a_capture(tmp_path: Path, name: str) -> None:
    data, text = BAD[name]
    path = write(tmp_path / "a.pcap", data)
    with pytest.raises(CaptureError) as caught:
        open_capture(path)
    assert str(caught.value) == f"{path}: {text}"


def test_missing_directory_and_forbidden(tmp_path: Path) -> None:
    with pytest.raises(CaptureError, match=r"missing\.pcap: no such file or directory$"):
        open_capture(tmp_path / "missing.pcap")
    with pytest.raises(CaptureError, match=r": is a directory$"):
        list(open_capture(tmp_path))
    with pytest.raises(CaptureError, match="no capture given"):
        open_capture()
    with pytest.raises(CaptureError, match=r"stdin \(-\) can be given only once"):
        open_capture("-", tmp_path, "-")
    if os.geteuid() != 0:
        path = tmp_path / "secret.pcap"
        path.touch(mode=0)
        with pytest.raises(CaptureError, match=r"secret\.pcap: permission denied$"):
            open_capture(path)


def test_a_fault_comes_after_all_packets_before_it(tmp_path: Path) -> None:
    path = write(tmp_path / "a.pcap", pcap(EXAMPLE) + bytes(8) + b"\xff" * 8)
    seen: list[Packet] = []
    with open_capture(path) as capture, pytest.raises(CaptureError, match="packet 13 claims 4294967295"):
        seen.extend(capture)
    assert len(seen) == len(EXAMPLE)
    assert capture.packets == len(EXAMPLE)


def ring(tmp_path: Path, count: int) -> list[str]:
    """Files of a ring buffer, in order."""
    return [
        write(
            tmp_path / f"ring{index}.pcap",
            pcap([(index * SECOND_NS + n * 1000, b"%d.%d" % (index, n)) for n in range(3)]),
        )
        for index in range(count)
    ]


def test_ring_buffer_files_in_any_order(tmp_path: Path) -> None:
    files = ring(tmp_path, 7)
    expected = [b"%d.%d" % (index, n) for index in range(7) for n in range(3)]
    for seed in range(5):
        shuffled = random.Random(seed).sample(files, len(files))
        with open_capture(*shuffled) as capture:
            packets = list(capture)
        assert [packet.data for packet in packets] == expected
        assert [packet.number for packet in packets] == [1, 2, 3] * 7
        assert [packet.interface.capture for packet in packets[::3]] == files
        assert capture.bytes_read == capture.bytes_total


def test_one_file_of_a_long_ring_buffer_is_open_at_a_time(tmp_path: Path) -> None:
    files = ring(tmp_path, 150)
    with open_capture(*files) as capture:
        most = max(open_in(tmp_path) for _ in capture)
    assert most <= 2
    assert capture.packets == 450


def test_many_files_of_the_same_time_do_not_hold_file_descriptors(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = [write(tmp_path / f"{index}.pcap", pcap([(index, b"a"), (10**9, b"b")])) for index in range(40)]
    monkeypatch.setattr("kdissect.capture.reader._OPEN_FILES", 30)
    with open_capture(*files) as capture:
        most = max(open_in(tmp_path) for _ in capture)
    assert most <= 2
    assert capture.packets == 80


def test_formats_may_be_mixed(tmp_path: Path) -> None:
    files = [
        write(tmp_path / f"{name}.{packing}", compress(make([(number * 1000, b"%d" % number)])))
        for number, (packing, compress, name, make) in enumerate(
            (packing, compress, name, make)
            for packing, compress in COMPRESSIONS.items()
            for name, make in VARIANTS.items()
        )
    ]
    with open_capture(*reversed(files)) as capture:
        assert [packet.data for packet in capture] == [b"%d" % number for number in range(len(files))]


def test_bad_files_among_good_ones_are_warnings(tmp_path: Path) -> None:
    good = write(tmp_path / "good.pcap", pcap(EXAMPLE))
    text = write(tmp_path / "notes.txt", b"hello")
    broken = write(tmp_path / "broken.pcap", pcap([(0, b"first")]) + bytes(8) + b"\xff" * 8)
    missing = str(tmp_path / "missing.pcap")
    with open_capture(text, good, missing, broken) as capture:
        assert timed(capture) == [(0, b"first"), *EXAMPLE]
        assert capture.warnings == [
            f"{text}: neither pcap nor pcapng; it is text",
            f"{missing}: no such file or directory",
            f"{broken}: packet 2 claims 4294967295 captured bytes, more than 4194304, at byte 45",
        ]
        assert capture.packets == 1 + len(EXAMPLE)
        assert [source.name for source in capture.sources] == [text, good, broken]


def test_nothing_but_bad_files(tmp_path: Path) -> None:
    text = write(tmp_path / "notes.txt", b"hello")
    with pytest.raises(
        CaptureError, match=r"^none of 2 captures can be read; .*notes\.txt: neither pcap nor"
    ):
        open_capture(text, tmp_path / "missing.pcap")
    with open_capture(text, io.BytesIO(b"hello")) as capture, pytest.raises(CaptureError, match="none of 2"):
        list(capture)


def test_streams_are_merged_with_files(tmp_path: Path) -> None:
    path = write(tmp_path / "a.pcap", pcap(EXAMPLE[::2]))
    with open_capture(path, io.BytesIO(pcapng(EXAMPLE[1::2])), io.BytesIO(pcap([]))) as capture:
        assert timed(capture) == list(EXAMPLE)
        assert capture.bytes_total is None


def test_a_named_pipe_is_read_once(tmp_path: Path) -> None:
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    writer = threading.Thread(target=fifo.write_bytes, args=(pcap(EXAMPLE),))
    writer.start()
    with open_capture(fifo) as capture:
        assert timed(capture) == list(EXAMPLE)
    writer.join()


@pytest.mark.parametrize("variant", VARIANTS)
def test_a_pipe_gives_each_packet_as_soon_as_its_bytes_are_there(variant: str) -> None:
    make = VARIANTS[variant]
    receiving, sending = os.pipe()
    with open(receiving, "rb") as reader, open(sending, "wb", buffering=0) as writer:  # noqa: PTH123
        packets = iter(open_capture(reader))
        sent = 0
        for count in range(1, len(EXAMPLE) + 1):
            data = make(EXAMPLE[:count])
            writer.write(data[sent:])
            sent = len(data)
            packet = next(packets)
            assert (packet.time_ns, packet.data) == EXAMPLE[count - 1]
        writer.close()
        assert list(packets) == []


def test_stdin_of_a_process() -> None:
    program = "from kdissect.capture.reader import open_capture; print([p.data for p in open_capture('-')])"
    run = subprocess.run(
        [sys.executable, "-c", program], input=pcap(EXAMPLE[:3]), capture_output=True, check=True
    )
    assert run.stdout.decode().strip() == str([data for _, data in EXAMPLE[:3]])


ALL_FORMS = {
    **{name: make(EXAMPLE) for name, make in VARIANTS.items()},
    **{name: compress(pcapng(EXAMPLE)) for name, compress in COMPRESSIONS.items()},
}


@given(
    st.sampled_from(sorted(ALL_FORMS)),
    st.lists(st.tuples(st.integers(0, 2000), st.integers(0, 255)), max_size=6),
    st.integers(0, 2000),
    st.sampled_from([1, 13, 65536]),
)
def test_mutated_captures_raise_nothing_but_capture_errors(
    form: str, changes: list[tuple[int, int]], keep: int, block_bytes: int
) -> None:
    data = bytearray(ALL_FORMS[form])
    for pos, value in changes:
        data[pos % len(data)] = value
    cut = bytes(data[: max(keep, 1)])
    seen = read(cut, block_bytes=block_bytes)
    again = read(cut)
    if form in VARIANTS:
        assert (seen.packets, seen.fault, seen.warnings) == (again.packets, again.fault, again.warnings)
    else:
        # A decompressor that meets damage gives nothing of the block it is in, so blocks matter.
        fewer = min(len(seen.packets), len(again.packets))
        assert seen.packets[:fewer] == again.packets[:fewer]
    for line in [seen.fault or "", *seen.warnings]:
        assert "\n" not in line


@given(
    st.binary(max_size=200),
    st.sampled_from([b"", b"\x1f\x8b\x08\0", b"\x28\xb5\x2f\xfd", b"\x04\x22\x4d\x18", section()]),
)
def test_noise_raises_nothing_but_capture_errors(noise: bytes, head: bytes) -> None:
    seen = read(head + noise)
    assert seen.packets == [] or head == section()


def test_memory_does_not_grow_with_the_file(tmp_path: Path) -> None:
    import tracemalloc

    def peak(path: str, count: int) -> int:
        tracemalloc.start()
        with open_capture(path) as capture:
            assert sum(1 for _ in capture) == count
        _, most = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        return most

    peaks = []
    for count in (2_000, 20_000):
        path = write(tmp_path / f"{count}.pcapng", pcapng([(n * 1000, bytes(300)) for n in range(count)]))
        peaks.append(min(peak(path, count) for _ in range(3)))  # imports and other threads only add to it
    assert peaks[1] < peaks[0] * 1.1 + 50_000
    assert peaks[1] < 1_000_000


@pytest.mark.parametrize("variant", VARIANTS)
def test_the_format_of_a_file(tmp_path: Path, variant: str) -> None:
    path = tmp_path / "x"
    path.write_bytes(gzipped(VARIANTS[variant](EXAMPLE)))
    with open_capture(path) as capture:
        (source,) = capture.sources
        assert (source.form, source.compression) == (None, None)
        interface = next(iter(capture)).interface
    assert source.form is not None
    name = "modified pcap" if variant.endswith("modified") else variant.split()[0]
    assert source.form[:2] == (name, "big" if "big-endian" in variant else "little")
    assert source.compression == "gzip"
    assert source.interfaces == {interface: 10**9 if "nanoseconds" in variant else 10**6}


def test_is_capture_decompresses(tmp_path: Path) -> None:
    data = pcap([(1, b"packet")])
    contents = {"plain": data, "gz": gzipped(data), "text.gz": gzipped(b"text"), "empty": b""}
    for name, content in contents.items():
        (tmp_path / name).write_bytes(content)
    assert {name: is_capture(tmp_path / name) for name in contents} == {
        "plain": True,
        "gz": True,
        "text.gz": False,
        "empty": False,
    }
    (tmp_path / "broken").write_bytes(b"\x1f\x8b\x08no gzip")
    assert not is_capture(tmp_path / "broken")


def test_a_bug_in_recognition_is_reported_by_reading(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """So that the other captures of a directory are read, and this one is reported."""

    def fail(*_: object) -> None:
        raise ZeroDivisionError

    path = tmp_path / "capture.gz"
    path.write_bytes(gzipped(pcap([(1, b"packet")])))
    monkeypatch.setattr("kdissect.capture.compression.recognized", fail)
    assert is_capture(path)
    with pytest.raises(UnexpectedError, match=r"capture\.gz: unexpected ZeroDivisionError at "):
        open_capture(path)
