from __future__ import annotations

from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner

from kdissect.cli.spark import target_options
from kdissect.spark.session import SparkTarget


def taken(*arguments: str) -> tuple[SparkTarget, Path | None] | str:
    """The values of the options, or the error."""
    values: list[Any] = []

    @click.command()
    @target_options.spark_options
    def command(**options: Any) -> None:
        values.append(target_options.take(options))
        assert options == {}

    done = CliRunner().invoke(command, arguments)
    return values[0] if values else done.output


@pytest.fixture(autouse=True)
def nowhere(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SPARK_REMOTE", raising=False)


def test_where_it_runs() -> None:
    assert taken() == (SparkTarget(), None)
    assert taken("--master", "yarn", "--log", "x.log") == (SparkTarget("yarn"), Path("x.log"))
    assert taken("--conf", "spark.a=b=c", "--conf", "spark.d=") == (
        SparkTarget(conf={"spark.a": "b=c", "spark.d": ""}), None
    )  # fmt: skip
    assert taken("--remote", "sc://h") == (SparkTarget(remote="sc://h"), None)


def test_a_server_that_the_environment_names(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPARK_REMOTE", "sc://host:1")
    assert taken() == (SparkTarget(remote="sc://host:1"), None)
    assert taken("--master", "local[2]") == (SparkTarget("local[2]"), None)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--master", "yarn", "--remote", "sc://h"], "--master and --remote are mutually exclusive"),
        (["--remote", "host:15002"], 'invalid Spark Connect server "host:15002": use sc://HOST:PORT'),
        (["--conf", "spark.a"], 'invalid Spark setting "spark.a": use spark.NAME=VALUE'),
    ],
)
def test_mistakes(arguments: list[str], message: str) -> None:
    assert message in taken(*arguments)
