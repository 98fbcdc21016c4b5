from __future__ import annotations

import os
import re
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from kdissect.cli.config_file import CONFIG_VARIABLE, PROFILE_VARIABLE
from kdissect.cli.terminal import OK, USAGE
from tests.cli.commands import run, spawn, talk, write

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.cli.commands import Run

    Configured = Callable[..., Run]

PAGE = Path("docs/config.md").read_text(encoding="utf-8")


@pytest.fixture
def configured(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Configured:
    """Run a command with a configuration file in the usual place."""
    capture = write(tmp_path / "talk.pcap", talk())
    monkeypatch.delenv(CONFIG_VARIABLE)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))

    def with_file(text: str, command: str) -> Run:
        directory = tmp_path / "kdissect"
        directory.mkdir(exist_ok=True)
        (directory / "config.toml").write_text(text)
        return run(capsys, *command.replace("{file}", capture).split())

    return with_file


def test_no_test_reads_the_file_of_its_user() -> None:
    assert os.environ[CONFIG_VARIABLE] == os.devnull


def test_values_are_defaults(configured: Configured) -> None:
    assert len(configured("", "read {file}").lines) == 4
    config = '[defaults]\napi = "Heartbeat"\n[read]\ncount = 2\n'
    assert len(configured(config, "read {file}").lines) == 2
    assert len(configured(config, "read -c 1 {file}").lines) == 1
    assert "Heartbeat" not in configured(config, "read --api Metadata {file}").out


@pytest.mark.parametrize(
    ("config", "shown"),
    [
        ('[read]\napi = ["Metadata"]', {"Metadata"}),
        ('[defaults]\napi = "Metadata"\n[read]\napi = "Heartbeat"', {"Heartbeat"}),
        ("[read]\nport = [9092, 9093]", {"Metadata", "Heartbeat"}),
        ("[read]\nport = 1", set()),
        ("[read]\nsince = 2030-01-01T00:00:00Z", set()),
        ('[read]\nfields = "api"', {"Metadata", "Heartbeat"}),
        ("[read]\ncsv = false\njson = true", {"Metadata", "Heartbeat"}),
        ("[read]\ncount = 1", {"Metadata"}),
        ('[summary]\nby = "nonsense"', {"Metadata", "Heartbeat"}),
        ('[defaults]\nmaster = "of Spark"', {"Metadata", "Heartbeat"}),
    ],
)
def test_kinds_of_values(config: str, shown: set[str], configured: Configured) -> None:
    done = configured(config, "read {file}")
    assert done.status == OK
    assert set(re.findall("Metadata|Heartbeat", done.out)) == shown


def test_a_profile_takes_precedence(configured: Configured, monkeypatch: pytest.MonkeyPatch) -> None:
    config = '[read]\napi = "Metadata"\ncount = 9\n[profiles.beats.defaults]\napi = "Heartbeat"\n'
    assert {line.split()[4] for line in configured(config, "read {file}").lines} == {"Metadata"}
    assert "Metadata" not in configured(config, "read --profile beats {file}").out
    monkeypatch.setenv(PROFILE_VARIABLE, "beats")
    assert "Heartbeat" in configured(config, "read {file}").out


def test_another_file(configured: Configured, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    other = tmp_path / "other.toml"
    other.write_text("[read]\ncount = 1\n")
    assert len(configured("[read]\ncount = 2\n", f"read --config {other} {{file}}").lines) == 1
    monkeypatch.setenv(CONFIG_VARIABLE, str(other))
    assert len(configured("[read]\ncount = 2\n", "read {file}").lines) == 1
    monkeypatch.setenv(CONFIG_VARIABLE, os.devnull)
    assert len(configured("[read]\ncount = 2\n", "read {file}").lines) == 4


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ("[read]\ncuont = 1", '[read] unknown key "cuont"; did you mean "count"?'),
        ("[read]\nc = 1", '[read] unknown key "c"; did you mean "count"?'),
        ('[defaults]\ncolour = "never"', '[defaults] unknown key "colour"; did you mean "color"?'),
        ("[raed]", 'unknown table [raed]; did you mean "read"?'),
        ("[profiles.prod.raed]", 'unknown table [profiles.prod.raed]; did you mean "read"?'),
        ("color = 1", "color is not a table; keys belong in tables such as [defaults]"),
        ("[read]\njson = 1", "[read] json must be true or false"),
        ("[read]\ncount = true", "[read] count must be a string or a number"),
        ("[read]\ncount = [1, 2]", "[read] count must be a string or a number"),
        ("[read]\ncount = 0", "Invalid value for '-c' / '--count': invalid number \"0\": use 1 or more"),
        ('[read]\nlimits = ["x=1"]', "Invalid value for '--limits': unknown limit"),
        ('[colors]\nerror = "rde"', '[colors] error: unknown color "rde"; did you mean "red"?'),
        ('[colors]\neror = "red"', '[colors] unknown key "eror"; did you mean "error"?'),
        ('[hosts]\nweb-1 = "10.0.0.1"', '[hosts] invalid address "web-1": use 10.0.0.5'),
        ('[hosts]\n"10.0.0.1" = 1', '[hosts] "10.0.0.1" must be a string'),
        ("[read", "Expected ']'"),
    ],
)
def test_a_mistake_in_the_file_is_one_line(config: str, message: str, configured: Configured) -> None:
    check_mistake(config, "read {file}", f"{{config}}: {message}", configured)


@pytest.mark.parametrize(
    ("config", "command", "message"),
    [
        (
            "[profiles.prod.read]\njsn = true",
            "read --profile prod {file}",
            '{config}: [profiles.prod.read] unknown key "jsn"; did you mean "json"?',
        ),
        (
            "[spark.reprot]",
            "spark report x",
            '{config}: unknown table [spark.reprot]; did you mean "report"?',
        ),
        ("", "read --profile x {file}", '{config}: no profile "x"'),
        (
            "[profiles.prod]",
            "read --profile prdo {file}",
            '{config}: no profile "prdo"; did you mean "prod"?',
        ),
        ("", "read --config /dev/null/x {file}", "/dev/null/x: Not a directory"),
        ("", "read --config /no/file {file}", "/no/file: No such file or directory"),
        ('[summary]\nby = "x"', "config show", '{config}: [summary] by: cannot group by "x"; known: api'),
        (
            "[profiles.a.check]\nfail = 1",
            "config show",
            "{config}: [profiles.a.check] fail must be true or false",
        ),
        ("", "config show raed", 'unknown command "raed"; did you mean "read"?'),
    ],
)
def test_a_mistake_that_another_command_finds(
    config: str, command: str, message: str, configured: Configured
) -> None:
    check_mistake(config, command, message, configured)


def check_mistake(config: str, command: str, message: str, configured: Configured) -> None:
    failed = configured(config, command)
    assert (failed.status, failed.out) == (USAGE, "")
    path = Path(os.environ["XDG_CONFIG_HOME"], "kdissect", "config.toml")
    assert failed.err.startswith(f"kdissect: {message.replace('{config}', str(path))}")
    assert failed.err.count("\n") == 1


HOSTS = """
[hosts]
"10.0.0.1" = "web-1"
"10.0.0.2:9092" = "broker-1"
"""


@pytest.mark.parametrize(
    ("command", "is_named"),
    [
        ("read {file}", True),
        ("read -V {file}", True),
        ("read -j 2 {file}", True),
        ("summary {file}", True),
        ("summary --connections {file}", True),
        ("story client:* {file}", True),
        ("story client:* --diagram {file}", True),
        ("read --json {file}", False),
        ("read --csv {file}", False),
        ("read -e client_ip,broker_ip {file}", False),
        ("summary --json {file}", False),
    ],
)
def test_names_of_hosts_are_for_people(command: str, is_named: bool, configured: Configured) -> None:
    addresses, named = configured("", command), configured(HOSTS, command)
    assert addresses.status == named.status == OK
    assert "10.0.0.2" in addresses.out
    if is_named:
        expected = addresses.out.replace("10.0.0.2:9092", "broker-1").replace("10.0.0.1", "web-1")
        assert named.out.split() == expected.split()
    else:
        assert named.out == addresses.out


def test_colors(configured: Configured) -> None:
    def colored(config: str, command: str = "read") -> str:
        return configured(config, f"{command} --color always {{file}}").out

    usual = colored("")
    assert "\x1b[33mpending" in usual
    other = colored('[colors]\nfaint = "bright_blue"\nwarning = ""')
    assert "\x1b[mpending" in other
    assert "\x1b[2mLEADER_NOT_AVAILABLE\x1b[0m" in usual
    assert "\x1b[94mLEADER_NOT_AVAILABLE\x1b[0m" in other
    assert "\x1b[1;32mCapture" in colored('[colors]\nheading = "bold green"', "summary")
    assert "\x1b" not in configured('[colors]\nerror = "magenta"', "read {file}").out


def test_help_works_with_a_wrong_file(configured: Configured) -> None:
    assert configured("[read", "read --help").status == OK
    assert configured("[read", "read --help-all").status == OK


def test_the_example(configured: Configured, tmp_path: Path) -> None:
    example, shown = re.findall("```(?:toml)?\n(.*?)```", PAGE, flags=re.DOTALL)
    assert example == Path("docs/config.toml").read_text(encoding="utf-8")
    command, _, expected = shown.partition("\n")
    done = configured(example, command.removeprefix("$ kdissect "))
    assert done.status == OK
    path = str(tmp_path / "kdissect" / "config.toml")
    assert done.out.replace(path, "/home/me/.config/kdissect/config.toml") == expected


def test_all_options_of_a_command(configured: Configured) -> None:
    lines = configured("[defaults]\ncolor = 'never'\n", "config show read").lines
    assert any(re.fullmatch(r"color +never +\[defaults\]", line) for line in lines)
    assert any(re.fullmatch(r"count +- +default", line) for line in lines)


def test_completion_does_not_read_it(
    configured: Configured, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("_KDISSECT_COMPLETE", "bash_complete")
    monkeypatch.setenv("COMP_WORDS", "kdissect read --col")
    monkeypatch.setenv("COMP_CWORD", "2")
    with pytest.raises(SystemExit):
        configured("[read", "")
    assert "--color" in capsys.readouterr().out


def test_without_a_file_nothing_is_parsed(tmp_path: Path) -> None:
    environment = {**os.environ, "PYTHONPROFILEIMPORTTIME": "1", "XDG_CONFIG_HOME": str(tmp_path)}
    del environment[CONFIG_VARIABLE]
    with spawn("apis", "Fetch", env=environment) as running:
        _, err = running.communicate()
    assert b"config_file" in err
    assert b"tomllib" not in err
