"""Every fault that was found and that let a capture crash, hang or inflate kdissect, reach a terminal or stay
hidden: the smallest capture that does it, and what must hold. All run in one process with limits on memory
and processor time (``runs.py``).

Faults that need a terminal, an interface, a network or another user have tests elsewhere; ``ELSEWHERE`` lists
them.
"""

from __future__ import annotations

import ast
import gzip
import re
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import pytest

from kdissect.cli.terminal import OK, USAGE
from tests.attack.runs import Result, run_all
from tests.attack.test_floods import fragmented, half_open, overlapping
from tests.captures import block, counters, enhanced, interface, pcap, section
from tests.frames import METADATA, PRODUCE, request, request_payload, response, response_payload, sized
from tests.kafka.test_compression import TINY
from tests.record_batches import ZSTD, Item, batch
from tests.segments import ACK, FIN, PSH, START_NS, Talk
from tests.test_hostile import ESCAPES, assert_harmless
from tests.test_oversized import header, long_string, strings, structs, tags

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

OFFSET_FETCH, JOIN_GROUP, HEARTBEAT, DESCRIBE_GROUPS = 9, 11, 12, 15
DATA_BYTES = 400 << 20
"""The most that the process may allocate: arrays of tiny structs took 2.7 GB."""


class Fault(NamedTuple):
    """A fault that was found.

    Attributes:
        capture: makes the file.
        commands: that had it, each with its options.
        shows: what stands in the output, a regular expression.
        hides: what does not.
    """

    capture: Callable[[], bytes]
    commands: tuple[str, ...]
    shows: str = ""
    hides: str = r"a bug in kdissect|\x1b|Traceback"


def answered(*messages: tuple[bytes, bytes]) -> bytes:
    """A capture of a connection with these requests and responses."""
    talk = Talk(mss=60_000).handshake()
    for one, two in messages:
        talk.client_sends(sized(one)).broker_sends(sized(two))
    return captured(talk)


def captured(talk: Talk) -> bytes:
    return pcap((packet.time_ns, packet.data) for packet in talk.packets)


def flood(packets: Iterable[bytes]) -> bytes:
    return pcap(zip(count(START_NS, 1000), packets, strict=False))


def tiny_structs() -> bytes:
    answer = structs(size=5 << 20)[len(header(OFFSET_FETCH, 8)) :]
    return answered((structs(size=5 << 20), bytes((0, 0, 0, 1, 0, 0, 0, 0, 0)) + answer))


def drop_counters() -> bytes:
    most = (1 << 64) - 1
    packets = b"".join(enhanced(number, bytes(60)) for number in range(3))
    return (
        section() + interface() + packets + counters(dropped=most, dropped_by_system=most, received=most) * 2
    )


def escapes_in_a_group() -> bytes:
    name = f"g{ESCAPES}"
    members = {"group_id": name, "member_id": f"m{ESCAPES}"}
    talk = Talk(mss=60_000).handshake()
    for number, (api, more) in enumerate(((JOIN_GROUP, {"protocol_type": "consumer"}), (HEARTBEAT, {})), 1):
        talk.client_sends(request(api, 2, {**members, **more}, correlation_id=number))
        talk.broker_sends(response(api, 2, {}, correlation_id=number))
    return captured(talk)


def odd_client(client_id: str) -> Callable[[], bytes]:
    def capture() -> bytes:
        talk = Talk(mss=60_000).handshake()
        for number in range(1, 21):
            talk.client_sends(request(METADATA, 1, {}, correlation_id=number, client_id=client_id))
            talk.broker_sends(response(METADATA, 1, {}, correlation_id=number))
        return captured(talk)

    return capture


def with_records(*batches: bytes) -> bytes:
    talk = Talk(mss=60_000).handshake()
    for number, records in enumerate(batches, 1):
        partition = {"index": 0, "records": records}
        body = {"acks": -1, "topic_data": [{"name": "t", "partition_data": [partition]}]}
        talk.client_sends(request(PRODUCE, 9, body, correlation_id=number))
        talk.broker_sends(response(PRODUCE, 9, {}, correlation_id=number))
    return captured(talk)


def tiny_blocks(name: str) -> Callable[[], bytes]:
    codec, make = TINY[name]
    return lambda: with_records(batch([Item(b"k", b"v")], codec=codec, compress=lambda _: make(100_000)))


def small_bombs() -> bytes:
    return with_records(*[batch([Item(b"k", bytes(2_000_000))], codec=ZSTD)] * 400)


def evil_topic() -> bytes:
    talk = Talk(mss=60_000).handshake()
    body = {"topics": [{"name": "a" * 40 + "!"}]}
    return captured(talk.client_sends(request(METADATA, 1, body)).broker_sends(response(METADATA, 1, {})))


def long_name() -> bytes:
    """One client ID of many characters, in a column of which the other rows are short."""
    talk = Talk(mss=60_000).handshake()
    for number in range(1, 41):
        client = "a" * 30_000 if number == 20 else "c"
        talk.client_sends(request(METADATA, 1, {}, correlation_id=number, client_id=client))
        talk.waits(number == 20).broker_sends(response(METADATA, 1, {}, correlation_id=number))
    return captured(talk)


def other_order() -> bytes:
    good = bytearray(odd_client("c")())
    good[4:8] = b"\0\2\0\4"
    return bytes(good)


def undecodable_metadata() -> bytes:
    body = request_payload(METADATA, 12, {"topics": [{"name": "orders"}]})
    return answered((body[:-8] + b"\xff" * 8, response_payload(METADATA, 12, {})))


def impossible_acknowledgments() -> bytes:
    talk = Talk().handshake().client_sends(request(METADATA, 1, {}))
    talk.put(0, FIN | ACK, acknowledgment=3_000_000_000).put(1, FIN | ACK, acknowledgment=700_000_000)
    talk.put(0, PSH | ACK, b"x" * 9, sequence=2**31 + 5, acknowledgment=2**31 + 7)
    return captured(talk.put(0, ACK, acknowledgment=9).put(1, ACK, acknowledgment=1 << 31))


def nested_unknown_tags() -> bytes:
    return answered((tags(1 << 18), response_payload(HEARTBEAT, 4)))


def odd_name_resolution() -> bytes:
    return section() + block(4, bytes.fromhex("0100ffff") + bytes(20)) + interface() + enhanced(1, bytes(60))


FAULTS: dict[str, Fault] = {
    "arrays of tiny structs take gigabytes": Fault(tiny_structs, ("read --json", "check"), "oversized"),
    "long strings take hundreds of MB": Fault(
        lambda: answered((long_string(), response_payload(DESCRIBE_GROUPS, 5))),
        ("read", "read --csv"),
        "malformed",
    ),
    "arrays of strings": Fault(
        lambda: answered((strings(1 << 20), response_payload(strings(99)[1], strings(99)[3]))),
        ("read --json",),
    ),
    "unknown tags by the thousand": Fault(nested_unknown_tags, ("read --json", "read -V")),
    "drop counters exceed 64 bits": Fault(
        drop_counters,
        ("check --json", "check", "export -o OUT", "export --format parquet -o OUT", "summary --json"),
    ),
    "escape sequences in the name of a group": Fault(
        escapes_in_a_group, ("summary --groups", "summary", "read -V", "story --diagram client:*"), r"\\x1b"
    ),
    **{
        f"a client hides behind its ID, {client_id[:3]!r}": Fault(
            odd_client(client_id), ("read -q",), "20 exchanges"
        )
        for client_id in ("a\nb", "\t", "\0", "\x1b[2J", "a" * 2000)
    },
    **{
        name: Fault(tiny_blocks(name), ("records -q", "read -V --records"), "malformed|0 records")
        for name in TINY
        if name != "zstd blocks"  # takes a second to make
    },
    "hundreds of small bombs": Fault(small_bombs, ("records -q",), r"records"),
    "a regular expression that backtracks": Fault(
        evil_topic, ('read -Y topic=~"(a+)+$"', 'read -Y api=~"(((a*)*)*)*$"')
    ),
    "a pcap version in another byte order": Fault(other_order, ("read -q",), "20 exchanges"),
    "a request that cannot be decoded has no topics": Fault(
        undecodable_metadata, ("read", "read --json"), "malformed|truncated", "no topics|None"
    ),
    "acknowledgments that are impossible": Fault(impossible_acknowledgments, ("read", "summary", "check")),
    "segments that overlap each other": Fault(lambda: flood(overlapping(600)), ("read -q",)),
    "fragments that are never complete": Fault(lambda: flood(fragmented(3000)), ("read -q",)),
    "connections that never open": Fault(lambda: flood(half_open(2000)), ("read -q", "summary", "check")),
    "a compressed capture of nothing": Fault(lambda: gzip.compress(b""), ("read", "check")),
    "a compressed capture that ends early": Fault(
        lambda: gzip.compress(odd_client("c")())[:-60], ("read", "check", "summary")
    ),
    "a long name makes the spaces of a table take quadratic time": Fault(
        long_name, ("summary --wide",), r"a{1000}\.\.\.[0-9a-f]{8}"
    ),
    "names that nobody reads": Fault(odd_name_resolution, ("read", "check")),
}

ELSEWHERE = {
    "tests/test_children.py": {
        "modules in the current directory run as root": "test_capturing_runs_no_code_of_the_directory",
        "so they do in workers": "test_workers_run_no_code_of_the_current_directory",
    },
    "tests/cli/test_privileges.py": {
        "no privilege is dropped": "test_plain_root_keeps_no_capability_and_is_warned",
    },
    "tests/test_files.py": {
        "files are readable by all": "test_nobody_else_reads_what_is_written",
        "links are followed": "test_planted_links_are_not_followed",
        "directories are reached by links": "test_directories_are_not_reached_by_links",
    },
    "tests/cli/test_live.py": {
        "a second signal loses what the kernel has": "test_a_second_signal_loses_no_count",
    },
    "tests/cli/test_metrics_server.py": {
        "idle requests hold threads": "test_half_requests_hold_few_threads_and_not_for_long",
    },
    "tests/test_hostile.py": {
        "CSV and JSON reach a terminal raw": "test_json_and_csv_are_escaped_on_a_terminal_alone",
        "names of files reach a terminal raw": "test_nor_does_a_message_about_a_file",
    },
    "tests/test_faults.py": {
        "a bug costs the captures of others": "test_an_export_loses_one_capture",
        "a bug in one capture costs others": "test_others_are_read",
    },
    "tests/test_oversized.py": {
        "-x of an array of millions": "test_millions_of_tiny_structs",
        "workers hold unanswered requests": "test_a_worker_decodes_one_exchange_at_a_time",
        "rows that wait for a name take gigabytes": "test_exchanges_wait_for_a_name_undecoded",
        "large batches are held as text": "test_workers_and_their_parent_write_a_large_batch_in_parts",
    },
    "tests/kafka/test_recognition.py": {
        "a search in vain is quadratic": "test_a_search_in_vain_looks_at_each_byte_a_few_times_only",
    },
    "tests/tls/test_connection.py": {
        "secrets of a key log that never fit are tried forever": "test_the_searches_are_bounded",
    },
}
"""By file: faults, and the tests that they have there."""


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[Result]]:
    directory = tmp_path_factory.mktemp("faults")
    commands: list[list[str]] = []
    for number, fault in enumerate(FAULTS.values()):
        path = directory / f"{number}.pcap"
        path.write_bytes(fault.capture())
        for place, command in enumerate(fault.commands):
            arguments = command.replace("OUT", str(directory / f"{number}-{place}")).split(" ")
            commands.append([*arguments, str(path)])
    done = iter(run_all(commands, DATA_BYTES))
    return {name: [next(done) for _ in fault.commands] for name, fault in FAULTS.items()}


@pytest.mark.parametrize("name", FAULTS)
def test_it_stays_away(name: str, results: dict[str, list[Result]]) -> None:
    fault = FAULTS[name]
    for result in results[name]:
        text = result.out + result.err
        assert result.status in (OK, USAGE), text[:2000]
        assert result.cpu_s < 3, result.arguments  # the slowest takes one
        assert re.search(fault.shows, text, re.MULTILINE), text[:2000]
        assert not re.search(fault.hides, text), text[:2000]
        if not {"--csv", "--json"}.intersection(result.arguments):
            assert_harmless(text)


@pytest.mark.parametrize("file", ELSEWHERE)
def test_the_others_have_tests(file: str) -> None:
    functions = ast.walk(ast.parse(Path(file).read_text(encoding="utf-8")))
    defined = {each.name for each in functions if isinstance(each, ast.FunctionDef)}
    assert defined.issuperset(ELSEWHERE[file].values())
