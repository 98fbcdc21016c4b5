"""``kdissect explain``: a number, a name or a line of a log -> what it means, and what to run."""

from __future__ import annotations

import click
import orjson

from kdissect.cli.help import command
from kdissect.cli.terminal import output, width
from kdissect.phrases import printable, wrapped
from kdissect.text.explanations import explain as explanations_of

EXAMPLES = """\b
Examples:
  kdissect explain 369295616                    a size in "Invalid receive (size = ...)"
  kdissect explain NOT_LEADER_OR_FOLLOWER       an error, by name, code or exception
  kdissect explain rebalance-storm              a finding
  kdissect explain 'Member c-1 in group workers has failed, removing it from the group'
"""
_INDENT = "  "


@command(epilog=EXAMPLES, context_settings={"ignore_unknown_options": True})  # -1 is an error code
@click.argument("words", nargs=-1, required=True, metavar="WORD...")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
def explain(words: tuple[str, ...], as_json: bool) -> None:
    """Say what a number, name or line of a log means.

    WORD is an error code or name, an API or its key, a column, an anomaly, a finding, a config that findings
    name, the size of an invalid message, an outcome or state that kdissect shows, or a line that a broker or
    client has logged. Each meaning comes with the commands that show it in a capture.
    """
    meanings = explanations_of(" ".join(words))
    with output() as out:
        if as_json:
            document = [explanation._asdict() for explanation in meanings]
            out.write(orjson.dumps(document, option=orjson.OPT_INDENT_2).decode() + "\n")
            return
        columns = width(out)
        for place, explanation in enumerate(meanings):
            lines = [("\n" if place else "") + printable(explanation.what)]
            for text in explanation.text:
                lines += wrapped(f"{_INDENT}{printable(text)}", columns, _INDENT)
            lines += [f"{_INDENT}$ kdissect {printable(each)}" for each in explanation.commands]
            out.writelines(f"{line}\n" for line in lines)
