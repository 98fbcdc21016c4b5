"""Exchanges that Python has paired, on connections that are not in the core: it finishes the usual ones, and
all is as if Python had.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING

import pytest

from kdissect import core
from kdissect.cli.main import main
from kdissect.exchanges.lending import Lending
from tests.captures import pcap
from tests.core import NEEDS_CORE
from tests.frames import HEARTBEAT, request, response
from tests.segments import MILLISECOND, START_NS, Talk
from tests.test_lending import SAMPLES, damaged, timed

if TYPE_CHECKING:
    from kdissect.model import Exchange

pytestmark = NEEDS_CORE

API_VERSIONS = 18
RECORDINGS = ("midstream", "kafka-4-storm", "quickstart")
COMMANDS = ("read", "read --json", "read --csv --fields api,queued_us,think_us", "summary --json")


def output(command: str, path: Path, capfd: pytest.CaptureFixture[str], jobs: str = "1") -> str:
    name, *options = command.split()
    assert main([name, "-j", jobs, *options, str(path)]) in (0, 1)
    out, err = capfd.readouterr()
    return out + err


@pytest.fixture
def offered(monkeypatch: pytest.MonkeyPatch) -> Counter[tuple[str, bool]]:
    """Exchanges that were offered to the core, by kind and whether it has finished them."""
    counts: Counter[tuple[str, bool]] = Counter()
    finish = Lending.finish

    def counting(self: Lending, exchange: Exchange, place: int | None = None, *, writes: bool = True) -> bool:
        is_left = exchange is self._left  # it was paired in the core
        is_finished = finish(self, exchange, place, writes=writes)
        counts[exchange.kind, is_finished] += not is_left
        return is_finished

    monkeypatch.setattr(Lending, "finish", counting)
    return counts


def same(path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], command: str) -> str:
    """What a command prints, with the core and without."""
    with_core = output(command, path, capfd)
    with monkeypatch.context() as context:
        context.setattr(core, "is_used", False)
        assert output(command, path, capfd) == with_core
    return with_core


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize("is_damaged", [False, True])
def test_recordings(
    command: str,
    is_damaged: bool,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
    offered: Counter[tuple[str, bool]],
) -> None:
    """Those that begin while clients run, and those with lost, late and repeated packets."""
    path = tmp_path / "some.pcap"
    for number, name in enumerate(RECORDINGS):
        packets = timed(SAMPLES[name])
        packets = packets[len(packets) // 3 :]
        if is_damaged:
            packets = damaged(packets, Random(number))
        path.write_bytes(pcap(packets))
        assert same(path, monkeypatch, capfd, command)
    assert offered["answered", True] > 2 * offered["answered", False]
    assert not offered["unanswered", True]
    assert not offered["orphan", True]


@pytest.mark.parametrize("jobs", ["2", "3"])
@pytest.mark.parametrize("command", COMMANDS[:2])
def test_several_processes(
    command: str, jobs: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """They put the rows in order by the packets that completed the exchanges, even late ones."""
    path = tmp_path / "some.pcap"
    for number, name in enumerate(RECORDINGS):
        packets = timed(SAMPLES[name])
        path.write_bytes(pcap(damaged(packets[len(packets) // 3 :], Random(number))))
        assert output(command, path, capfd) == output(command, path, capfd, jobs)
        command = f"{command.split(' --names')[0]} --names {('window', 'whole')[number % 2]}"


def test_connections_that_take_turns(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
    offered: Counter[tuple[str, bool]],
) -> None:
    """What a connection remembers comes back before another one is finished: clients that tell who they are,
    and pipelined requests, whose latency is split by when the response before was complete.
    """
    packets = []
    for client in range(3):
        talk = Talk(("10.0.0.1", 40_000 + client), start_ns=START_NS + client, step_ns=MILLISECOND)
        software = {"client_software_name": f"library-{client}", "client_software_version": "1.2"}
        for number in range(1, 60, 2):
            api_key, body = (API_VERSIONS, software) if number == 21 else (HEARTBEAT, {})
            following = number + 1
            talk.client_sends(
                request(api_key, 3, body, correlation_id=number)
                + request(HEARTBEAT, 3, correlation_id=following)
            )
            talk.broker_sends(response(api_key, 3, correlation_id=number)).broker_sends(
                response(HEARTBEAT, 3, correlation_id=following)
            )
        packets += [(each.time_ns, each.data) for each in talk.packets]
    path = tmp_path / "turns.pcap"
    path.write_bytes(pcap(sorted(packets)))
    for command in COMMANDS:
        text = same(path, monkeypatch, capfd, command)
    assert "library-2" in text
    assert offered["answered", True] > offered["answered", False]


def test_filters_by_latencies(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """Python splits those of requests that were retransmitted, among others on the same connection."""
    packets = timed(Path("tests/cluster/topic-recreated.pcap.zst"))
    path = tmp_path / "half.pcap"
    path.write_bytes(pcap(packets[len(packets) // 2 :]))
    assert same(path, monkeypatch, capfd, "read --csv --fields api,queued_us -Y queued_us>=0")
