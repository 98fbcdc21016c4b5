"""Captures as they really are. Where nothing was lost, whatever carried it and whatever wrote it down, the
same is shown; where something was lost, cut or came late, no exchange is invented, and nearly
all of those are whose bytes are there.
"""

from __future__ import annotations

from collections import Counter
from random import Random
from typing import TYPE_CHECKING, Any

import pytest

from kdissect import dissect, open_capture
from kdissect.errors import CaptureError
from samples.golden import captures, name_of
from tests.damage import DAMAGES, Truth, from_the_start, request_of, resegmented, response_of, rows_of
from tests.depth import IS_DEEP
from tests.disguises import ENDS_DIFFER, FILES, NETWORKS, WITH_NANOSECONDS, in_two_files

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path

    from kdissect.model import Endpoint, Packet
    from tests.damage import Rows

SAMPLES = [
    path for path in captures() if not any(word in name_of(path) for word in ("midstream", "http", "tls"))
]
QUICK = [
    path for path in SAMPLES if name_of(path) in ("quickstart", "mock-acks0", "tansu-sasl", "raw-requests")
]
SEEDS = 20 if IS_DEEP else 1
SOME = SAMPLES if IS_DEEP else SAMPLES[::3]
SEGMENTS = (None, 1448, 300, 40) if IS_DEEP else (300,)  # bytes at most, None: as they were captured
MIN_MATCHED = 0.95
MIN_OF_SEVERAL = MIN_MESSAGES = 0.9
MIN_MESSAGES_OF_SEVERAL = 0.8
# Responses alone are shown if three in a row have consecutive correlation IDs.
MIN_RESPONSES = 0.4
SNAPLENS = ("snaplen 68", "snaplen 96", "snaplen 200")
HARMLESS = ("shuffled", "shuffled far", "duplicated", "duplicated, shuffled")

# Its clients give all requests the correlation id 0: where a tenth of segments of 40 bytes is missing, so
# that requests and responses are lost by the dozen, a response of the same form can be taken for the next
# one's.
MISPAIRED = {("kafka-0.8.2", 40): 5}

Matched = dict[str, Counter[str]]


def packets_of(path: Path, mss: int | None) -> list[Packet]:
    with open_capture(path) as capture:
        packets = list(capture)
    return resegmented(packets, mss) if mss else packets


# --- what was lost ------------------------------------------------------------------------------------------


def check(path: Path, mss: int | None, damages: Iterable[str], seeds: int) -> Matched:
    """For each damage: how many exchanges and how many messages have all their bytes in what is left, and how
    many of them were shown.
    """
    packets = from_the_start(packets_of(path, mss))
    truth = Truth(packets)
    out: Matched = {}
    for name in damages:
        counts = out[name] = Counter()
        for seed in range(seeds):
            damaged = DAMAGES[name](packets, Random(f"{path.name} {name} {seed}"))
            exchanges = list(dissect(damaged.packets))
            phantoms = truth.phantoms(exchanges)
            assert len(phantoms) <= MISPAIRED.get((name_of(path), mss), 0), (name, seed, phantoms)
            if name == "duplicated":
                order = [one.completed_ns for one in exchanges]
                assert order == sorted(order), (name, seed)
            same = truth.unharmed(damaged.hurt)
            assert rows(rows_of(exchanges), same, name) == rows(truth.rows, same, name), (name, seed)
            reported = Counter((request_of(one), response_of(one)) for one in exchanges)
            undamaged = truth.undamaged(damaged.hurt)
            counts["exchanges"] += undamaged.total()
            counts["exchanges decoded"] += (undamaged & reported).total()
            messages = truth.undamaged_messages(damaged.hurt)
            counts["messages"] += messages.total()
            counts["messages decoded"] += (messages & truth.messages_of(exchanges)).total()
    return out


def rows(reported: Rows, connections: set[frozenset[Endpoint]], damage: str) -> list[dict[str, object]]:
    """Rows of some connections."""
    left_out = {"capture"}
    if damage not in HARMLESS:
        left_out.add("topics")  # whose names may have been in what was lost
    if "shuffled" in damage:
        # of a retransmission, where that now comes first, and whether its end came in time
        left_out |= {"packet", "time", "latency_us", "outcome"}
        left_out |= {"queued_us", "throttled_us", "network_us", "wait_us", "service_us"}
        left_out |= {"request_transfer_us", "response_transfer_us", "total_us"}
    kept = [
        {key: value for key, value in row.items() if key not in left_out}
        for ends, row in reported
        if ends in connections
    ]
    return sorted(kept, key=lambda row: (row["connection"], row["number"]))


def check_shares(results: list[Matched], report: Callable[[str], None]) -> None:
    for name in DAMAGES:
        counts = sum((each[name] for each in results if name in each), Counter[str]())
        least = 1.0 if name in HARMLESS else MIN_OF_SEVERAL if "," in name else MIN_MATCHED
        min_messages = MIN_MESSAGES_OF_SEVERAL if "," in name else MIN_MESSAGES
        if name == "responses only":
            min_messages = MIN_RESPONSES
        for what, shard in (("exchanges", least), ("messages", min_messages)):
            there, decoded = counts[what], counts[f"{what} decoded"]
            if there:
                report(f"{name}: {decoded} of {there} whole {what}, {decoded / there:.2%}")
                assert decoded >= shard * there, name


def test_nothing_is_invented_and_nearly_nothing_missed(report_line: Callable[[str], None]) -> None:
    check_shares([check(path, 300, DAMAGES, 1) for path in QUICK], report_line)


@pytest.mark.deep
@pytest.mark.parametrize("mss", SEGMENTS)
def test_nothing_is_invented_and_nearly_nothing_missed_in_any_sample(
    mss: int | None, report_line: Callable[[str], None]
) -> None:
    check_shares([check(path, mss, DAMAGES, SEEDS) for path in SOME], report_line)


# --- what a snaplen left ------------------------------------------------------------------------------------


def headers(path: Path, mss: int | None, name: str) -> Counter[str]:
    """Of the requests of which api, version and correlation id were captured, how many were shown with them;
    and of their answers, how many with the right latency.
    """
    packets = from_the_start(packets_of(path, mss))
    truth = Truth(packets)
    cut = DAMAGES[name](packets, Random(0)).packets
    expected = truth.with_headers({packet.number: len(packet.data) for packet in cut})
    decoded = {(one.first_frame.packet, one.correlation_id): one for one in dissect(cut)}
    counts: Counter[str] = Counter()
    for exchange in expected:
        assert exchange.request_frame
        counts["there"] += 1
        match = decoded.get((exchange.request_frame.packet, exchange.correlation_id))
        if match is None or match.request_frame is None:
            continue
        counts["decoded"] += 1
        assert (match.api_key, match.api_version) == (exchange.api_key, exchange.api_version)
        assert match.request_frame.size == exchange.request_frame.size
        if exchange.response_frame and match.response_frame:
            counts["paired"] += 1
            assert match.response_frame.size == exchange.response_frame.size
            assert match.latency_us == exchange.latency_us
        counts["answered"] += exchange.response_frame is not None
    return counts


@pytest.mark.parametrize("name", SNAPLENS)
def test_headers_that_a_snaplen_left_are_decoded(name: str, report_line: Callable[[str], None]) -> None:
    check_headers(QUICK, name, report_line)


@pytest.mark.deep
@pytest.mark.parametrize("name", SNAPLENS)
def test_headers_that_a_snaplen_left_are_decoded_in_any_sample(
    name: str, report_line: Callable[[str], None]
) -> None:
    check_headers(SAMPLES, name, report_line)


def check_headers(paths: list[Path], name: str, report_line: Callable[[str], None]) -> None:
    counts = sum((headers(path, 1448, name) for path in paths), Counter[str]())
    requests = f"{counts['decoded']} of {counts['there']} requests whose headers are there"
    report_line(f"{name}: {requests}, {counts['paired']} of {counts['answered']} answers with their latency")
    assert counts["decoded"] >= MIN_MATCHED * counts["there"] > 150
    assert counts["paired"] >= MIN_MATCHED * counts["answered"]


# --- where nothing was lost ---------------------------------------------------------------------------------


def same_rows(reported: Rows, *left_out: str) -> list[dict[str, Any]]:
    return [{key: value for key, value in row.items() if key not in left_out} for _, row in reported]


def check_networks(path: Path) -> int:
    packets = packets_of(path, None)
    plain = rows_of(dissect(packets))
    for name, disguise in NETWORKS.items():
        of_ends = {"connection", "client_ip", "broker_ip", "community_id"}
        left_out = {"capture"} | (of_ends if name in ENDS_DIFFER else set())
        run = dissect(disguise(packets))
        assert same_rows(rows_of(run), *left_out) == same_rows(plain, *left_out), name
        assert not run.skipped, name
    return len(plain)


def check_files(path: Path, directory: Path) -> int:
    exact = packets_of(path, None)
    coarse = [packet._replace(time_ns=packet.time_ns // 1000 * 1000) for packet in exact]
    exact_rows, coarse_rows = (same_rows(rows_of(dissect(one)), "capture") for one in (exact, coarse))
    written = directory / "written"
    for name, write in FILES.items():
        written.write_bytes(write(exact))
        with open_capture(written) as capture:
            rows_read = same_rows(rows_of(dissect(capture)), "capture")
        assert rows_read == (exact_rows if name in WITH_NANOSECONDS else coarse_rows), name
    several = [directory / "one", directory / "two"]
    for file, data in zip(several, in_two_files(exact), strict=True):
        file.write_bytes(data)
    with open_capture(*several) as capture:
        rows_read = same_rows(rows_of(dissect(capture)), "capture", "packet")
    assert rows_read == [{key: value for key, value in row.items() if key != "packet"} for row in coarse_rows]
    return len(rows_read)


def check_truncated(path: Path, directory: Path, random: Random) -> int:
    """A file that ends anywhere, and one that was compressed and then ends anywhere."""
    packets = from_the_start(packets_of(path, None))
    truth = Truth(packets)
    written = directory / "written"
    total = 0
    for name, write in FILES.items():
        content = write(packets)
        written.write_bytes(content[: random.randrange(len(content) // 10, len(content))])
        read: list[Packet] = []
        try:
            with open_capture(written) as capture:
                read.extend(capture)
        except CaptureError:
            assert read or "zstd" in name or "lz4" in name or "gzip" in name
        exchanges = list(dissect(read))
        assert truth.phantoms(exchanges) == [], name
        hurt = frozenset(packet.number for packet in packets[len(read) :])
        undamaged = truth.undamaged(hurt)
        decoded = Counter((request_of(one), response_of(one)) for one in exchanges)
        assert (undamaged & decoded).total() >= MIN_MATCHED * undamaged.total(), name
        total += undamaged.total()
    return total


def test_the_network_does_not_change_the_output() -> None:
    assert sum(map(check_networks, QUICK[:2])) > 80


def test_the_file_format_does_not_change_the_output(tmp_path: Path) -> None:
    assert sum(check_files(path, tmp_path) for path in QUICK) > 200


def test_truncated_files_are_decoded_up_to_their_end(tmp_path: Path) -> None:
    assert sum(check_truncated(path, tmp_path, Random(path.name)) for path in QUICK) > 200


@pytest.mark.deep
@pytest.mark.parametrize("path", captures() if IS_DEEP else captures()[::3], ids=name_of)
def test_any_sample_has_the_same_output(path: Path, tmp_path: Path) -> None:
    assert check_networks(path) == check_files(path, tmp_path)


@pytest.mark.deep
@pytest.mark.parametrize("path", SAMPLES, ids=name_of)
def test_any_sample_may_end_early(path: Path, tmp_path: Path) -> None:
    for seed in range(SEEDS):
        check_truncated(path, tmp_path, Random(f"{path.name} {seed}"))
