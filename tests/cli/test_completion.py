"""TAB in a real bash, and the words that the scripts of all shells get."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pexpect
import pytest

from tests.cli.commands import run

if TYPE_CHECKING:
    from collections.abc import Iterator

BIN = str(Path(sys.executable).parent)  # where kdissect is installed
PROMPT = "READY> "


@pytest.fixture(scope="module")
def bash(tmp_path_factory: pytest.TempPathFactory) -> Iterator[pexpect.spawn]:
    directory = tmp_path_factory.mktemp("captures")
    (directory / "orders.pcap").touch()
    environment = {**os.environ, "PATH": f"{BIN}:{os.environ['PATH']}", "PS1": PROMPT, "TERM": "dumb"}
    shell = pexpect.spawn(
        "bash",
        ["--norc", "--noprofile"],
        cwd=str(directory),
        env=environment,
        encoding="utf-8",
        dimensions=(50, 200),
        timeout=60,
    )
    shell.expect_exact(PROMPT)
    shell.sendline(
        "bind 'set completion-ignore-case on'; bind 'set bell-style none'; bind 'set page-completions off'"
    )
    shell.expect_exact(PROMPT)
    shell.sendline('eval "$(kdissect completion bash)"')
    shell.expect_exact(PROMPT)
    yield shell
    shell.close(force=True)


@pytest.mark.parametrize(
    ("typed", "completed"),
    [
        ("kdissect rec", "kdissect records "),
        ("kdissect read --slo", "kdissect read --slower-than "),
        ("kdissect read --api Heartb", "kdissect read --api Heartbeat "),
        ("kdissect read --error NOT_LEADER_OR", "kdissect read --error NOT_LEADER_OR_FOLLOWER "),
        ("kdissect read -e time,latency_", "kdissect read -e time,latency_us "),
        ("kdissect read -e response.throttle", "kdissect read -e response.throttle_time_ms "),
        ("kdissect read -Y broker_po", "kdissect read -Y broker_port "),
        ("kdissect read --color al", "kdissect read --color always "),
        ("kdissect read ord", "kdissect read orders.pcap "),
        ("kdissect spark dec", "kdissect spark decode "),
    ],
)
def test_tab_in_bash(bash: pexpect.spawn, typed: str, completed: str) -> None:
    bash.send(f"{typed}\t")
    bash.expect_exact(completed)
    bash.sendcontrol("u")
    bash.sendline("echo")
    bash.expect_exact(PROMPT)


def test_tab_lists_the_commands_and_no_help(bash: pexpect.spawn) -> None:
    bash.send("kdissect \t\t")
    bash.expect_exact("summary")
    assert "Usage" not in bash.before
    bash.sendcontrol("u")
    bash.sendline("echo")
    bash.expect_exact(PROMPT)


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_words_of_every_shell(shell: str, capsys: pytest.CaptureFixture[str]) -> None:
    script = run(capsys, "completion", shell).out
    assert f"_KDISSECT_COMPLETE={shell}_complete" in script
    words = {"bash": ("kdissect read --api Prod", "3"), "zsh": ("kdissect read --api Prod", "3")}
    line, word = words.get(shell, ("kdissect read --api", "Prod"))
    done = subprocess.run(
        [f"{BIN}/kdissect"],
        env={**os.environ, "_KDISSECT_COMPLETE": f"{shell}_complete", "COMP_WORDS": line, "COMP_CWORD": word},
        capture_output=True,
        check=True,
        text=True,
    )
    assert "Produce" in done.stdout
    assert done.stderr == ""
