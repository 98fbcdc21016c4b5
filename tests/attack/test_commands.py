"""Damaged captures through every command, each process with limits on memory and time.

A case is a message or a TLS record, any of which may be damaged, as may the layers around them. A run may end
with an error in one line; it may not take long, fail because of a bug, or print a control character. The seed
that leads to a failure is in its message.
"""

from __future__ import annotations

import os
import time
from random import Random
from shutil import rmtree
from typing import TYPE_CHECKING

import pytest

from kdissect.cli.terminal import OK, USAGE
from tests.attack import tls_records
from tests.attack.layers import file_of
from tests.attack.mutation import pairs
from tests.attack.runs import Result, run_all
from tests.depth import IS_DEEP
from tests.frames import sized
from tests.segments import Talk
from tests.test_hostile import assert_harmless

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from kdissect.model import Packet
    from tests.attack.mutation import Pair

MINUTES = float(os.environ.get("KDISSECT_ATTACK_MINUTES", "20" if IS_DEEP else "0.2"))
CASES = 3_000 if IS_DEEP else 1_500
EXCHANGES = 30  # in a capture
CAPTURES_AT_ONCE = 12
TLS_EVERY = 4  # captures, one of TLS
NEXT_SEED = "kdissect/attack"  # in pytest's cache

AS_KAFKA = ("-d", "tcp.port==9092,kafka")
TEXT = [
    ("read",), ("read", "-V", "--full"), ("read", "-x", "--records"), ("read", "-V", "--check-crcs"),
    ("read", "-V", "--records"), ("read", "-q"), ("records",), ("records", "-V"), ("summary",),
    ("summary", "--groups", "--lag"), ("summary", "--transactions", "--findings"),
    ("summary", "--by", "client"), ("check",), ("story", "client:*"), ("story", "--diagram", "topic:*"),
]  # fmt: skip
DATA = [
    ("read", "--json", "--records"), ("read", "--csv"), ("records", "--json"), ("records", "--csv"),
    ("summary", "--json", "--groups", "--versions"), ("check", "--json"),
]  # fmt: skip
WRITERS = [
    ("export", "--records", "-o"),
    ("export", "--format", "parquet", "-o"),
    ("read", "-q", "-w"),
    ("export", "-j", "2", "-o"),
]


def conversation(messages: list[Pair], random: Random) -> list[Packet]:
    """These requests and responses, some of them damaged, on one connection."""
    talk = Talk(("10.0.0.1", random.randrange(1024, 65536)), mss=random.choice((90, 536, 1460, 60_000)))
    talk.handshake()
    for number, pair in enumerate(messages, 1):
        correlation_id = number.to_bytes(4, "big")
        request, response = pair.request.damaged(random), pair.response.damaged(random)
        talk.client_sends(damaged_frame(request[:4] + correlation_id + request[8:], random))
        talk.broker_sends(damaged_frame(correlation_id + response[4:], random))
    return (talk.finish() if random.random() < 0.5 else talk).packets


def damaged_frame(payload: bytes, random: Random) -> bytes:
    """With its size, which sometimes is another."""
    if random.random() > 0.03:
        return sized(payload)
    return random.choice((0, 1, 7, 1 << 30, 0xFFFFFFFF, len(payload) + 5)).to_bytes(4, "big") + payload


class Attack:
    """Captures with damage, and the runs over them.

    Attributes:
        cases, runs: how many so far.
        slowest_s: processor time of the slowest run, whose seed and command are ``slowest``.
    """

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._messages: list[Pair] = []
        self.cases = self.runs = 0
        self.slowest_s, self.slowest = 0.0, ""

    def attack(self, seed: int, commands: int) -> None:
        """Make some captures from a seed, and run some commands over each.

        Raises:
            AssertionError: a run ended as none may.
        """
        random = Random(seed)
        self._messages = []  # a seed makes the same captures whatever came before
        command_lines = []
        for number in range(CAPTURES_AT_ONCE):
            path, keys = self._directory / f"{seed}-{number}.pcap", self._directory / f"{seed}-{number}.keys"
            options: list[tuple[str, ...]] = [AS_KAFKA, AS_KAFKA, ()]
            if number % TLS_EVERY:
                packets = conversation(self._next(random), random)
                self.cases += 2 * EXCHANGES
            else:
                packets, records, key_log = tls_records.conversation(random)
                keys.write_bytes(tls_records.key_log(key_log, random))
                options += [("--tls-keylog", str(keys))] * 9
                self.cases += records
            path.write_bytes(file_of(packets, random))
            output = self._directory / f"{seed}-{number}.out"
            for command in random.sample(TEXT + DATA + WRITERS, commands):
                target = (str(output) + command[-2].strip("-"),) if command in WRITERS else ()
                command_lines.append((*command, *target, *random.choice(options), str(path)))
        results = run_all(command_lines)
        for result in results:
            check(result, seed)
        self.runs += len(results)
        slow = max(results, key=lambda result: result.cpu_s)
        if slow.cpu_s > self.slowest_s:
            self.slowest_s, self.slowest = slow.cpu_s, f"seed {seed}: {' '.join(slow.arguments)}"
        for path in self._directory.iterdir():
            if path.is_file():
                path.unlink()
            else:
                rmtree(path)

    def __str__(self) -> str:
        return (
            f"{self.cases:,} damaged messages in {self.runs:,} runs; the slowest took {self.slowest_s:.1f} s "
            f"({self.slowest})"
        )

    def _next(self, random: Random) -> list[Pair]:
        if len(self._messages) < EXCHANGES:
            self._messages = list(pairs(random))
            random.shuffle(self._messages)
        return [self._messages.pop() for _ in range(EXCHANGES)]


def check(result: Result, seed: int) -> None:
    why = f"seed {seed}: kdissect {' '.join(result.arguments)}\n{result.err}"
    assert result.status in (OK, USAGE), why
    assert "a bug in kdissect" not in result.err, why
    assert_harmless(result.err)
    if not {"--json", "--csv"}.intersection(result.arguments):
        assert_harmless(result.out)


def test_damaged_captures_through_the_commands(tmp_path: Path) -> None:
    attack = Attack(tmp_path)
    seed = 0
    while attack.cases < CASES:
        attack.attack(seed, commands=2)
        seed += 1
    assert attack.runs > CASES // 50


@pytest.mark.deep
def test_more_of_them_where_the_last_run_stopped(
    tmp_path: Path, pytestconfig: pytest.Config, report_line: Callable[[str, str], None]
) -> None:
    assert pytestconfig.cache is not None
    attack = Attack(tmp_path)
    first = seed = pytestconfig.cache.get(NEXT_SEED, 1_000)
    end = time.monotonic() + 60 * MINUTES
    while time.monotonic() < end:
        attack.attack(seed, commands=8)
        seed += 1
        pytestconfig.cache.set(NEXT_SEED, seed)
    report_line(f"seeds {first} to {seed - 1}: {attack}", "attack")
    assert attack.runs
