from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click
import pytest

from kdissect.cli.run import Query, SingleRun, open_run
from tests.cli.commands import capture_bytes, talk

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


def never(_: object) -> bool:
    return False


def options(**arguments: Any) -> dict[str, Any]:
    defaults = {"files": (), "also_files": (), "decode_as": (), "ports": ()}
    return {**defaults, "show_secrets": False, "no_progress": True, **arguments}


@pytest.fixture
def capture(tmp_path: Path) -> str:
    path = tmp_path / "talk.pcap"
    path.write_bytes(capture_bytes(talk()))
    return str(path)


def apis(run: SingleRun, **how: Any) -> list[str]:
    seen: list[str] = []
    run.show(run.selected(), lambda exchange: seen.append(exchange.api or "?"), **how)
    return seen


def test_query_options_are_removed_from_those_of_the_command(capture: str) -> None:
    arguments = options(files=(capture,), also_files=("first.pcap",), api=("Heartbeat",), count=3)
    query = Query.take(arguments)
    assert arguments == {"count": 3}
    assert query.paths == ("first.pcap", capture)
    assert query.options.criteria["api"] == ("Heartbeat",)


def test_no_file_is_a_usage_error() -> None:
    with pytest.raises(click.UsageError, match="no FILE given; use - for stdin"):
        Query.take(options())


def test_all_or_selected_exchanges(capture: str) -> None:
    with open_run(Query.take(options(files=(capture,))), bar=never) as run:
        assert apis(run) == ["Metadata", "Heartbeat", "Heartbeat", "Heartbeat"]
        assert run.complete
    with open_run(Query.take(options(files=(capture,), api=("Metadata",))), bar=never) as run:
        unmatched: list[int | None] = []
        run.show(run.selected(lambda exchange: unmatched.append(exchange.api_key)), never)
        assert (run.shown, unmatched) == (1, [12, 12, 12])


def test_one_exchange_by_name(capture: str) -> None:
    with open_run(Query.take(options(files=(capture,))), bar=never) as run:
        connection = next(run.selected()).connection.id
    query = Query.take(options(files=(capture,), exchanges=((connection, 1),)))
    with open_run(query, bar=never) as run:
        assert apis(run) == ["Metadata"]


def test_a_limited_run_is_not_complete(capture: str) -> None:
    with open_run(Query.take(options(files=(capture,))), bar=never) as run:
        assert apis(run, max_rows=2) == ["Metadata", "Heartbeat"]
        assert not run.complete
        run.end("exchange")  # nobody interrupted it


def test_interrupted(capture: str, capsys: pytest.CaptureFixture[str]) -> None:
    def rows() -> Iterator[int]:
        yield 1
        raise KeyboardInterrupt

    with open_run(Query.take(options(files=(capture,))), bar=never) as run:
        run.show(rows(), never)
        assert not run.complete
        with pytest.raises(click.exceptions.Exit) as stop:
            run.end("row")
    assert stop.value.exit_code == 130
    assert "1 row shown" in capsys.readouterr().err
