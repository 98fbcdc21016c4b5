from __future__ import annotations

import inspect
import re
from typing import TYPE_CHECKING

import click
import pytest

from kdissect.cli.options import (
    CRITERIA,
    take_options,
    to_exchange_id,
    to_kafka_ports,
    to_ports,
)
from kdissect.cli.terminal import OK, USAGE
from kdissect.query import filters
from tests.cli.commands import run, talk, write

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize(
    ("text", "ports"),
    [
        ("9092", {9092}),
        ("9092,9192", {9092, 9192}),
        ("9092-9094", {9092, 9093, 9094}),
        ("1,65535", {1, 65535}),
    ],
)
def test_ports(text: str, ports: set[int]) -> None:
    assert to_ports(text) == ports


@pytest.mark.parametrize("text", ["", "x", "0", "65536", "9094-9092", "9092,", "-1", "1-", "99999999"])
def test_no_ports(text: str) -> None:
    with pytest.raises(click.BadParameter, match=f'invalid port "{text}": use 9092'):
        to_ports(text)


@pytest.mark.parametrize(
    "text", ["tcp.port==9093,kafka", "tcp.port == 9093, Kafka", "tcp.port==9093", "9093,kafka", "9093"]
)
def test_decode_as(text: str) -> None:
    assert to_kafka_ports(text) == {9093}


def test_decode_as_takes_ranges() -> None:
    assert to_kafka_ports("tcp.port==9092-9093,9192,kafka") == {9092, 9093, 9192}


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("tcp.port==9093,mqtt", 'unsupported protocol "mqtt"'),
        ("udp.port==9093,kafka", 'invalid rule "udp.port==9093,kafka": use '),
        ("tcp.port==kafka", 'invalid rule "tcp.port==kafka": use '),
        ("tcp.port==99999,kafka", 'invalid port "99999": use '),
        ("", 'invalid rule "": use '),
    ],
)
def test_no_rule(text: str, reason: str) -> None:
    with pytest.raises(click.BadParameter, match=reason):
        to_kafka_ports(text)


def test_exchange_ids() -> None:
    assert to_exchange_id("c0ffee/12") == ("c0ffee", 12)
    for text in ("c0ffee", "c0ffee/", "/12", "c0ffee/x", ""):
        with pytest.raises(click.BadParameter, match=f'invalid exchange "{text}": use '):
            to_exchange_id(text)


def test_repeated_options_add_up() -> None:
    options = {
        "ports": (),
        "decode_as": (frozenset({1}), frozenset({2, 3})),
        "show_secrets": False,
        "json": True,
    }
    taken = take_options(options)
    assert taken.ports == frozenset()
    assert taken.kafka_ports == {1, 2, 3}
    assert options == {"json": True}


def test_every_criterion_is_an_option() -> None:
    assert {*CRITERIA, "where"} == set(inspect.signature(filters.build).parameters)


@pytest.mark.parametrize(
    "command",
    [
        ("export", "x.pcap", "-o"),
        ("live", "-", "-o"),
        ("live", "-", "-w"),
        ("records", "x.pcap", "-o"),
        ("read", "x.pcap", "-w"),
        ("spark", "decode", "x.pcap", "-o"),
    ],
)
def test_nothing_is_written_to_other_urls(
    command: tuple[str, ...],
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    done = run(capsys, *command, "dbfs:/tables")
    assert done.status == USAGE
    assert "dbfs:/tables is a URL, which is not supported; use a local or mounted path" in done.err
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "command",
    ["read -q", "records -q", "summary --json", "story client:web", "check --json", "export -o {out}"],
)
def test_directories_and_patterns_are_captures(
    command: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    directory = tmp_path / "captures"
    (directory / "below").mkdir(parents=True)
    (directory / "notes.txt").write_text("no capture")
    names = [
        write(directory / "a.pcap", talk(client=("10.0.0.1", 41000))),
        write(directory / "below" / "b.pcap", talk(client=("10.0.0.1", 41001))),
    ]

    def shown(number: int, *inputs: str) -> str:
        done = run(capsys, *command.format(out=tmp_path / f"out{number}").split(), *inputs)
        assert done.status == OK
        return done.out + re.sub(r"\([\d.]+ .?B\)|out\d", "", done.err)

    expected = shown(0, *names)
    assert shown(4, names[0]) != expected
    assert shown(1, str(directory)) == expected
    assert shown(2, f"{directory}/**/*.pcap") == expected
    assert shown(3, "-r", str(directory)) == expected
    failed = run(capsys, *command.format(out=tmp_path / "none").split(), f"{directory}/*.pcapng")
    assert (failed.status, failed.err) == (USAGE, f"kdissect: no file matches {directory}/*.pcapng\n")
    (tmp_path / "empty").mkdir()
    failed = run(capsys, *command.format(out=tmp_path / "none").split(), str(tmp_path / "empty"))
    assert failed.status == USAGE
    assert "no capture files in this directory or its subdirectories" in failed.err


def test_a_file_url_is_the_path_in_it(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    capture = write(tmp_path / "talk.pcap", talk())
    out = tmp_path / "tables"
    assert run(capsys, "export", capture, "-o", f"file://{out}").status == OK
    assert (out / "exchanges").is_dir()
