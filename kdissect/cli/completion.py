"""``kdissect completion``: the script that makes a shell complete commands, options and their values.

The script calls kdissect at every TAB; options.py says which values an option has.
"""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class

from kdissect.cli.help import command
from kdissect.cli.terminal import output

EXAMPLES = """\b
Examples:
  kdissect completion bash > ~/.kdissect-completion    then in ~/.bashrc: . ~/.kdissect-completion
  kdissect completion zsh > ~/.kdissect-completion     then in ~/.zshrc: . ~/.kdissect-completion
  kdissect completion fish > ~/.config/fish/completions/kdissect.fish
"""
_VARIABLE = "_KDISSECT_COMPLETE"  # click reads it


@command(epilog=EXAMPLES)
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@click.pass_context
def completion(context: click.Context, shell: str) -> None:
    """Print a shell completion script.

    It completes commands, options and values, including API and error names, columns and fields.
    """
    kind = get_completion_class(shell)
    assert kind is not None
    with output() as out:
        out.write(kind(context.find_root().command, {}, "kdissect", _VARIABLE).source() + "\n")
