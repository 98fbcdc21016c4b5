from __future__ import annotations

import pytest

from kdissect.cli.live_run import to_buffer_bytes, to_condition
from kdissect.cli.terminal import USAGE
from tests.cli.commands import run


def test_a_buffer_is_in_kib_as_tcpdump_has_it_or_says_its_unit() -> None:
    assert to_buffer_bytes("4096") == 4096 * 1024
    assert to_buffer_bytes("64MiB") == 64 << 20


@pytest.mark.parametrize(
    ("text", "condition"),
    [
        ("filesize:1000", ("bytes", 1_000_000)),
        ("filesize:1MiB", ("bytes", 1 << 20)),
        ("duration:60", ("duration_ns", 60_000_000_000)),
        ("duration:1h", ("duration_ns", 3_600_000_000_000)),
        ("files:3", ("files", 3)),
        ("packets:10", ("packets", 10)),
    ],
)
def test_conditions_as_dumpcap_has_them(text: str, condition: tuple[str, int]) -> None:
    assert to_condition(text) == condition


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "specify an interface (-i IFACE; -D lists them), a pipe (-), or --follow PATH"),
        (["x.pcap"], "x.pcap is not an interface; use -i IFACE, --follow PATH, or: kdissect read x.pcap"),
        (["-i", "lo", "--follow", "x"], "-i and --follow are mutually exclusive"),
        (["--follow", "x", "-s", "100"], "-s needs -i IFACE"),
        (["--follow", "x", "-b", "filesize:1"], "-b, -a filesize: and -a files: need -w FILE"),
        (["--follow", "x", "-a", "files:1"], "-b, -a filesize: and -a files: need -w FILE"),
        (["--follow", "x", "-w", "y", "-b", "files:2"], "-b files: also needs -b filesize: or"),
        (["--follow", "x", "-a", "hours:1"], 'invalid condition "hours:1": use '),
        (["--follow", "x", "-a", "packets:0"], 'invalid condition "packets:0": use '),
        (["--follow", "x", "-B", "many"], '"many"'),
        (["--follow", "x", "-V", "--json"], "-V or -x and --json are mutually exclusive"),
        (["--follow", "nowhere"], "nowhere: no such file or directory"),
    ],
)
def test_invalid_combinations_are_one_line(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    done = run(capsys, "live", *arguments)
    assert done.status == USAGE
    assert message in done.err
    assert done.err.count("\n") == 1
