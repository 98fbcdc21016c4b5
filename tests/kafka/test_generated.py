from __future__ import annotations

import linecache
import traceback

import pytest

from kdissect.kafka.decoder import FunctionSource


def test_lines_become_a_function_whose_source_is_known() -> None:
    source = FunctionSource("adding", {"one": 1}, ())
    with source.block("def add_one(number):"):
        source.line("return number + one")
    assert str(source) == "def add_one(number):\n    return number + one\n"
    add_one = source.function()
    assert add_one(2) == 3
    with pytest.raises(TypeError) as caught:
        add_one("x")
    assert "    return number + one\n" in "".join(traceback.format_exception(caught.value))
    linecache.checkcache()
    assert linecache.getline("<kdissect adding>", 2) == "    return number + one\n"


def test_names_are_given_once() -> None:
    source = FunctionSource("names", {"helper": None}, ("pos",))
    assert [source.name("topic") for _ in range(3)] == ["topic", "topic_2", "topic_3"]
    assert [source.name(name) for name in ("helper", "pos", "from", "from")] == [
        "helper_2",
        "pos_2",
        "from_",
        "from_2",
    ]


def test_long_displays_take_a_line_a_key() -> None:
    source = FunctionSource("display", {}, ())
    source.display("short", [("a", "1"), ("b", "2")])
    source.display("long", [("a" * 50, "1"), ("b" * 50, "2")])
    assert (
        str(source)
        == f"""\
short = {{"a": 1, "b": 2}}
long = {{
    "{"a" * 50}": 1,
    "{"b" * 50}": 2,
}}
"""
    )
