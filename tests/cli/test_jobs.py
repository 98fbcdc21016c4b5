from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kdissect import core
from kdissect.cli.jobs import WORTH_PACKETS, WORTH_PACKETS_NATIVE, processes
from kdissect.cli.run import take_query
from kdissect.net.tcp import ACK
from tests.captures import pcap
from tests.segments import ipv4, link, tcp

if TYPE_CHECKING:
    from pathlib import Path

    import pytest


def capture(path: Path, size: int) -> Path:
    """A few packets of a size, in a file large enough for several workers: only its start is read."""
    header = pcap([(number, bytes(size)) for number in range(10)])
    path.write_bytes(header)
    with path.open("r+b") as file:
        file.truncate(WORTH_PACKETS * (size + 16))
    return path


def test_large_captures_use_all_cores_by_default(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.sched_getaffinity", lambda _: {0, 1, 2}, raising=False)
    monkeypatch.setattr("kdissect.cli.jobs._SAMPLED_PACKETS", 10)
    small, large = tmp_path / "small.pcap", capture(tmp_path / "large.pcap", 90)
    small.write_bytes(pcap([(1, bytes(90))]))
    bulk, broken = capture(tmp_path / "bulk.pcap", 1400), tmp_path / "broken.pcap"
    broken.write_bytes(bytes(WORTH_PACKETS * 100))

    def jobs(*paths: Path | str, requested: int | None = None, **settings: Any) -> int:
        options: Any = {"files": [str(path) for path in paths], "also_files": (), "no_progress": True}
        options |= {"ports": (), "decode_as": (), "show_secrets": False, "tls_keylog": ()}
        return processes(take_query(options), requested, **settings)

    assert (jobs(small), jobs(large), jobs(small, large)) == (1, 3, 3)
    assert (jobs(bulk), jobs(bulk, requested=2), jobs(broken)) == (1, 2, 1)
    assert (jobs(small, requested=2), jobs(large, requested=1)) == (2, 1)
    assert jobs(large, by_default=False) == 1
    assert jobs(large, by_default=False, requested=2) == 2
    assert jobs(large, requested=2, allowed=False) == 1
    assert jobs(tmp_path, requested=2) == 2

    assert jobs(large, is_native=True) == (3 if not core.is_used else 1)
    assert jobs(capture(tmp_path / "larger.pcap", 900), is_native=True, requested=2) == 2
    with large.open("r+b") as file:
        file.truncate(WORTH_PACKETS_NATIVE * 106)
    assert jobs(large, is_native=True) == 3


def test_one_busy_connection_uses_one_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.sched_getaffinity", lambda _: {0, 1}, raising=False)
    monkeypatch.setattr("kdissect.cli.jobs._SAMPLED_PACKETS", 10)
    for connections, expected in ((1, 1), (2, 2)):
        path = tmp_path / "small.pcap"
        clients = [("10.0.0.1", each % connections + 1) for each in range(10)]
        segments = [tcp(client, ("10.0.0.2", 9092), 1, 1, ACK, bytes(50)) for client in clients]
        packets = [link(ipv4("10.0.0.1", "10.0.0.2", segment)) for segment in segments]
        path.write_bytes(pcap(list(enumerate(packets))))
        with path.open("r+b") as file:
            file.truncate(WORTH_PACKETS * 200)
        options: Any = {"files": [str(path)], "also_files": (), "no_progress": True}
        options |= {"ports": (), "decode_as": (), "show_secrets": False, "tls_keylog": ()}
        assert processes(take_query(options), None) == expected
