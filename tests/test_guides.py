"""The commands of docs/first-steps.md, docs/sharing.md and docs/tasks.md, and the examples of docs/python.md:
each works on the samples and shows something.
"""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from kdissect.cli.terminal import OK
from tests.cli.commands import run

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).parent.parent
GUIDES = ("first-steps", "sharing", "tasks")


def commands(guide: str) -> Iterator[tuple[str, str]]:
    """Commands, and what the page shows of their output."""
    page = (ROOT / f"docs/{guide}.md").read_text(encoding="utf-8")
    for block, output in re.findall(
        r"^```sh\n(.*?)^```\n(?:\n```text\n(.*?)^```$)?", page, re.MULTILINE | re.DOTALL
    ):
        *others, last = block.splitlines()
        yield from ((each, "") for each in others)
        yield last, output


COMMANDS = [each for guide in GUIDES for each in commands(guide)]


def test_the_guides_have_commands() -> None:
    assert len(COMMANDS) > 35
    assert any(output for _, output in COMMANDS)


@pytest.mark.parametrize(("command", "output"), COMMANDS)
def test_each_shows_something(
    command: str,
    output: str,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    (tmp_path / "samples").symlink_to(ROOT / "samples")
    monkeypatch.chdir(tmp_path)
    program, *arguments = shlex.split(command)
    done = run(capsys, *arguments)
    assert (program, done.status) == ("kdissect", OK)
    assert done.out or len(list(tmp_path.iterdir())) > 1
    assert not re.search("no match|None of|no findings", done.out + done.err)
    if output:
        assert done.out == output


def test_examples_in_python_work(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """One after the other, as a reader would run them."""
    monkeypatch.chdir(ROOT)
    page = (ROOT / "docs/python.md").read_text(encoding="utf-8")
    examples = re.findall(r"^```python\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    assert len(examples) > 5
    names: dict[str, object] = {}
    for example in examples:
        exec(compile(example, "docs/python.md", "exec"), names)
        assert capsys.readouterr().out, example
