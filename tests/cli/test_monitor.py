"""Metrics of a live capture, end to end: with lines, with JSON, and with -q."""

from __future__ import annotations

import json
import re
import signal
import socket
import subprocess
from contextlib import closing, contextmanager
from typing import TYPE_CHECKING
from urllib.request import urlopen

import pytest
from prometheus_client.parser import text_string_to_metric_families

from kdissect.cli.terminal import INTERRUPTED, OK, USAGE
from tests.cli.commands import capture_bytes, run, spawn, talk
from tests.loopback import WAIT_S, Client, broker, listens

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

_SERVED = re.compile(r"kdissect: serving metrics on (http://127\.0\.0\.1:\d+/metrics)\n")


@contextmanager
def served(*arguments: str, lines_before: int = 0) -> Iterator[tuple[subprocess.Popen[bytes], str]]:
    """A command and the URL of its metrics."""
    process = spawn("live", *arguments, "--prometheus", ":0", stdin=subprocess.PIPE)
    try:
        assert process.stderr is not None
        match = _SERVED.fullmatch(process.stderr.readline().decode())
        assert match
        for _ in range(lines_before):
            process.stderr.readline()
        yield process, match[1]
    finally:
        process.kill()
        process.communicate()


def scrape(url: str) -> dict[tuple[str, ...], float]:
    with urlopen(url, timeout=WAIT_S) as page:
        families = text_string_to_metric_families(page.read().decode())
        return {
            (sample.name, *sample.labels.values()): sample.value
            for each in families
            for sample in each.samples
        }


def test_metrics_beside_json() -> None:
    with served("-", "--json") as (process, url):
        assert scrape(url)["kdissect_packets_total",] == 0
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(capture_bytes(talk()))
        process.stdin.flush()
        shown = [json.loads(process.stdout.readline())["api"] for _ in range(3)]
        assert shown == ["Metadata", "Heartbeat", "Heartbeat"]
        match = scrape(url)
        assert match["kdissect_exchanges_total", "Metadata", "answered"] == 1
        assert match["kdissect_exchanges_total", "Heartbeat", "answered"] >= 1
        assert match["kdissect_expected_errors_total", "Metadata", "LEADER_NOT_AVAILABLE"] == 1
        process.send_signal(signal.SIGINT)
        assert process.wait(WAIT_S) == INTERRUPTED
        with pytest.raises(OSError, match="refused"):
            scrape(url)


def test_metrics_and_nothing_else_until_the_pipe_ends() -> None:
    with served("-", "-q") as (process, url):
        assert url
        out, err = process.communicate(capture_bytes(talk()), WAIT_S)
        assert (process.returncode, out) == (
            OK,
            b"4 exchanges, 3 answered, 1 pending, 1 expected error\n",
        )
        assert b"0 dropped by the kernel" in err


def test_filters_choose_what_is_counted() -> None:
    with served("-", "-q", "--api", "Heartbeat") as (process, url):
        assert process.stdin is not None
        process.stdin.write(capture_bytes(talk()))
        process.stdin.flush()
        match: dict[tuple[str, ...], float] = {}
        while ("kdissect_exchanges_total", "Heartbeat", "answered") not in match:
            match = scrape(url)
        assert ("kdissect_exchanges_total", "Metadata", "answered") not in match


@listens
def test_metrics_of_an_interface() -> None:
    with (
        broker() as port,
        served("-i", "lo", "-f", f"tcp port {port}", "--json", lines_before=1) as (process, url),
        Client(port) as client,
    ):
        client.beat(20)
        assert process.stdout is not None
        for _ in range(20):
            process.stdout.readline()
        match = scrape(url)
        assert match["kdissect_exchanges_total", "Heartbeat", "answered"] >= 19  # the line comes first
        assert match["kdissect_latency_seconds_count", "Heartbeat"] >= 19
        assert match["kdissect_packets_dropped_total", "kernel"] == 0


def test_a_port_that_is_in_use(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with closing(socket.create_server(("127.0.0.1", 0))) as other:
        port = other.getsockname()[1]
        done = run(capsys, "live", "--follow", str(tmp_path), "--prometheus", f":{port}")
    assert (done.status, done.out) == (USAGE, "")
    assert done.err == f"kdissect: --prometheus: cannot serve on 127.0.0.1:{port}: address already in use\n"


def test_an_invalid_address(capsys: pytest.CaptureFixture[str]) -> None:
    done = run(capsys, "live", "-i", "lo", "--prometheus", "here")
    assert done.status == USAGE
    assert 'invalid address "here": use :9464' in done.err
