"""The data source's options as strings -> ``SourceOptions``.

Names are case-insensitive, as in Spark; ``-`` and ``_`` are ignored. Several values are separated by commas,
or given as a JSON list if a value contains a comma.
"""

from __future__ import annotations

import json
import os
import re
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any

from kdissect.capture.inputs import local, without_braces
from kdissect.capture.stores import normalized, status
from kdissect.errors import UsageError
from kdissect.nearest import did_you_mean
from kdissect.options import BOTH, WHOLE, WINDOW, Options
from kdissect.query.bounds import parse_limits
from kdissect.query.filters import (
    DAY_NS,
    parse_duration,
    parse_moment,
    parse_port_rule,
    parse_ports,
    parse_size,
)
from kdissect.query.where import compile_where
from kdissect.spark.batches import BYTES, ROWS
from kdissect.tables import columns
from kdissect.tables.exchanges import BODIES
from kdissect.tables.rows import TABLES

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from kdissect.capture.stores import Status

AUTO, NONE, CONNECTIONS, FILES = "auto", "none", "connections", "files"
PERMISSIVE, FAILFAST = "permissive", "failfast"
SPLITS = (AUTO, NONE, CONNECTIONS, FILES)

CRITERIA = {
    **{name: name for name in ("api", "topic", "partition", "client", "group", "error", "kind")},
    **{name: name for name in ("since", "until", "connection")},
    "slowerThan": "slower_than",
    "biggerThan": "bigger_than",
}
"""Filter options -> their names in ``filters.build``."""

OPTIONS = {
    "path": "A file, directory or glob, as a path or URL; set by `load(...)`.",
    "paths": "A JSON list of them; set by `load([...])`.",
    "pathGlobFilter": "Only files whose names match this glob: `*.pcap.gz`.",
    "recursiveFileLookup": "Streams: also files in subdirectories. Other queries always read them. [false]",
    "modifiedAfter": "Only files modified after this time: `2026-11-21T09:05:00`. UTC unless it has a zone. "
    "Not for streams.",
    "modifiedBefore": "Only files modified before this time. Not for streams.",
    "table": f"Table to read: {', '.join(TABLES)}. [exchanges]",
    "bodies": "Bodies to include in exchanges: `none`, `request`, `response`, `both`. [both]",
    "api": "Only these APIs. This and the filters below work like the options of `kdissect read`.",
    "topic": "Topic name, ID or glob.",
    "partition": "`3`, or `orders-3`.",
    "client": "Client ID, glob or address.",
    "group": "Group ID or glob.",
    "error": "Error name, code or glob.",
    "kind": "`answered`, `unanswered`, `unacknowledged`, `orphan`.",
    "slowerThan": "Minimum latency: `50ms`.",
    "biggerThan": "Minimum frame size: `64KB`.",
    "since": "Start of the time range: `2026-11-21T09:05:00Z`.",
    "until": "End of the time range (exclusive).",
    "connection": "Connection ID or prefix.",
    "where": "Filter expression, as for `--where`.",
    "ports": "Only connections with these ports: `9092,9192-9194`.",
    "decodeAs": "Ports to decode as Kafka: `tcp.port==9093,kafka`.",
    "cluster": "Cluster of all brokers, for `cluster_id`. [as named by brokers]",
    "tlsKeylog": (
        "Key logs to decrypt TLS with, read on the driver. Workers need the `cryptography` package. Tasks "
        "also use the secrets inside the pcapng files that they read."
    ),
    "showSecrets": "Show credentials, which are redacted by default. [false]",
    "limits": "Limits of each task, as for `--limits`: `connections=50000`.",
    "split": (
        "How tasks divide the work. `none`: one task reads everything; `connections`: each task reads "
        "everything and dissects its shard of the connections; `files`: each task reads some of the files, "
        "and a connection captured in several files at the same time is counted several times; `auto`: "
        "`none` or `connections`, and `files` for the `captures` table. [auto]"
    ),
    "tasks": (
        "Number of tasks with `split=connections`. [one per 128 MiB of captures, up to 64 or the number of "
        "the driver's cores, whichever is larger]"
    ),
    "lookback": "With `split=files`, and in streams: number of preceding files that a task also reads. [1]",
    "filesPerTask": "With `split=files`, for the `captures` table, and in streams: number of files per task. "
    "[one, or with more than 64 files as many as have about 128 MiB, counting 4 MiB for opening each]",
    "batchRows": "Maximum rows per batch handed to Spark. [5000]",
    "batchBytes": "Maximum bytes per batch. [16MiB]",
    "pushdown": "Accept filters that Spark pushes down. This needs "
    "`spark.sql.python.filterPushdown.enabled` in the session. [false]",
    "names": (
        "Where to look for the name of a topic ID. `whole`: anywhere in the input, which is then read twice; "
        "`window`: only in packets before the exchange, or up to 2 s after it (limit `naming_window`). With "
        "`split=files`, and in streams, the input of a task is its files and those before them (`lookback`). "
        "[`whole`; streams: `window`]"
    ),
    "maxFilesPerTrigger": "Streams: maximum files per micro-batch. [all present]",
    "ring": (
        "Streams: regular expression. What it matches in a file name, or its first group, is the name of the "
        "ring. The newest file of each ring waits until a newer one appears. [the name without number and "
        "time]"
    ),
    "maxFileAge": (
        "Streams: a file is read only if its first packet is at most this much older than that of the newest "
        "file read. Names of files already read are kept for that long, too. [7d]"
    ),
    "includeLast": (
        "Streams: also read the newest file of each ring. Set this only if nothing writes to the rings "
        "anymore. With the trigger `availableNow`, this ends the ring: requests without a response are "
        "reported, and later files are not paired with earlier ones. [false]"
    ),
    "mode": (
        "What happens to damaged captures. `PERMISSIVE`: only the damaged part is left out; a warning on the "
        "worker's stderr says of how many files, the `captures` table has their problems, and so has "
        "`columnNameOfCorruptRecord`. `FAILFAST`: the query fails. [PERMISSIVE]"
    ),
    "columnNameOfCorruptRecord": (
        "Name of a further column: what is wrong with a damaged file. It is null except in a row for each "
        "such file, which has nothing else. Filters that Spark pushes down leave out these rows. Not for "
        "streams. [none]"
    ),
    "failOnDataLoss": (
        "Fail if a file cannot be read to its end because of an I/O error; streams also fail if a file was "
        "removed before it was read, arrived too late, or grew after it was read. If false, the query "
        "continues: streams log a warning on the driver, and the `captures` table lists files that could not "
        "be read to their end. [true]"
    ),
}
"""Every option and its help text."""

_NO_TABLE = (
    "Spark cannot keep a table that uses kdissect: use CREATE TEMPORARY VIEW ... USING kdissect OPTIONS "
    "(path '...'), or write tables with kdissect spark decode, and run their create_table.sql"
)
_KNOWN = {name.lower(): name for name in OPTIONS}
_NAMES_SHOWN_IN = frozenset({"cluster_id", "topics", "topic", "topic_id", "assignment", "subscribed"})
_FILTERS_BY_NAME = frozenset({"topic", "partition"})


@dataclass(frozen=True, slots=True)
class SourceOptions(Options):
    """What the data source reads, and how the work is divided among tasks.

    Attributes:
        paths: absolute names of files and directories, and globs.
        name_globs: the names of files to read match one of them; none: all are read.
        recursive: whether streams read files in subdirectories.
        modified_after_ns, modified_before_ns: when the files to read were modified; None: any time.
        max_files: files per micro-batch; None: any number.
        corrupt_column: name of the column for what is wrong with damaged files; None: there is none.
    """

    paths: tuple[str, ...] = ()
    name_globs: tuple[str, ...] = ()
    recursive: bool = False
    modified_after_ns: int | None = None
    modified_before_ns: int | None = None
    table: str = "exchanges"
    bodies: str = BOTH
    split: str = AUTO
    tasks: int | None = None
    lookback: int = 1
    files_per_task: int | None = None
    batch_rows: int = ROWS
    batch_bytes: int = BYTES
    pushdown: bool = False
    names: str = AUTO
    max_files: int | None = None
    ring: re.Pattern[str] | None = None
    max_file_age_ns: int = 7 * DAY_NS
    include_last: bool = False
    fail_on_data_loss: bool = True
    mode: str = PERMISSIVE
    corrupt_column: str | None = None

    @property
    def for_batch(self) -> SourceOptions:
        """The same, to read captures that are complete."""
        return replace(self, names=WHOLE if self.names == AUTO else self.names)

    @property
    def for_stream(self) -> SourceOptions:
        """The same, to read captures as they are written."""
        return replace(self, names=WINDOW if self.names == AUTO else self.names)

    def selects(self, path: str, known: Status | None = None) -> bool:
        """Whether a file is to be read. ``known`` is its status, if it was listed."""
        name = path.rpartition("/")[2]
        if self.name_globs and not any(fnmatchcase(name, glob) for glob in self.name_globs):
            return False
        after_ns, before_ns = self.modified_after_ns, self.modified_before_ns
        if after_ns is None and before_ns is None:
            return True
        try:
            modified_ns = (known or status(path)).modified_ns
        except OSError:
            return True  # reported when it is opened
        return (after_ns is None or modified_ns > after_ns) and (before_ns is None or modified_ns < before_ns)

    def needs_facts(self, shown: Iterable[str]) -> bool:
        """Whether rows depend on facts of other connections, if these columns are selected."""
        by_name = bool(self.where) or not _FILTERS_BY_NAME.isdisjoint(self.criteria)
        return self.end_to_end or by_name or not _NAMES_SHOWN_IN.isdisjoint(shown)


def parse(options: Mapping[str, str]) -> SourceOptions:
    """Parse the options.

    Raises:
        UsageError: unknown option or invalid value; the message lists the known ones.
    """
    values: dict[str, Any] = {}
    criteria: dict[str, list[str]] = {}
    paths: list[str] = []
    if "provider" in options:
        raise UsageError(_NO_TABLE)
    for key, text in options.items():
        name = _KNOWN.get(key.lower().replace("-", "").replace("_", ""))
        if name is None:
            raise UsageError(
                f'unknown option "{key}"{did_you_mean(key, _KNOWN.values())}; known: '
                f"{', '.join(sorted(OPTIONS))}"
            )
        try:
            if name == "path":
                paths.append(_absolute(text))
            elif name == "paths":
                paths += map(_absolute, json.loads(text))
            elif name in CRITERIA:
                criteria.setdefault(CRITERIA[name], []).extend(_texts(text))
            else:
                field, read = _READERS[name]
                values[field] = read(text)
        except (UsageError, ValueError) as error:
            # Spark shows the last line of a message, which can be a caret that marks the position
            raise UsageError(f"option {name}: {str(error).partition(chr(10))[0]}") from None
    values["criteria"] = {name: tuple(texts) for name, texts in criteria.items()}
    parsed = SourceOptions(paths=tuple(paths), **values)
    columns.filter_of(parsed)  # fails here rather than in every task
    return parsed


def _texts(text: str) -> list[str]:
    try:
        listed = json.loads(text)
    except ValueError:
        listed = None
    if isinstance(listed, list):
        return [str(each) for each in listed]
    return [each.strip() for each in text.split(",") if each.strip()]


def _absolute(text: str) -> str:
    """A path or URL that is valid in every process."""
    return normalized(text) or os.path.abspath(local(text))  # noqa: PTH100  (may be a pattern)


def _flag(text: str) -> bool:
    if text.lower() not in ("true", "false"):
        raise UsageError(f'invalid value "{text}": use true or false')
    return text.lower() == "true"


def _count(minimum: int) -> Callable[[str], int]:
    def read(text: str) -> int:
        if not text.strip().isdecimal() or int(text) < minimum:
            raise UsageError(f'invalid count "{text}": use {minimum} or more')
        return int(text)

    return read


def _choice(*known: str) -> Callable[[str], str]:
    def read(text: str) -> str:
        if text.lower() not in known:
            raise UsageError(f'"{text}" is not one of {", ".join(known)}{did_you_mean(text, known)}')
        return text.lower()

    return read


def _mode(text: str) -> str:
    if text.lower() == "dropmalformed":
        raise UsageError(
            "damaged captures have no malformed rows that could be dropped: PERMISSIVE leaves out what is "
            "damaged, FAILFAST fails"
        )
    return _choice(PERMISSIVE, FAILFAST)(text)


def _identifier(text: str) -> str:
    if not text.isidentifier():
        raise UsageError(f'"{text}" cannot be the name of a column; use letters, digits, _')
    return text


def _bytes(text: str) -> int:
    size = parse_size(text)
    if not size:
        raise UsageError(f'"{text}" is too small')
    return size


def _time(text: str) -> int:
    moment = parse_moment(text)
    if not moment.dated:
        raise UsageError(f'"{text}" has no date')
    return moment.ns


def _pattern(text: str) -> re.Pattern[str]:
    try:
        return re.compile(text)
    except re.error as error:
        raise UsageError(f'"{text}" is not a regular expression: {error}') from None


def _where(text: str) -> str:
    try:
        check_where(text)
    except UsageError as error:
        raise UsageError(str(error).removeprefix("--where: ")) from None
    return text


def check_where(text: str) -> None:
    """Check an expression.

    Raises:
        UsageError: it is invalid, or about what only one process that reads all packets can know.
    """
    if columns.TCP_STREAM.name in compile_where(text, columns.resolve).names:
        raise UsageError(f"{columns.TCP_STREAM.name} is not available on Spark")


_READERS: dict[str, tuple[str, Callable[[str], Any]]] = {
    "pathGlobFilter": ("name_globs", lambda text: tuple(without_braces(text))),
    "recursiveFileLookup": ("recursive", _flag),
    "modifiedAfter": ("modified_after_ns", _time),
    "modifiedBefore": ("modified_before_ns", _time),
    "table": ("table", _choice(*TABLES)),
    "bodies": ("bodies", _choice("none", *BODIES, BOTH)),
    "where": ("where", _where),
    "ports": ("ports", parse_ports),
    "decodeAs": ("kafka_ports", parse_port_rule),
    "cluster": ("cluster", str),
    "tlsKeylog": ("key_logs", lambda text: tuple(map(_absolute, _texts(text)))),
    "showSecrets": ("show_secrets", _flag),
    "limits": ("limits", lambda text: parse_limits([text])),
    "split": ("split", _choice(*SPLITS)),
    "tasks": ("tasks", _count(1)),
    "lookback": ("lookback", _count(0)),
    "filesPerTask": ("files_per_task", _count(1)),
    "batchRows": ("batch_rows", _count(1)),
    "batchBytes": ("batch_bytes", _bytes),
    "pushdown": ("pushdown", _flag),
    "names": ("names", _choice(AUTO, WHOLE, WINDOW)),
    "maxFilesPerTrigger": ("max_files", _count(1)),
    "ring": ("ring", _pattern),
    "maxFileAge": ("max_file_age_ns", parse_duration),
    "includeLast": ("include_last", _flag),
    "failOnDataLoss": ("fail_on_data_loss", _flag),
    "mode": ("mode", _mode),
    "columnNameOfCorruptRecord": ("corrupt_column", _identifier),
}
"""All options except paths and filters: attribute of ``SourceOptions``, and parser of the value."""
