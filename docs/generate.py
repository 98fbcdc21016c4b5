"""Help texts, columns, types -> docs/*.md and *.schema.json, so that the docs match the program.

python docs/generate.py            write the pages
python docs/generate.py --check    write nothing; print a diff and exit with status 1 if a page is outdated
"""

from __future__ import annotations

import sys
from dataclasses import fields, is_dataclass
from datetime import datetime
from difflib import unified_diff
from pathlib import Path
from types import NoneType, UnionType
from typing import TYPE_CHECKING, Any, Union, get_args, get_origin, get_type_hints

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
import click

from docs import grafana, man
from kdissect.cli.help import full_help
from kdissect.cli.main import kdissect
from kdissect.spark.options import OPTIONS
from kdissect.stats.client_connections import ClientConnections
from kdissect.stats.cluster import Cluster
from kdissect.stats.contents import COUNTED_BY_CORE, ONE, SUM
from kdissect.stats.document import Summary
from kdissect.stats.findings.capture import CAPTURE_RULES
from kdissect.stats.findings.causes import EXPLAINS, TIES
from kdissect.stats.findings.rule import Rule
from kdissect.stats.findings.rules import RULES
from kdissect.stats.grouped import Grouped
from kdissect.stats.groups import Groups
from kdissect.stats.intervals import Intervals
from kdissect.stats.lag import Lag
from kdissect.stats.quality import Check
from kdissect.stats.record_counts import RecordCounts
from kdissect.stats.traffic import Traffic, TrafficTables
from kdissect.stats.transactions import Transactions
from kdissect.stats.versions import VersionUse
from kdissect.tables.columns import EXCHANGE, RECORD
from kdissect.tables.exchanges import EXCHANGE_EXPORT_ONLY, RECORD_EXPORT_ONLY
from kdissect.tables.rows import TABLES
from kdissect.tables.values import json_document
from samples.pages import shown

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from kdissect.tables.columns import Column

DIRECTORY = Path(__file__).parent
WIDTH = 100

CLI_HEAD = """\
# Commands

The pages of the commands are generated from their `--help-all`.

An option has the same meaning in all commands: `--limits` sets internal limits, `--max-rows` the number of
rows in tables, `--count` (`-c`) the number of exchanges or records. `-w` writes packets to a file, `-o`
anything else to a directory (`spark package -o`: to a file).

## Exit status

If several apply, the first one in this table does. All files that can be read are read and shown first.

| status | when |
|--:|---|
| 130, 143 | Ctrl-C or SIGTERM stopped the command. |
| 3 | Output is missing or incomplete because of an I/O error or a bug in kdissect. |
| 2 | Usage error; or a capture is missing, or no packet in it can be read. |
| 1 | With `--fail` or `--fail-on`, see below; `spark doctor` found something to report. |
| 0 | Otherwise, even if a capture ends in the middle of a packet, or nothing matches the filters. |

With `--fail`, these commands exit with status 1 if one of the following is true. `--fail-on error` does the
same for findings that are errors, `--fail-on note` for all findings.

| | `check` | `summary` | `summary --versions` | `summary --findings` |
|---|---|---|---|---|
| a finding is an error or a warning | yes | yes | yes | yes |
| the traffic is failing, degraded (not with `--fail-on error`) or unknown | yes | yes | yes | yes |
| a client would break on a newer Kafka | | yes | yes | |
| the capture is not good | yes | | | |
"""

SOURCE_HEAD = """\
# Options of the data source

This page is generated. It lists the options of `spark.read.format("kdissect")` and
`spark.readStream.format("kdissect")`; [spark.md](spark.md) has examples. Names are not case-sensitive and may
contain `-` or `_`. Separate several values with commas, or pass a JSON list. Defaults are in brackets.
"""

COLUMNS_HEAD = """\
# Columns of an exchange

One row, or one JSON object per line, for each request, and for each response whose request was not captured.
Names and types are stable; columns may be added. The names of findings (such as `tiny-batches`) and of
anomalies are stable too, and so is `{"withheld": 16}`, a redacted credential of 16 bytes. Keys of the JSON
documents of `summary` and `check` can change: when one is renamed or removed, `schema_version` is raised, and
the [changelog](../CHANGELOG.md) says what changed.

An absent value is null (CSV: nothing between two commas), never "" or -1 unless that was on the wire; in this
table, an array can be empty, and is null only if its message is incomplete. Times are UTC with microseconds,
ISO 8601 ending in Z. In `request` and `response`, values are as on the wire, so error codes and enumerations
are numbers; in the other columns they are names.
"""

LATENCY = """\
## Parts of the latency

`latency_us` = `queued_us` + `throttled_us` + `network_us` + `wait_us` + `service_us`, in chronological
order. An exchange either waited (`service_us` is null) or was served (`wait_us` is 0). A part that cannot
be known is null, and then so is `service_us`. Percentiles, rankings and metrics use `service_us`.

In a capture at the broker, whichever of `service_us` and `wait_us` is neither null nor 0 corresponds to the
sum of RequestQueueTimeMs, LocalTimeMs, RemoteTimeMs and ResponseQueueTimeMs in the broker's metrics. For a
Fetch, JoinGroup or SyncGroup that waited, RemoteTimeMs is part of `wait_us`; for a Produce with acks=all,
which waits for replicas, it is part of `service_us`. Captured at the client, `service_us` also includes one
network round trip (unless the request was queued), and the delay caused by a request or response that was
lost in transit and captured only once.

The latency begins with the last byte of the request and ends with the first byte of the response. The time in
which large messages are transmitted is beside it: `total_us` = `request_transfer_us` + `latency_us` +
`response_transfer_us`. If both ends were captured, times are those of the first copy.

A consumer's Fetch has a `service_us` if it returned at least `min_bytes` that were already available: batches
below the last high watermark (with `read_committed`: last stable offset) that the broker had reported on the
same connection. It has a `wait_us` if it returned less than that, or nothing. Neither is known if the
high watermark of a partition with records had not yet appeared on the connection, if a partition has an
error, if a quota held records back, or for share groups, whose responses have no high watermark. So a
consumer that keeps up with its producers has few service times, and one that lags has many. A Fetch by a
replica or by KRaft has no `service_us`: it reads past the high watermark.
"""

BODIES = """\
## Values in `request` and `response`

Names are those of the protocol guide, in wire order. Bytes are
`{"base64": "..."}`, with `"decoded": {...}` beside it if the payload was decoded. A UUID is a string, as
Kafka prints it. Record data is an array of batch headers. A credential is `{"withheld": 16}`: its length in
bytes. `_tags` has unknown tags by number, `_trailing` the bytes after a complete body, `_undecoded` the
bytes that could not be decoded. A float64 that is NaN or infinite is null. In formats with fixed columns
(CSV, Parquet, Spark), `object` is a string of JSON.
"""

RECORDS = """\
# Columns of a record

`kdissect records --json` writes one JSON object per line, and `--csv` one line of CSV, for each record
produced or fetched. A record that was produced once and fetched twice appears three times; `--unique` shows
only the first. Records of Kafka's internal topics are decoded, and credentials in them redacted. Anomalies of
batches are counted on stderr, and listed there for batches without a readable record.

`read --json --records` shows records inside `request` and `response`: each batch has `records`, an array of
objects with `offset`, `timestamp`, `timestamp_type`, `key`, `key_encoding`, `value`, `value_encoding`,
`headers`, `control_type` and `aborted` as below, and `anomalies` if there are any.
"""

EXPORTS = """\
# Tables of an export

`kdissect export` writes these tables. All have `date`. `exchanges`, `records`, `partitions`, `groups`,
`brokers`, `rebalances`, `topic_ids` and `anomalies` join on `connection` and `number`; `connections`
joins on `connection`, and `captures` on `capture`. Rows of `brokers` and `rebalances` are written when
all captures of a run were read: a rebalance that continues in the captures of the next run is cut
there. Every column is declared nullable; names are unique even when compared case-insensitively.
Columns have the types in `_kdissect/schema.json`, which is a Spark schema. A time before the year 1 or
after 9999, as a damaged capture can have, is null; the numbers `time_ns` and `timestamp_ms` still have
it, as far as 64 bits allow.

In JSON lines, `request` and `response` are objects, which Spark reads as strings. In Parquet they are strings
of JSON, and `key` and `value` of records are bytes: those on the wire if `*_encoding` is `utf-8` or `base64`,
the text if it is `json`. With `--partition-by`, the columns `date` and `api` are in paths and not in
the files.
"""

FINDINGS_HEAD = """\
# Findings

This page is generated. The first screen of `kdissect summary FILE` shows what is wrong, `kdissect summary
--findings FILE` shows it in full, and `kdissect summary --findings --list` the rules.

## How to read the first screen

```text
traffic     failing: 10 requests, 1 unanswered, 1 abandoned, 0 with errors, 1 error finding
timeline    07:13:40 throttled -> 07:14:02 broker-unreachable
findings    error 07:14:02-07:14:23 (21 s) broker-unreachable: broker 10.0.0.3:9092 (node 3): served ...
              explains broker-resets, leaders-moving, connection-refused
            2 more: acks, tiny-batches
```

1. `traffic` is the verdict: failing, degraded, good or unknown. Only causes count for it.
2. `timeline` shows in which order the causes began, if several errors or warnings did not begin in the same
   second.
3. Each finding is one cause: its severity, when it was first and last seen and how long that is, the rule,
   who it is about, and what was counted. All that one rule found is one finding: "3 clients, all at 10.0.0.7,
   2 brokers" says what its parts have in common. Two brokers that were gone are two findings.
4. `explains` lists consequences: what other rules found, and what the cause is enough to explain. They do not
   count for the verdict. In `--findings` they stand below their cause; in JSON they have `explained_by`.
5. The worst severity comes first. Of the same severity, the finding with the most failed requests and lost
   records does, then the one that took the most time.

A finding says what the packets show. If they do not show whose fault it is, the finding does not say so
either: attempts to connect that nobody answers are `connect-timeout`, and not `broker-unreachable`, unless
the same clients reach other brokers at that time.

In JSON, `scope` has the number and some names of clients, client hosts, brokers, topics, groups and
connections; `impact` has requests, connections, records and time; `parts` has one entry for each subject.

## From a symptom to its cause

These are lines of clients' and brokers' logs, and what `summary` shows of samples in the repository in which
that happened. [All recordings](incidents.md) lists every sample, and what its first screen says.
"""

COOKBOOK = (
    ("`Connection to node 1 could not be established. Node may not be available.`", "gone"),
    ("`Connection setup timed out in state CONNECT`", "firewall"),
    ("`Disconnected while requesting ApiVersion`, again and again", "closes"),
    ("Clients connect, then say `1/1 brokers are down`", "advertised"),
    ("The broker's log has `Invalid receive (size = 369295616 larger than 104857600)`", "tls"),
    ("`Request timed out` for all requests to one broker", "silent"),
    ("Latencies are high now and then, but not those in the broker's metrics", "loss"),
    ("`NOT_ENOUGH_REPLICAS`", "brokers"),
    ("A producer is slow, and the broker idle", "waits"),
    ("Small records arrive, `Timed out 1 in-flight` for large ones", "mtu-at-client"),
    ("The first request after a pause times out, the next one works", "idle-dropped"),
    ("A consumer is disconnected again and again while there is nothing to read", "poll-cut"),
    ("A client is disconnected at the same interval after each login", "session-expired"),
    ("`Connection refused` or `Connect timed out`, and no Kafka in the capture", "closed-port"),
    ("`SSL connection closed by peer: connecting to a PLAINTEXT broker listener?`", "tls-only"),
    ("The broker's log has `Invalid receive (size = 1195725856 larger than 104857600)`", "foreign"),
    ("A client connects to `localhost`, although `bootstrap.servers` has another host", "loopback"),
    ("`NOT_LEADER_OR_FOLLOWER` that does not end", "one-address"),
    ("`SASL SCRAM-SHA-512 mechanism handshake failed`", "mechanism"),
    ("`INCONSISTENT_GROUP_PROTOCOL`, or rebalances whenever another application starts", "two-applications"),
    ("A rebalance takes long, although all members are alive (new group protocol)", "revocation-held"),
    ("A consumer with `read_committed` gets nothing, although records are written", "open-transaction"),
    ("The broker's log has `Shrinking ISR`", "follower-stopped"),
    ("One connection hangs, and new ones work", "forgotten"),
)
"""Symptom, and the trouble in samples/troubles that shows it."""

FINDINGS_RULES = """\
## Rules

| rule | severity | looks for | reported if | explains |
|---|---|---|---|---|
"""

FINDINGS_CAPTURE = """\
## Rules about the capture

`check` shows these. Those that led to another verdict than good are also above the findings of `summary
--findings`, and in JSON in `quality_findings`: what the others say is worth less with them.

| rule | verdict | looks for | reported if |
|---|---|---|---|
"""

FINDINGS_TIES = """\
## What explains what

A finding explains another only if both have this in common. Besides, every finding about a client that is
not a note explains `client-unserved` of that client. If several findings could explain another, the first in
this table does.

| cause | consequences | in common |
|---|---|---|
"""

TALLIES_HEAD = """\
# What counters take

Each part of a summary and each rule has one way in, `feed`, and declares as `takes` which
[tallies](glossary.md) come to it: of one exchange, which carry it and its facts; counts of the native core,
with what is in the bodies of the exchanges; or sums of both, with number, sizes and times only: of each
connection by API, version and client, or of all connections between a client and a broker
([why](decisions/a-tally-is-the-only-count.md)). One that takes both sums and others gets each exchange twice,
and counts something else each time. This page is generated.
"""

TALLIES_PARTS = """\
## Parts of a summary

| part | takes | to |
|---|---|---|
"""

TALLIES_RULES = """\
## Rules

The APIs, and whether only exchanges with an error, an anomaly or another flaw come, apply to what is not a
sum. Rules that are not listed need only connections, or what they follow.

| rule | takes | of APIs | only with a flaw | to |
|---|---|---|---|---|
"""

TALLIES_FOLLOWED = """\
## What rules follow

Some rules need to know what no exchange says alone. It is followed once for all of them.

| followed | takes | of APIs | only with a flaw | by | to |
|---|---|---|---|---|---|
"""

TAKEN = {
    ONE: "one exchange",
    COUNTED_BY_CORE: "counts of the core",
    SUM: "sums",
}
COUNTERS = (
    *(Traffic, TrafficTables, RecordCounts, Cluster, Intervals, Grouped),
    *(Groups, Lag, VersionUse, Transactions, ClientConnections),
)

DIALECT = "https://json-schema.org/draft/2020-12/schema"
_PLAIN = {str: "string", int: "integer", float: "number", bool: "boolean", NoneType: "null"}


def pages() -> dict[Path, str]:
    """Every generated page and its text."""
    return {
        DIRECTORY / "cli.md": cli_page(),
        **{
            DIRECTORY / "cli" / f"{man.page_name(each)}.md": command_page(each)
            for each in contexts()
            if each.parent is not None
        },
        **{
            DIRECTORY / "man" / f"{man.page_name(each)}.1": man.page(each.command, each)
            for each in contexts()
        },
        DIRECTORY / "columns.md": columns_page(),
        DIRECTORY / "source.md": source_page(),
        DIRECTORY / "monitoring" / "dashboard.json": grafana.dashboard(),
        DIRECTORY / "findings.md": findings_page(),
        DIRECTORY / "tallies.md": tallies_page(),
        DIRECTORY / "summary.schema.json": json_document(schema(Summary)).decode(),
        DIRECTORY / "check.schema.json": json_document(schema(Check)).decode(),
    }


def cli_page() -> str:
    """A line for each command, in the order in which ``--help`` lists them."""
    rows = (
        f"| [{each.command_path}](cli/{man.page_name(each)}.md) | {_first_line(each.command)} |"
        for each in contexts()
        if each.parent is not None
    )
    return "\n".join((CLI_HEAD, "## Commands\n", "| command | |", "|---|---|", *rows, ""))


def command_page(context: click.Context) -> str:
    """Everything that ``--help-all`` says, without escapes."""
    return f"# {context.command_path}\n\n```text\n{full_help(context).rstrip()}\n```\n"


def _first_line(command: click.Command) -> str:
    return (command.help or "").strip().partition("\n\n")[0].replace("\n", " ").replace("|", "\\|")


def source_page() -> str:
    """A line for each option of the data source."""
    rows = (f"| `{name}` | {description} |" for name, description in OPTIONS.items())
    return "\n".join((SOURCE_HEAD, "| option | meaning |", "|---|---|", *rows, ""))


def findings_page() -> str:
    """How to read findings, symptoms with the output of samples, the rules, and what explains what."""
    recipes = []
    for symptom, sample in COOKBOOK:
        command = f"summary samples/troubles/{sample}.pcap.gz"
        screen = shown(command.split(), WIDTH).split("\n\n")[0].rstrip()
        recipes.append(f"**{symptom}**\n\n```text\n$ kdissect {command}\n{screen}\n```\n")
    rules = [
        f"| `{row.rule}` | {row.severity} | {row.title} | {row.when} | {code(EXPLAINS.get(row.rule, ()))} |"
        for row in (rule.row() for rule in RULES)
    ]
    of_captures = [
        f"| `{row.rule}` | {row.severity} | {row.title} | {row.when} |"
        for row in (rule.row() for rule in CAPTURE_RULES)
    ]
    ties = [
        f"| `{cause}` | {code(other for other, kind in others.items() if kind == tie)} | {TIES[tie]} |"
        for cause, others in EXPLAINS.items()
        for tie in dict.fromkeys(others.values())
    ]
    return "\n".join(
        (
            *(FINDINGS_HEAD, *recipes, FINDINGS_RULES + "\n".join(rules), ""),
            *(FINDINGS_CAPTURE + "\n".join(of_captures), "", FINDINGS_TIES + "\n".join(ties), ""),
        )
    )


def tallies_page() -> str:
    """A line for each part of a summary and each rule."""
    parts = [f"| `{each.__name__}` | {_taken(each)} | {_does(each)} |" for each in COUNTERS]
    rules = [
        f"| `{rule.name}` | {_seen(rule)} | {_does(rule)} |" for rule in RULES if rule.feed is not Rule.feed
    ]
    followers: dict[type[Any], list[str]] = {}
    for rule in RULES:
        if rule.follows is not None:
            followers.setdefault(rule.follows, []).append(rule.name)
    followed = [
        f"| `{each.__name__}` | {_seen(each)} | {code(names)} | {_does(each)} |"
        for each, names in followers.items()
    ]
    return "\n".join(
        (
            *(TALLIES_HEAD, TALLIES_PARTS + "\n".join(parts), ""),
            *(TALLIES_RULES + "\n".join(rules), "", TALLIES_FOLLOWED + "\n".join(followed), ""),
        )
    )


def _taken(counter: Any) -> str:
    return ", ".join(name for form, name in TAKEN.items() if form in counter.takes)


def _seen(counter: Any) -> str:
    apis = ", ".join(sorted(counter.apis)) or "all"
    return f"{_taken(counter)} | {apis} | {'yes' if counter.needs_flaws else 'no'}"


def _does(counter: Any) -> str:
    """The first sentence about its ``feed``."""
    text = " ".join((counter.feed.__doc__ or "").split()).partition(". ")[0].rstrip(".")
    return text[:1].lower() + text[1:]


def code(names: Iterable[str]) -> str:
    """Names, each as code."""
    return ", ".join(f"`{name}`" for name in names)


def columns_page() -> str:
    """A table of columns for each table."""
    parts = [COLUMNS_HEAD, _column_table(EXCHANGE), LATENCY, BODIES, RECORDS, _column_table(RECORD), EXPORTS]
    parts += ["The `exchanges` table also has:\n", _column_table(EXCHANGE_EXPORT_ONLY)]
    parts += ["The `records` table also has:\n", _column_table(RECORD_EXPORT_ONLY)]
    for table in TABLES.values():
        if table.name not in ("exchanges", "records"):
            parts += [f"## The {table.name} table\n", f"{table.description}\n", _column_table(table.columns)]
    return "\n".join(parts).rstrip() + "\n"


def _column_table(columns: Sequence[Column]) -> str:
    rows = [f"| `{c.name}` | {c.type} | {c.unit} | {c.description} |" for c in columns]
    return "\n".join(["| column | type | unit | meaning |", "|---|---|---|---|", *rows, ""])


def schema(document: type) -> dict[str, Any]:
    """The JSON Schema (draft 2020-12) of what ``json_document`` writes for a dataclass. Dataclasses inside it
    are defined once each, in ``$defs``.
    """
    definitions: dict[str, Any] = {}
    return {
        "$schema": DIALECT,
        "title": document.__name__,
        **_object(document, definitions),
        "$defs": definitions,
    }


def _object(kind: type, definitions: dict[str, Any]) -> dict[str, Any]:
    assert is_dataclass(kind)
    hints = get_type_hints(kind)
    descriptions = {each.name: each.metadata.get("description", "") for each in fields(kind)}
    return {
        "description": " ".join((kind.__doc__ or "").split()),
        "type": "object",
        "properties": {
            name: {**_type(hints[name], definitions), "description": description}
            for name, description in descriptions.items()
        },
        "required": list(descriptions),
        "additionalProperties": False,
    }


def _type(hint: Any, definitions: dict[str, Any]) -> dict[str, Any]:
    if hint in _PLAIN:
        return {"type": _PLAIN[hint]}
    if hint is datetime:
        return {"type": "string", "format": "date-time"}
    if isinstance(hint, type) and is_dataclass(hint):
        name = hint.__name__
        if name not in definitions:
            definitions[name] = {}  # reserved, in case it contains itself
            definitions[name] = _object(hint, definitions)
        return {"$ref": f"#/$defs/{name}"}
    origin, parts = get_origin(hint), get_args(hint)
    if origin in (Union, UnionType):
        return {"anyOf": [_type(part, definitions) for part in parts]}
    if origin is list:
        return {"type": "array", "items": _type(parts[0], definitions)}
    if origin is dict:
        return {"type": "object", "additionalProperties": _type(parts[1], definitions)}
    raise TypeError(f"{hint} has no JSON type")


def contexts(
    command: click.Command = kdissect, name: str = "kdissect", parent: click.Context | None = None
) -> Iterator[click.Context]:
    """Yield the context of a command, then those of the commands below it."""
    context = click.Context(
        command, info_name=name, parent=parent, terminal_width=WIDTH, **command.context_settings
    )
    yield context
    if isinstance(command, click.Group):
        for child_name in command.list_commands(context):
            child = command.get_command(context, child_name)
            if child is not None and not child.hidden:
                yield from contexts(child, child_name, context)


def differences() -> Iterator[str]:
    """Yield the lines of a diff from the pages in docs to the generated ones."""
    for path, generated in pages().items():
        current = path.read_text(encoding="utf-8") if path.exists() else ""
        name = path.relative_to(DIRECTORY.parent)
        yield from unified_diff(
            current.splitlines(), generated.splitlines(), str(name), f"{name}, generated", lineterm=""
        )


def main(arguments: list[str]) -> int:
    """Write the pages, or with ``--check`` compare them."""
    if arguments == ["--check"]:
        lines = list(differences())
        if lines:
            sys.stdout.write("\n".join([*lines, "", "python docs/generate.py would write this", ""]))
        return 1 if lines else 0
    if arguments:
        sys.stderr.write(f"{__doc__}\n")
        return 2
    for path, text in pages().items():
        path.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
