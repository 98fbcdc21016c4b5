from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from kdissect.cli.main import OPTION_HINTS
from kdissect.cli.read import read
from kdissect.cli.terminal import USAGE
from tests.cli.commands import run

if TYPE_CHECKING:
    from collections.abc import Sequence


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["read", "-T", "json", "x.pcap"], "no such option -T; the formats are --json, --csv, "),
        (["read", "-i", "eth0"], "kdissect live -i IFACE"),
        (["read", "-nr", "x.pcap"], "no such option -n; not needed: kdissect does not resolve names"),
        (["read", "--jsno", "x.pcap"], "no such option --jsno; did you mean --json"),
        (["read", "--xyzzy", "x.pcap"], "no such option --xyzzy (see kdissect read --help)"),
        (["-r", "x.pcap"], "options go after the command: kdissect read -r"),
        (["read", "-c"], "requires an argument (see kdissect"),
        (["apis", "1", "2", "3"], "(see kdissect apis --help)"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_a_mistake_is_one_line_with_a_hint(
    arguments: Sequence[str], text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    done = run(capsys, *arguments)
    assert (done.status, done.out) == (USAGE, "")
    assert text in done.err
    assert done.err.startswith("kdissect: ")
    assert done.err.count("\n") == 1


def test_no_existing_option_has_a_hint() -> None:
    ours = {name for option in read.params for name in option.opts}
    assert ours & OPTION_HINTS.keys() == set()
