"""The options of commands: what they are called, and the groups in which help and man pages list them.

``GROUPS`` names an option by its first long form, or its only one.
"""

from __future__ import annotations

import click

_INPUT = (
    "-r -d --port --cluster --names --topic-ids "
    "--tls-keylog -o --show-secrets -i -f -s -B --no-promiscuous -Z --follow "
    "-D --master --remote --conf"
)
_FILTER = (
    "--api --topic --partition --client --group --error --kind --slower-than --bigger-than --since --until "
    "--connection --where --exchange --key --header --trace --schema --offset --control --produced --fetched "
    "--grep --unique --count"
)
_OUTPUT = (
    "-V -x --full --records --json --csv --fields --heading --wide --order --quiet -t --color -w --mode "
    "--with-keys --decrypted --comments --wireshark-filter --request-log --check-crcs --template --schemas "
    "--output -b -a --format --compress --max-size --tables --bodies --rotate --partition-by --lines "
    "--summary --top --prometheus --prometheus-cert --prometheus-key --by --order-by --max-rows "
    "--interval --groups --lag --versions --transactions --connections --findings --list --fail --fail-on "
    "--sketches --diagram --mermaid --svg --html --overwrite --redo --append --report --show-sql "
    "--ddl --sql --pyspark --location --start --source --open --width"
)
_PERFORMANCE = "--jobs --limits --no-progress -l --tasks --engine --log"
_OTHER = "--config --profile --debug --version --help --help-all"
GROUPS: dict[str, frozenset[str]] = {
    "Input": frozenset(_INPUT.split()),
    "Filter": frozenset(_FILTER.split()),
    "Output": frozenset(_OUTPUT.split()),
    "Performance": frozenset(_PERFORMANCE.split()),
    "Help": frozenset(_OTHER.split()),
}


def name_of(context: click.Context) -> str:
    """The command as it is called: "spark report"."""
    return context.command_path.partition(" ")[2]


def flag_of(option: click.Parameter) -> str:
    """The first long form of an option, or its only one."""
    return next((each for each in option.opts if each.startswith("--")), option.opts[0])


def group_of(flag: str) -> str:
    """The group that lists an option."""
    return next(group for group, flags in GROUPS.items() if flag in flags)


def options_of(context: click.Context) -> list[click.Option]:
    """The options that a command passes on: not --help and the like, nor hidden ones."""
    options = [each for each in context.command.params if isinstance(each, click.Option) and not each.hidden]
    return [each for each in options if group_of(flag_of(each)) != "Help"]
