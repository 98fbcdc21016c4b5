from __future__ import annotations

import json
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import pytest

from docs.generate import schema
from kdissect import Summary, dissect, open_capture, summarize
from kdissect.stats.summarizer import PARTS
from kdissect.tables.values import json_document


@dataclass
class Inner:
    """Something inside."""

    number: int | None = field(metadata={"description": "A number."})


@dataclass
class Outer:
    """A document."""

    when: datetime = field(metadata={"description": "A time."})
    inner: list[Inner] = field(metadata={"description": "Some."})
    counts: dict[str, float] = field(metadata={"description": "Counts."})


def test_each_dataclass_is_defined_once() -> None:
    from jsonschema import Draft202012Validator  # takes a second

    result = schema(Outer)
    assert result["title"] == "Outer"
    assert result["required"] == ["when", "inner", "counts"]
    assert result["properties"]["inner"]["items"] == {"$ref": "#/$defs/Inner"}
    assert result["$defs"]["Inner"]["properties"]["number"] == {
        "anyOf": [{"type": "integer"}, {"type": "null"}],
        "description": "A number.",
    }
    Draft202012Validator.check_schema(result)


def test_types_without_a_json_schema_are_rejected() -> None:
    @dataclass
    class Odd:
        """Has a set."""

        names: set[str] = field(metadata={"description": "Names."})

    with pytest.raises(TypeError):
        schema(Odd)


def test_the_schema_describes_the_output() -> None:
    import jsonschema

    value = Outer(datetime(2026, 11, 21, tzinfo=UTC), [Inner(3), Inner(None)], {"a": 1.5})
    written = json.loads(json_document(value))
    assert written["when"] == "2026-11-21T00:00:00Z"
    jsonschema.validate(written, schema(Outer))


@pytest.mark.parametrize("sample", ["quickstart", "kafka-4-basics"])
def test_every_summary_matches_its_schema(sample: str) -> None:
    import jsonschema

    with open_capture(f"samples/{sample}.pcap") as packets:
        result = summarize(
            dissect(packets), by=("partition", "group", "connection"), parts=PARTS, interval_s=1
        )
    written: dict[str, Any] = json.loads(json_document(result))
    jsonschema.validate(written, schema(Summary))
    del written["apis"][0]["versions"]
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(written, schema(Summary))
