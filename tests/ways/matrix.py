"""The matrix of ways: captures x commands x ways to run them, all of which show the same.

What is shown by Python alone, in one process, of the file as it is, is what all ways have to show. It is made
once in a test run: all processes of the run share a directory of results, by capture and command. Differences
that are documented are in ``DIFFERENCES``.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import pickle
import re
import shlex
import sys
from contextlib import chdir, contextmanager
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, NamedTuple

import click
import pytest

from kdissect.cli.main import SETTINGS, kdissect, main
from kdissect.stats.summarizer import PARTS
from kdissect.tables.rows import TABLES
from tests.captures import full_pipe
from tests.core import HAS_CORE, without_core
from tests.exports import lines
from tests.rings import packets_of, write

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

ROOT = Path(__file__).resolve().parents[2]


# --- captures -----------------------------------------------------------------------------------------------


class Capture(NamedTuple):
    """A file, and its key log if it has one."""

    path: Path
    keys: Path | None

    def __str__(self) -> str:
        return self.name

    @property
    def name(self) -> str:
        """Where it is, without endings: ``troubles/loss``."""
        directory = self.path.parent.name
        stem = re.sub(r"\.(pcap|pcapng)(\.gz|\.zst)?$", "", self.path.name)
        return stem if directory == "samples" else f"{directory}/{stem}"

    @property
    def is_decrypted(self) -> bool:
        """With its key log, or with secrets in the file."""
        return self.keys is not None or self.name == "tls/kafka-4-front"


def _captures(*directories: str) -> Iterator[Capture]:
    for directory in directories:
        for path in sorted((ROOT / directory).glob("*.pcap*")):
            keys = path.parent / f"{path.name.partition('.pcap')[0]}.keys"
            yield Capture(path, keys if keys.exists() else None)


CAPTURES = list(_captures("samples", "samples/tls", "samples/troubles", "tests/field"))
INCIDENTS = list(_captures("tests/cluster"))
BY_NAME = {capture.name: capture for capture in CAPTURES}


# --- commands -----------------------------------------------------------------------------------------------


def _command(name: str) -> click.Command:
    command: click.Command = kdissect
    for word in name.split():
        assert isinstance(command, click.Group)
        member = command.get_command(click.Context(command), word)
        assert member is not None
        command = member
    return command


_PARTS = [each.opts[0] for each in _command("summary").params if each.name in PARTS]
_ALL_PARTS = " ".join(_PARTS)
_TABLES = f"-o tables --tables {','.join(TABLES)}"

LINES: dict[str, tuple[str, ...]] = {
    "read": (
        *("", "--json", "--csv", "-V", "-x", "-q", "-t r", "-t dd", "--order time", "--color always"),
        *("--json --records", "-V --records --check-crcs", "--fields time,api,topics,errors", "--heading"),
        "--wide --heading --color always",
        *("-c 20", "--json -c 5", "-V -c 3", "--json --names whole --topic '*o*'", "--show-secrets"),
        *("--api Fetch", "--json --api Produce,Fetch", "-V --api Metadata", "--csv --client '*'"),
        *("--error '*'", "-t r --error serious", "--json --kind unanswered", "--slower-than 1ms"),
        *("-Y 'latency > 2ms'", "--json -Y 'request.topics.partitions.fetch_offset > 5'"),
        *("--topic nosuch -q", "--api Produce -w written.pcapng", "--api Fetch --wireshark-filter"),
        *("--request-log",),
    ),
    "records": (
        *("", "--json", "--csv --produced", "-V --fetched", "-x", "-q", "--unique", "--control", "-c 7"),
        *("--json -c 3", "--json --topic '*o*'", "--fields topic,partition,offset,key"),
    ),
    "live": (
        *("", "--json", "-V --api Metadata", "-q", "--error '*'", "--summary", "--csv -a packets:70"),
        "-a packets:100 -w written.pcapng",
    ),
    "summary": (
        *("", "--json", f"--json {_ALL_PARTS}", *_PARTS, "--json --api Fetch", "--json --by partition"),
        *("--by topic", "--by connection --interval 1s", "--json --by client --interval 1s"),
        *("--by client,topic", "--json --by api,group"),
        "--sketches sketches.jsonl",
    ),
    "story": (
        *("'client:*' --json", "'topic:*'", "'group:*'", "'client:*' --mermaid", "'topic:*' --error '*'"),
        *("'txn:*' --diagram", "'host:*'", "'broker:*' --json", "'broker:*' --svg"),
    ),
    "check": ("", "--json", "--json --topic '*o*' --client '!nosuch'"),
    "report": ("--format json -o report.json", "--format json -o report.json --api Fetch"),
    "plot": ("throughput -o plot.png",),
    "trace": ("-o out.pftrace",),
    "export": (
        *(_TABLES, f"{_TABLES} --format parquet", f"{_TABLES} --bodies none --compress zst"),
        *(f"{_TABLES} --partition-by date,api --compress gz", f"{_TABLES} --api Fetch --names window"),
        f"{_TABLES} --format parquet --compress none --rotate 50KB",
    ),
}
"""Options of each command that reads captures."""
IN_SPARK = ("spark decode", "spark summary")
"""Such commands that tests/spark compares with ``export`` (test_every_way.py) and ``summary``
(test_tallies.py).
"""
OF_EXPORT = ("sql",)
"""Such commands that query what ``export`` writes; tests/cli/test_sql.py."""


class Command(NamedTuple):
    """A command with options."""

    name: str
    options: str

    def __str__(self) -> str:
        return f"{self.name} {self.options.replace(_TABLES, '')}".strip()


COMMANDS = [Command(name, options) for name, lines in LINES.items() for options in lines]
JSON = Command("read", "--json")
SUMMARY = Command("summary", f"--json {_ALL_PARTS}")
EXPORT = Command("export", _TABLES)
FETCHES = Command("export", f"{_TABLES} --api Fetch --names window")
OF_REPORTS = [JSON, SUMMARY, Command("check", "--json"), Command("records", "--json"), EXPORT]
"""What every capture of a report goes through."""


def registered() -> Iterator[tuple[str, frozenset[str]]]:
    """Every command that reads captures, and the names of its parameters."""

    def leaves(group: click.Group, path: tuple[str, ...]) -> Iterator[tuple[str, frozenset[str]]]:
        context = click.Context(group)
        for name in group.list_commands(context):
            command = group.get_command(context, name)
            assert command is not None
            if isinstance(command, click.Group):
                yield from leaves(command, (*path, name))
            else:
                yield " ".join((*path, name)), frozenset(str(each.name) for each in command.params)

    for name, parameters in leaves(kdissect, ()):
        if parameters & {"files", "follow"}:
            yield name, parameters


PARAMETERS = dict(registered())


# --- what a command shows -----------------------------------------------------------------------------------


class Shown(NamedTuple):
    """Exit status, stdout, stderr; of each table the rows, each after its partition, of other files all."""

    status: int
    out: bytes
    err: bytes
    files: dict[str, list[bytes]]

    def map(self, change: Callable[[bytes], bytes]) -> Shown:
        """With all text changed."""
        files = {name: list(map(change, rows)) for name, rows in self.files.items()}
        return Shown(self.status, change(self.out), change(self.err), files)

    @property
    def is_empty(self) -> bool:
        """Without output, and with no rows but the capture's own."""
        return not self.out and not any(rows for name, rows in self.files.items() if name != "captures")


_SIZE = re.compile(rb"^(kdissect: [\d,]+ files? )\([^)]+\)", re.MULTILINE)
"""Compressed size of files that have the name of a directory in them, which is random."""


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """One process at a time."""
    with path.open("wb") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


@contextmanager
def _stdin(path: Path) -> Iterator[None]:
    """Stdin of this process is a pipe with the bytes of a file."""
    with os.fdopen(full_pipe(path), encoding="latin-1") as pipe, pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "stdin", pipe)
        yield


def _written(directory: Path) -> dict[str, list[bytes]]:
    """The files that a command wrote."""
    files = {
        path.name: [path.read_bytes()]
        for path in directory.iterdir()
        if path.is_file() and not path.is_symlink()
    }
    return files | {path.name: list(lines(path)) for path in directory.glob("tables/*")}


class Matrix:
    """Runs commands, and keeps what is expected in a directory that all processes of the test run share."""

    def __init__(self, directory: Path, output: pytest.CaptureFixture[bytes]) -> None:
        self._directory = directory
        self._output = output

    def expected(self, capture: Capture, command: Command) -> Shown:
        """What Python alone shows in one process. Made once in a test run."""
        key = hashlib.sha256(f"{capture.name} {command}".encode()).hexdigest()[:20]
        path = self._directory / f"{key}.expected"
        with locked(self._directory / f"{key}.lock"):
            if not path.exists():
                with without_core():
                    shown = self.run(capture, command)
                path.write_bytes(pickle.dumps(shown))
        shown = pickle.loads(path.read_bytes())
        assert isinstance(shown, Shown)
        return shown

    def run(self, capture: Capture, command: Command, *, jobs: int = 1, as_pcapng: bool = False) -> Shown:
        """What a command shows in this process, or those that it starts."""
        parameters = PARAMETERS[command.name]
        arguments = [*command.name.split(), *shlex.split(command.options)]
        if capture.keys is not None and "tls_keylog" in parameters:
            arguments += ["--tls-keylog", str(capture.keys)]
        if "jobs" in parameters and _may_have_jobs(command, capture):
            arguments += ["-j", str(jobs)]
        path = self._as_pcapng(capture) if as_pcapng else capture.path
        with TemporaryDirectory(dir=self._directory) as directory, chdir(directory):
            name = capture.path.name  # the same whatever it contains
            Path(name).symlink_to(path)
            self._output.readouterr()
            if command.name == "live":
                with _stdin(path):
                    status = main([*arguments, "-"])
            else:
                status = main([*arguments, name])
            shown = Shown(status, *self._output.readouterr(), _written(Path()))
            return shown.map(lambda text: _SIZE.sub(rb"\1", text.replace(directory.encode(), b"DIRECTORY")))

    def _as_pcapng(self, capture: Capture) -> Path:
        path = self._directory / f"{capture.name.replace('/', ' ')}.pcapng"
        with locked(path.with_suffix(".lock")):
            if not path.exists():
                write(path, packets_of(capture.path))
        return path


# --- ways ---------------------------------------------------------------------------------------------------


class Way(NamedTuple):
    """A way to get what a command shows: who has it, how to run it, the command to compare it with."""

    name: str
    takes: Callable[[Command, Capture], bool]
    run: Callable[[Matrix, Capture, Command], Shown]
    reference: Callable[[Command], Command] = lambda command: command

    def __str__(self) -> str:
        return self.name


@cache
def _options(command: Command) -> frozenset[str]:
    """The names of the parameters that its options set."""
    known = _command(command.name)
    context = click.Context(known, **SETTINGS)  # it decides for good which options show the help
    given, _, _ = known.make_parser(context).parse_args(shlex.split(command.options))
    return frozenset(given) - {"files", "pipe", "subject"}


def _may_have_jobs(command: Command, capture: Capture) -> bool:
    """Whether ``-j`` is an option, and not refused.

    ``live -j`` is refused with ``--tls-keylog``. Secrets in a file it ignores, which nothing says: a bug.
    """
    refused = {"quiet", "directory", "summary"} & _options(command) or capture.is_decrypted
    return "jobs" in PARAMETERS[command.name] and not (command.name == "live" and refused)


def _has_live(command: Command, _: Capture) -> bool:
    """``live -w`` writes all packets, and has its lines in ``LINES``."""
    options = _options(command)
    return command.name in ("read", "export") and options - {"names"} <= PARAMETERS["live"] - {"target"}


def _has_live_jobs(command: Command, capture: Capture) -> bool:
    return _has_live(command, capture) and _may_have_jobs(_live(command), capture)


def _live(command: Command) -> Command:
    return Command("live", re.sub("--names [a-z]+", "", command.options))


def _window(command: Command) -> Command:
    """With the names that live captures have: those before an exchange (docs/names.md)."""
    return Command(command.name, f"{command.options} --names window --limits naming_window=0s".strip())


WAYS = [
    Way("core", lambda *_: HAS_CORE, lambda matrix, *what: matrix.run(*what)),
    Way(
        "-j 2",
        lambda command, capture: _may_have_jobs(command, capture),
        lambda matrix, *what: matrix.run(*what, jobs=2),
    ),
    Way(
        "pcapng",
        lambda _, capture: (
            ".pcapng" not in capture.path.name
        ),  # and perhaps with TLS secrets, which would be lost
        lambda matrix, *what: matrix.run(*what, as_pcapng=True),
    ),
    Way(
        "live pipe",
        _has_live,
        lambda matrix, capture, command: matrix.run(capture, _live(command)),
        reference=_window,
    ),
    Way(
        "live pipe -j 2",
        _has_live_jobs,
        lambda matrix, capture, command: matrix.run(capture, _live(command), jobs=2),
        reference=_window,
    ),
]


# --- differences --------------------------------------------------------------------------------------------


class Difference(NamedTuple):
    """What a way shows otherwise, as documented: left out before it is compared."""

    reason: str
    ways: tuple[str, ...]
    commands: tuple[str, ...]
    leave_out: Callable[[Shown, Capture], Shown]
    capture: str = "quickstart"
    """One of which a command shows the difference, and that command."""
    command: Command = JSON

    def __str__(self) -> str:
        return self.reason


LIVE = ("live pipe", "live pipe -j 2")


def _matches(pattern: bytes) -> Callable[[Shown, Capture], Shown]:
    compiled = re.compile(pattern, re.MULTILINE)
    return lambda shown, _: shown.map(lambda text: compiled.sub(b"", text))


def _rows_in_order(shown: Shown, _: Capture) -> Shown:
    return shown._replace(files={name: sorted(rows) for name, rows in shown.files.items()})


def _connections_in_order(shown: Shown, _: Capture) -> Shown:
    return shown._replace(
        files={name: sorted(rows) if name == "connections" else rows for name, rows in shown.files.items()}
    )


def _messages_in_order(shown: Shown, _: Capture) -> Shown:
    return shown._replace(err=b"".join(sorted(shown.err.splitlines(keepends=True))))


def _file_name(shown: Shown, capture: Capture) -> Shown:
    name = re.compile(b"(DIRECTORY/)?" + re.escape(capture.path.name.encode()))
    return shown.map(lambda text: name.sub(b"-", text))


def _table_of_captures(shown: Shown, _: Capture) -> Shown:
    return shown._replace(files={name: rows for name, rows in shown.files.items() if name != "captures"})


DIFFERENCES = [
    Difference("a pipe has no name", LIVE, ("read", "export"), _file_name),
    Difference(
        "live counts packets on stderr, and with lines exchanges",
        LIVE,
        ("read", "export"),
        _matches(rb"^kdissect: [\d,]+ (packets|exchanges?)[ ,].*\n"),
    ),
    Difference(
        "several processes do not count the exchanges that they show (docs/cli.md: always 1 with --summary)",
        ("-j 2",),
        ("live",),
        _matches(rb"^kdissect: [\d,]+ exchanges?,.*\n"),
        command=Command("live", "--json"),
    ),
    Difference(
        "each process writes its own files (docs/coverage.md)",
        ("-j 2",),
        ("export",),
        _rows_in_order,
        command=EXPORT,
    ),
    Difference(
        "so there are more",
        ("-j 2",),
        ("export",),
        _matches(rb"^kdissect: [\d,]+ files?"),
        command=EXPORT,
    ),
    Difference(
        "connections are in the order in which their ends are noticed, which is between blocks of packets",
        ("pcapng",),
        ("export",),
        _connections_in_order,
        capture="kafka-0.11",
        command=EXPORT,
    ),
    Difference(
        "live does not wait for a Produce whose records were fetched before it was answered",
        ("live pipe",),
        ("export",),
        _matches(rb"(?<=['\"]e2e_latency_us['\"]:) ?\w+"),
        capture="kafka-0.11",
        command=EXPORT,
    ),
    Difference(
        "a failed Produce does not know where its records were fetched: workers have learned facts "
        "beforehand, live does not wait (exchanges/end_to_end.py)",
        ("-j 2", "live pipe"),
        ("export",),
        _matches(rb"['\"](offset|base_offset|also_in)['\"]: ?[^,}]+"),
        capture="field/idempotent-epoch-bump-duplicates",
        command=EXPORT,
    ),
    Difference(
        "export says that nothing matches before it lists what it wrote, live after that",
        ("live pipe",),
        ("export",),
        _messages_in_order,
        capture="plaintext-on-tls",
        command=FETCHES,
    ),
    Difference(
        "the file is another one: its format, its size, its resolution of times",
        ("pcapng",),
        ("check", "report"),
        _matches(
            rb"^pcap(ng)?, .*\n|timestamps in [mun]s|"
            rb'"(format|compression|bytes|ticks_per_second|byte_order|version)": .*'
        ),
        command=Command("check", ""),
    ),
    Difference(
        "with -c, each process reads somewhat further than the last exchange",
        ("-j 2", "live pipe -j 2"),
        ("read",),
        _matches(rb"^kdissect: [\d,]+ anomal(y|ies) outside exchanges.*\n"),
        capture="field/proxy-variations",
        command=Command("read", "-V -c 3"),
    ),
    Difference(
        "the same in the table of captures", ("pcapng",), ("export",), _table_of_captures, command=EXPORT
    ),
]


def differences(way: Way, command: Command) -> list[Difference]:
    return [each for each in DIFFERENCES if way.name in each.ways and command.name in each.commands]


def left_of(shown: Shown, capture: Capture, without: Iterable[Difference]) -> Shown:
    """Without these differences."""
    for each in without:
        shown = each.leave_out(shown, capture)
    return shown
