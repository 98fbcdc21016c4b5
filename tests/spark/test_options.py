from __future__ import annotations

import re
from pathlib import Path

import pytest

from kdissect.errors import UsageError
from kdissect.limits import SECOND_NS
from kdissect.query.filters import DAY_NS
from kdissect.spark.options import FAILFAST, OPTIONS, parse


def test_no_options_is_all_exchanges_with_credentials_redacted() -> None:
    parsed = parse({})
    assert (parsed.table, parsed.split, parsed.show_secrets, parsed.is_filtered) == (
        "exchanges", "auto", False, False,
    )  # fmt: skip


def test_case_and_separators_in_names_of_options_do_not_matter() -> None:
    for name in ("slowerThan", "slowerthan", "slower-than", "SLOWER_THAN"):
        assert parse({name: "50ms"}).criteria == {"slower_than": ("50ms",)}


def test_every_option_takes_a_value() -> None:
    values = {
        "path": "a.pcap", "paths": '["b.pcap", "c"]', "table": "Partitions", "bodies": "none",
        "api": "Fetch, 0",
        "topic": "orders-*,x", "partition": "orders:3", "client": '["a,b"]', "group": "g", "error": "*",
        "kind": "orphan", "slowerThan": "1s", "biggerThan": "1KB",
        "since": "2026-11-20", "until": "2026-11-23", "connection": "ab", "where": "latency_us > 5",
        "ports": "9092,9192", "decodeAs": "9093", "showSecrets": "True", "limits": "connections=5,notices=7",
        "split": "files", "tasks": "3", "lookback": "0", "filesPerTask": "2", "batchRows": "10",
        "batchBytes": "1MiB", "pushdown": "true", "names": "window", "maxFilesPerTrigger": "4",
        "includeLast": "true", "failOnDataLoss": "false", "ring": "^[a-z]+", "maxFileAge": "2d",
        "tlsKeylog": "keys.log", "pathGlobFilter": "*.{gz,zst}", "recursiveFileLookup": "true",
        "modifiedAfter": "2026-11-21T09:05:00", "modifiedBefore": "2026-11-22", "mode": "FAILFAST",
        "columnNameOfCorruptRecord": "_corrupt",
        "cluster": "east",
    }  # fmt: skip
    assert values.keys() == OPTIONS.keys()
    parsed = parse(values)
    here = Path.cwd()
    assert parsed.paths == tuple(str(here / name) for name in ("a.pcap", "b.pcap", "c"))
    assert parsed.key_logs == (str(here / "keys.log"),)
    assert parsed.criteria["api"] == ("Fetch", "0")
    assert parsed.criteria["client"] == ("a,b",)
    assert parsed.criteria["since"] == ("2026-11-20",)
    assert (parsed.ports, parsed.kafka_ports) == ({9092, 9192}, {9093})
    assert (parsed.limits.connections, parsed.limits.notices) == (5, 7)
    assert (parsed.table, parsed.split, parsed.tasks, parsed.lookback, parsed.max_files) == (
        "partitions", "files", 3, 0, 4,
    )  # fmt: skip
    assert (parsed.name_globs, parsed.recursive) == (("*.gz", "*.zst"), True)
    assert (parsed.modified_before_ns or 0) - (parsed.modified_after_ns or 0) == (
        14 * 60 + 55
    ) * 60 * SECOND_NS
    assert parsed.mode == FAILFAST
    assert parsed.corrupt_column == "_corrupt"
    assert parsed.ring is not None
    assert (parsed.ring.pattern, parsed.max_file_age_ns) == ("^[a-z]+", 2 * DAY_NS)
    assert (parsed.show_secrets, parsed.pushdown, parsed.include_last, parsed.fail_on_data_loss) == (
        True, True, True, False,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"tabel": "x"}, 'unknown option "tabel"; did you mean "table"?; known: api, batchBytes'),
        ({"header": "true"}, 'unknown option "header"'),
        ({"modifiedAfter": "09:05:00"}, 'option modifiedAfter: "09:05:00" has no date'),
        ({"option.table": "x", "provider": "kdissect"}, "use CREATE TEMPORARY VIEW ... USING kdissect"),
        ({"table": "exchange"}, 'option table: "exchange" is not one of exchanges, '),
        ({"api": "Fetsch"}, 'unknown API "Fetsch"; did you mean "Fetch"?'),
        ({"where": "latencies > 5"}, 'option where: no column "latencies"'),
        ({"pushdown": "yes"}, 'option pushdown: invalid value "yes": use true or false'),
        ({"tasks": "0"}, 'option tasks: invalid count "0": use 1 or more'),
        ({"lookback": "one"}, 'option lookback: invalid count "one": use 0 or more'),
        ({"batchBytes": "many"}, 'option batchBytes: invalid size "many": use '),
        ({"ports": "kafka"}, 'option ports: invalid port "kafka": use '),
        ({"limits": "conections=5"}, 'option limits: unknown limit "conections"'),
        ({"path": "dbfs:/captures"}, "option path: dbfs:/captures is a URL"),
        ({"path": "s3a://key:secret@bucket/captures"}, "option path: credentials do not belong in a URL"),
        ({"paths": "no json"}, "option paths: "),
        ({"since": "tomorrow"}, '"tomorrow"'),
        ({"ring": "("}, 'option ring: "(" is not a regular expression: missing )'),
        ({"maxFileAge": "7"}, 'option maxFileAge: invalid duration "7": use '),
    ],
)
def test_invalid_values_are_reported_in_one_line(options: dict[str, str], message: str) -> None:
    with pytest.raises(UsageError, match=re.escape(message)) as error:
        parse(options)
    assert "\n" not in str(error.value)


def test_files_may_be_named_as_addresses() -> None:
    for text in ("file:/data/x", "file:///data/x", "/data/x"):
        assert parse({"path": text}).paths == ("/data/x",)
    assert parse({"path": "s3a://bucket/*.pcap"}).paths == ("s3://bucket/*.pcap",)


def test_facts_of_other_connections_are_needed_if_shown_or_filtered_by() -> None:
    assert parse({}).needs_facts(["api", "topics"])
    assert not parse({}).needs_facts(["api", "request"])
    assert parse({"topic": "orders"}).needs_facts(["api"])
    assert not parse({"api": "Fetch"}).needs_facts(["api"])
