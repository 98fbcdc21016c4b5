from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import click
import pytest

from kdissect.cli.run import end, open_run, take_query
from kdissect.sinks.sink import Each
from tests.cli.commands import capture_bytes, talk

if TYPE_CHECKING:
    from pathlib import Path

    from kdissect.model import Exchange
    from kdissect.runs.run import Run


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


def apis(run: Run, **how: Any) -> list[str]:
    seen: list[str] = []
    run.into(Each(lambda exchange: seen.append(exchange.api or "?")), **how)
    return seen


def test_query_options_are_removed_from_those_of_the_command(capture: str) -> None:
    arguments = options(files=(capture,), also_files=("first.pcap",), api=("Heartbeat",), count=3)
    query = take_query(arguments)
    assert arguments == {"count": 3}
    assert query.paths == ("first.pcap", capture)
    assert query.options.criteria["api"] == ("Heartbeat",)


def test_no_file_is_a_usage_error() -> None:
    with pytest.raises(click.UsageError, match="no FILE given; use - for stdin"):
        take_query(options())


def test_all_or_selected_exchanges(capture: str) -> None:
    with open_run(take_query(options(files=(capture,))), bar=never) as run:
        assert apis(run) == ["Metadata", "Heartbeat", "Heartbeat", "Heartbeat"]
        assert run.complete
    with open_run(take_query(options(files=(capture,), api=("Metadata",))), bar=never) as run:
        unmatched: list[int | None] = []
        run.into(Each(never, skip=lambda exchange: unmatched.append(exchange.api_key)))
        assert (run.shown, unmatched) == (1, [12, 12, 12])


def test_one_exchange_by_name(capture: str) -> None:
    with open_run(take_query(options(files=(capture,))), bar=never) as run:
        connection = next(iter(run.dissection)).connection.id
    query = take_query(options(files=(capture,), exchanges=((connection, 1),)))
    with open_run(query, bar=never) as run:
        assert apis(run) == ["Metadata"]


def test_a_limited_run_is_not_complete(capture: str) -> None:
    with open_run(take_query(options(files=(capture,))), bar=never) as run:
        assert apis(run, max_rows=2) == ["Metadata", "Heartbeat"]
        assert not run.complete
        end(run, "exchange")  # nobody interrupted it


def test_interrupted(capture: str, capsys: pytest.CaptureFixture[str]) -> None:
    def press(_: Exchange) -> None:
        raise KeyboardInterrupt

    with open_run(take_query(options(files=(capture,))), bar=never) as run:
        run.into(Each(never, check=press))
        assert not run.complete
        with pytest.raises(click.exceptions.Exit) as stop:
            end(run, "row")
    assert stop.value.exit_code == 130
    assert "1 row shown" in capsys.readouterr().err


@pytest.mark.parametrize(("flush", "flushed"), [(True, [1, 2, 3, 4]), (False, [1])])
def test_the_first_row_is_flushed_and_all_if_requested(
    capture: str, monkeypatch: pytest.MonkeyPatch, flush: bool, flushed: list[int]
) -> None:
    rows: list[int] = []
    with open_run(take_query(options(files=(capture,))), bar=never) as run:
        sink = Each(never)
        monkeypatch.setattr(run, "out", SimpleNamespace(flush=lambda: rows.append(sink.rows)))
        run.into(sink, flush=flush)
    assert rows == flushed
