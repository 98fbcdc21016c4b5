from __future__ import annotations

import io

import click
import pytest

from kdissect.cli.output_options import ExchangeOutput
from kdissect.sinks.lines import Count, Lines
from kdissect.sinks.rows import Rows
from kdissect.sinks.sink import Demand

NOTHING = dict.fromkeys(ExchangeOutput._fields, False) | {"times": None, "color": "never", "heading": None}


def exchange_output(**chosen: object) -> ExchangeOutput:
    return ExchangeOutput.take(NOTHING | chosen)


def test_output_options_are_removed_from_those_of_the_command() -> None:
    options = NOTHING | {"count": 3}
    assert ExchangeOutput.take(options) == exchange_output()
    assert options == {"count": 3}


@pytest.mark.parametrize(
    ("chosen", "kind"),
    [({}, Lines), ({"as_json": True}, Rows), ({"quiet": True}, Count)],
)
def test_the_sink_that_was_chosen(chosen: dict[str, bool], kind: type) -> None:
    out = io.TextIOWrapper(io.BytesIO())
    output = exchange_output(**chosen)
    query: object = None  # of which only trees and records want to know something
    sink = output.sink(out, output.time_formatter(out, None), query, Demand(), flush=False)  # type: ignore[arg-type]
    assert isinstance(sink, kind)


def test_options_that_exclude_each_other() -> None:
    with pytest.raises(click.UsageError, match="-V or -x and --json are mutually exclusive"):
        exchange_output(tree=True, as_json=True)
    with pytest.raises(click.UsageError, match="--csv and -w are mutually exclusive"):
        ExchangeOutput.take(NOTHING | {"as_csv": True}, {"-w": True})
    with pytest.raises(click.UsageError, match="--records needs -V, -x, --json or --csv"):
        exchange_output(with_records=True)
