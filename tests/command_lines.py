"""Every command that reads a capture, with each of its outputs.

A command line ends with the capture: a file, or ``-`` if it comes through a pipe. ``OUT`` stands for what it
writes besides stdout.
"""

from __future__ import annotations

from kdissect.cli.main import SECTIONS
from kdissect.stats.traffic import BY

OUT, PIPE = "OUT", "-"
_PARTS = ("--groups", "--lag", "--versions", "--transactions", "--connections", "--findings")

COMMAND_LINES = (
    "read", "read -q", "read -V", "read -x", "read --json", "read --csv", "read --json --records",
    "read -V --records", "read -e time,client_id,topics,errors", "read --order time", "read --check-crcs",
    "read --names window --topic *", "read --json -Y latency>1us", "read -Y request.group_id=='g'",
    "read -w OUT", "read -",
    "records", "records -V", "records -x", "records --json", "records --csv", "records --unique",
    "records -o OUT", "records -",
    "summary", "summary --interval 1s", *(f"summary {part}" for part in _PARTS),
    *(f"summary --by {column}" for column in (*BY, "client,topic", "api,group")),
    f"summary --json {' '.join(_PARTS)}", f"summary {' '.join(_PARTS)} -",
    *(f"story {kind}:*" for kind in ("group", "client", "txn", "topic", "broker", "host")),
    "story record:t:0@0",
    "story client:* --json", "story client:* --diagram", "story client:* --mermaid",
    "story client:* --svg", "story client:* --html",
    "check", "check --json", "check -",
    "trace -o OUT", "report -o OUT", "report --format json -o OUT", "plot throughput -o OUT.svg",
    "export -o OUT", "export --bodies both --records -o OUT",
    "export --format parquet --bodies both --records -o OUT",
    "export --format parquet --partition-by date,api -o OUT",
    "live -", "live -V --records -", "live --json --records -", "live -q --summary -", "live -o OUT -",
    "live -q --prometheus 127.0.0.1:0 -",
)  # fmt: skip


def commands_that_read() -> set[str]:
    """Their names, as the help text lists them. Those of Spark run elsewhere; ``sql`` queries what ``export``
    writes.
    """
    others = {"spark", "sql", *SECTIONS["Reference"]}
    return {name for names in SECTIONS.values() for name in names} - others
