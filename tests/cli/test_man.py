"""Manual pages as groff renders them."""

from __future__ import annotations

import re
import shutil
import subprocess

import click
import pytest

from docs.generate import DIRECTORY, contexts
from docs.man import page_name

CONTEXTS = {page_name(context): context for context in contexts()}
SECTIONS = ("NAME", "SYNOPSIS", "DESCRIPTION", "OPTIONS", "EXAMPLES", "EXIT STATUS", "FILES", "SEE ALSO")

pytestmark = [
    pytest.mark.tools,
    pytest.mark.skipif(shutil.which("groff") is None, reason="groff is not installed"),
]


def rendered(name: str) -> str:
    """The page as text of 80 columns, without a warning."""
    command = ["groff", "-man", "-Tutf8", "-P-cbou", "-rLL=78n", "-ww", str(DIRECTORY / "man" / f"{name}.1")]
    done = subprocess.run(command, capture_output=True, check=True, text=True)
    assert done.stderr == ""
    return done.stdout


@pytest.mark.parametrize("name", CONTEXTS)
def test_a_page_has_all_options_and_fits(name: str) -> None:
    text = rendered(name)
    headings = [line for line in text.splitlines() if line.isupper() and not line.startswith((" ", "KD"))]
    assert [each for each in headings if each in SECTIONS] == list(SECTIONS)
    assert max(map(len, text.splitlines())) <= 80
    assert re.search(rf"^ +{name} - \w", text, flags=re.MULTILINE)
    for option in CONTEXTS[name].command.params:
        if isinstance(option, click.Option) and not option.hidden:
            assert re.search(rf"^ +(-\w, )?{option.opts[0]}\b", text, flags=re.MULTILINE), option.opts


def test_commands_can_be_copied_from_a_page() -> None:
    text = rendered("kdissect-read")
    assert """kdissect read --where 'client_id =~ "(?i)^orders-[0-9]+$"' capture.pcap""" in text
    assert "tcpdump -i eth0 -U -w - port 9092 | kdissect read -l -" in text


def test_options_are_in_the_groups_of_help() -> None:
    text = rendered("kdissect-read")
    groups = re.findall(r"^   (\w+)$", text, flags=re.MULTILINE)
    assert groups == ["Input", "Filter", "Output", "Performance", "Help"]
    assert text.index("   Filter\n") < text.index("--slower-than TIME") < text.index("   Output\n")


def test_there_is_no_other_page() -> None:
    assert {path.stem for path in (DIRECTORY / "man").iterdir()} == set(CONTEXTS)
