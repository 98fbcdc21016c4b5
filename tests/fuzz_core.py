"""Damaged captures, dissected with and without the native core: output and messages must be the same.

    python -m tests.fuzz_core [SEED]

Runs for ``KDISSECT_FUZZ_SECONDS`` seconds (15), from one seed to the next; with SEED, only that one. A seed
is the packets of one sample, or of several in turn, some of them dropped, repeated, swapped, cut or changed,
or those of many short connections (tests/lifetimes.py), or of an attack (tests/hostile_traffic.py). If a
seed fails, its capture is kept.
``.ci/run fuzz`` runs this, and the tests that use core/src/fuzzing.rs.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from random import Random

from kdissect import core
from kdissect.cli.main import main
from kdissect.tables.rows import TABLES
from tests.attack.mutation import mutated
from tests.captures import pcap
from tests.exports import lines
from tests.hostile_traffic import hostile
from tests.learned_facts import facts_of
from tests.lifetimes import lifetimes
from tests.test_lending import BUSY, SAMPLES, Timed, damaged, mixed, timed
from tests.usual_traffic import usual_traffic

LEARN, END_TO_END, EXPORT = "learn", "--end-to-end", "export"
COMMANDS = (
    "read", "read --json", "read --csv", "records", "records --json",
    "records --csv --topic *o* --partition 0", "check --json", LEARN,
    "read --csv -e api,queued_us,response.error_code,request.topics -Y service_us>=0||response.api_keys",
    "records --csv -e key --unique -c 5 -Y value!='v'",
    "read --fields time,think_us,response.error_code -Y wait_us!=service_us",
    "summary --json --groups --lag --versions --transactions --connections --findings",
    f"{LEARN} {END_TO_END}",
    f"{EXPORT} --format parquet --tables {','.join(each for each in TABLES if each != 'records')}",
    f"{EXPORT} --format parquet --records --limits export_rows=30", EXPORT,
    f"{EXPORT} --records --topic *o* --partition 0",
)  # fmt: skip
MAX_PACKETS = 1000
HEADERS = 54  # of most packets; what follows is Kafka


class Worker:
    """A process that runs commands, with the native core or without."""

    def __init__(self, *, pure: bool) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", __spec__.name, "worker"],
            env={**os.environ, "KDISSECT_PURE": str(int(pure))},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def run(self, words: list[str]) -> list[str]:
        """Exit status, output and messages of a command."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        print(json.dumps(words), file=self._process.stdin, flush=True)
        result: list[str] = json.loads(self._process.stdout.readline())
        return result


def work() -> None:
    """Run the commands that come in on stdin."""
    for line in sys.stdin:
        out, err = io.TextIOWrapper(io.BytesIO()), io.StringIO()
        command, *words = json.loads(line)
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            run = OTHERS.get(command)
            status = main([command, *words]) if run is None else run(words)
            out.flush()
        text = out.buffer.getvalue().decode("utf-8", "backslashreplace")
        print(json.dumps([str(status), text, err.getvalue()]), flush=True)


def learn(words: list[str]) -> int:
    """Print the facts of a capture, learned in one process and in several."""
    *flags, path = words
    for shards in (1, 3):
        print(facts_of(Path(path), end_to_end=END_TO_END in flags, shards=shards))
    return 0


def export(words: list[str]) -> int:
    """Print the tables of a capture, which is the last word."""
    directory = Path(f"{words[-1]}.tables")
    status = main([EXPORT, "-o", str(directory), *words])
    for table in sorted(directory.glob("*")):
        for line in lines(table):
            print(table.name, line.decode())
    shutil.rmtree(directory, ignore_errors=True)
    return status


OTHERS = {LEARN: learn, EXPORT: export}


def packets_of(random: Random) -> Timed:
    """The packets of a seed."""
    if random.random() < 0.3:
        return hostile(random, 100)
    if random.random() < 0.3:
        return lifetimes(random, 300, random.choice((0, 0.02, 0.1, 0.3)))
    if random.random() < 0.4:
        packets = usual_traffic(random, 100, is_old=random.random() < 0.5)
        return damaged(packets, random) if random.random() < 0.3 else packets
    if random.random() < 0.3:
        packets = mixed(random.choices(BUSY, k=random.randint(2, 4)), random)
    else:
        packets = timed(random.choice(list(SAMPLES.values())))
    begin = random.randrange(max(1, len(packets) - MAX_PACKETS + 1))
    packets = damaged(packets[begin : begin + MAX_PACKETS], random)
    for _ in range(random.choice((0, 1, 5))):
        place = random.randrange(len(packets))
        time_ns, data = packets[place]
        if len(data) > HEADERS:
            packets[place] = (
                time_ns,
                data[:HEADERS] + mutated(data[HEADERS:], random, 0)[: len(data) - HEADERS],
            )
    return packets


def check(seed: int, workers: list[Worker], directory: Path) -> None:
    """Compare what both make of a seed's capture."""
    path = directory / f"{seed}.pcap"
    random = Random(seed)
    path.write_bytes(pcap(packets_of(random)))
    limits = random.choice(
        ((), ("--limits", "total_held_bytes=20KiB"), ("--limits", "total_held_bytes=1MiB"))
    )
    for command in COMMANDS:
        jobs = [] if command.startswith(("check", LEARN)) else ["-j", "1"]
        words = [*command.split(), *jobs, *(() if command.startswith(LEARN) else limits), str(path)]
        with_core, without = (worker.run(words) for worker in workers)
        if with_core != without:
            sys.exit(f"seed {seed}: kdissect {command} {path} is not the same with and without the core")
    path.unlink()


def run(words: list[str]) -> None:
    """Check one seed after another."""
    if not core.is_used:
        sys.exit("the native core is not installed")
    end = time.monotonic() + int(os.environ.get("KDISSECT_FUZZ_SECONDS", "15"))
    first = seed = int(words[0]) if words else int(time.time())
    workers, directory = [Worker(pure=False), Worker(pure=True)], Path(tempfile.mkdtemp())
    print(f"from seed {first}", flush=True)
    while time.monotonic() < end:
        check(seed, workers, directory)
        seed += 1
        if words:
            break
    directory.rmdir()
    print(f"seeds {first} to {seed - 1}: the same with and without the core")


if __name__ == "__main__":
    work() if sys.argv[1:] == ["worker"] else run(sys.argv[1:])
