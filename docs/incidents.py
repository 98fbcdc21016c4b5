"""All recordings in the repository -> docs/incidents.md: what happened in each, and its first screen.

    python docs/incidents.py

Takes a minute or two. tests/text/test_overview.py, which needs these screens anyway, compares each row.
"""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from samples.golden import captures  # noqa: E402
from samples.pages import shown  # noqa: E402

if TYPE_CHECKING:
    from collections.abc import Sequence

PAGE = ROOT / "docs" / "incidents.md"
TROUBLES = sorted(Path("samples/troubles").glob("*.pcap.gz"))
CLUSTER = sorted(Path("tests/cluster").glob("*.pcap.zst"))
_LABEL = 12  # columns of the first screen
_ITEM = re.compile(r"(?:error|warning|note) \S+ (?:\([^)]*\) )?([a-z0-9-]+):")

HEAD = """\
# Every recording, and what its first screen says

This page is generated. It lists all captures in the repository: what happened, which findings stand on the
first screen of `kdissect summary FILE` at 80 columns, in which line, and what they explain. Clients and
brokers logged what happened ([samples](../samples/README.md)).

`tests/stats/findings/test_rules.py` and `tests/cluster/test_incidents.py` list all findings that are true of
a recording, and fail if there is another one: there are no false alarms.
"""
_TABLE = "| recording | what happened | findings | explained by these |\n|---|---|---|---|"
_PARTS = (
    ("Faults, one at a time", TROUBLES),
    ("Incidents on a cluster of three brokers", CLUSTER),
    ("Versions, clients and features", captures()),
)


def command(path: Path) -> list[str]:
    """``summary`` of a recording."""
    forced = _truth(path).get("decode_as", ())
    return [
        "summary",
        *(option for port in forced for option in ("-d", f"tcp.port=={port},kafka")),
        str(path),
    ]


def row(path: Path, screen: Sequence[str]) -> str:
    """The row of a recording, of its first screen at 80 columns."""
    causes, below, others = [], "", ""
    heading = ""
    texts: list[list[str]] = []  # of the items: number of the first line, text
    for number, line in enumerate(screen, 1):
        heading = line[:_LABEL].strip() or heading
        text = line[_LABEL:]
        if heading != "findings":
            continue
        if _ITEM.match(text) or text.startswith("  explains ") or re.match(r"[\d,]+ more: ", text):
            texts.append([str(number), text.strip()])
        else:
            texts[-1][1] += f" {text.strip()}"
    for number, text in texts:
        if item := _ITEM.match(text):
            causes.append(f"`{item[1]}` (line {number})")
        elif text.startswith("explains "):
            below += f", {text.removeprefix('explains ')}"
        else:
            others = text
    findings = ", ".join(causes + [others] * bool(others)) or "none"
    explained = ", ".join(f"`{name}`" for name in dict.fromkeys(below.split(", ")[1:]))
    return f"| `{path.name}` | {_what(path)} | {findings} | {explained} |"


def _truth(path: Path) -> dict[str, object]:
    name = path.name.split(".pcap")[0]
    file = path.with_name(f"{name}.json" if path in CLUSTER else f"{name}.truth.json")
    truth: dict[str, object] = json.loads((ROOT / file).read_text())
    return truth


def _what(path: Path) -> str:
    truth = _truth(path)
    text = truth.get("what") or truth.get("what_happened")
    if text is None:
        lines = (ROOT / "samples" / "README.md").read_text().splitlines()
        text = (
            next(line for line in lines if line.startswith(f"| `{path.name}`")).split(" | ")[-1].rstrip(" |")
        )
    return str(text).replace("|", "\\|")


def first_screen(path: Path) -> list[str]:
    """At 80 columns."""
    text = shown(command(path), 80)
    return text[text.index("capture  ") :].split("\n\n")[0].splitlines()


def main() -> None:
    """Write the page."""
    parts = [HEAD]
    for title, paths in _PARTS:
        parts += [f"## {title}\n", _TABLE, *(row(path, first_screen(path)) for path in paths), ""]
    PAGE.write_text("\n".join(parts))


if __name__ == "__main__":
    main()
