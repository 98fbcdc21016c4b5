"""The native core gives what Python gives, and takes what is usual.

tests/kafka/decoding.py compares the two in every test of decoding. These tests are about the core itself.
"""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

import pytest

from kdissect import core
from kdissect.exchanges import lending
from kdissect.exchanges.memory import MemoryPlan
from kdissect.kafka import schema
from kdissect.kafka.codes import uuid_text
from kdissect.kafka.compiler import decoder, generated_decoder, native_decoder
from kdissect.kafka.layout import layout
from kdissect.kafka.primitives import DecodeBudget
from kdissect.sinks.plan import (
    CommonPlan,
    Conditions,
    ConnectionPlan,
    LinePlan,
    RecordPlan,
    RowPlan,
    TallyPlan,
    WholePlan,
)
from tests.core import NEEDS_CORE
from tests.kafka.decoding import comparable, message_of, outcome
from tests.kafka.encoder import encoder
from tests.kafka.random_bodies import TIMES, all_messages, cases, random_body

if TYPE_CHECKING:
    from kdissect.kafka.compiler import Decoder
    from kdissect.kafka.schema import Message

pytestmark = NEEDS_CORE

PLANS = CommonPlan, LinePlan, RowPlan, RecordPlan, ConnectionPlan, TallyPlan, WholePlan, Conditions
MESSAGES = all_messages()
LEFT_TO_PYTHON = {"StreamsAssignmentInfo"}  # of Kafka Streams: text in UTF-16 and Java's own UTF-8


class LeftToPythonError(Exception):
    """Raised in place of decoding."""


def leave(*_: object) -> NoReturn:
    raise LeftToPythonError


def alone(message: Message, version: int = 0, *, large: bool = False) -> Decoder:
    """A decoder that raises where it would leave a body to Python."""
    decode = native_decoder(layout(message, version), leave, large=large)
    assert decode is not None
    return decode


@pytest.mark.parametrize("message", MESSAGES, ids=lambda message: message.name)
def test_the_core_takes_every_usual_body(message: Message) -> None:
    for case in cases([message]):
        decode = native_decoder(case.layout, leave)
        if decode is None:
            assert message.name in LEFT_TO_PYTHON
            continue
        for salt in range(2 * TIMES):
            raw = encoder(message, case.version, case.draft)(
                random_body(case.layout, case.random(f"core {salt}"))
            )
            expected = outcome(generated_decoder(message, case.version, case.draft), raw, 0)
            *_, met_null = expected
            if met_null:
                with pytest.raises(LeftToPythonError):
                    decode(raw, 0, DecodeBudget())
            else:
                assert outcome(decode, raw, 0) == expected


TEXT = message_of("# Text.\n\nText 0, flexible 0+ =>\n  text: string\n  [ids]: uuid\n  raw: bytes?\n")


@pytest.mark.parametrize(
    ("odd", "raw"),
    [
        ("text that is not UTF-8", b"\x02\xff\x01\0\0"),
        ("a surrogate", b"\x04\xed\xa0\x80\x01\0\0"),
        ("null where it is not legal", b"\0\x01\0\0"),
        ("a length past the end", b"\x0aab"),
        ("a count past the end", b"\x02a\xff\xff\xff\xff\x07\0\0"),
        ("a varint of six bytes", b"\x82\x80\x80\x80\x80\0a\x01\0\0"),
        ("no bytes", b""),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_the_core_leaves_what_is_odd(odd: str, raw: bytes) -> None:
    budget = DecodeBudget()
    left = budget.left
    with pytest.raises(LeftToPythonError):
        alone(TEXT)(raw, 0, budget)
    assert (budget.left, budget.met_null) == (left, False)
    assert outcome(decoder(TEXT, 0), raw, 0) == outcome(generated_decoder(TEXT, 0), raw, 0)


def test_the_core_leaves_what_exceeds_the_budget() -> None:
    raw = b"\x02a" + b"\x65" + bytes(16 * 100) + b"\0\0"
    needed = DecodeBudget()
    before = needed.left
    assert alone(TEXT)(raw, 0, needed) == (
        {"text": "a", "ids": [uuid_text(bytes(16))] * 100, "raw": None},
        len(raw),
    )
    cost = before - needed.left
    exact = DecodeBudget(cost)
    alone(TEXT)(raw, 0, exact)
    assert exact.left == 0
    with pytest.raises(LeftToPythonError):
        alone(TEXT)(raw, 0, DecodeBudget(cost - 1))


def test_text_of_large_messages_is_charged() -> None:
    raw = b"\x04\xc3\xa9z\x01\0\0"
    budget = DecodeBudget(1000)
    generated_decoder(TEXT, 0, large=True)(raw, 0, budget)
    own = DecodeBudget(1000)
    alone(TEXT, large=True)(raw, 0, own)
    assert own.left == budget.left == 1000 - 3 * 32


@pytest.mark.parametrize("position", [-1, 4, 2**70])
def test_positions_outside_the_buffer_are_left_to_python(position: int) -> None:
    with pytest.raises(LeftToPythonError):
        alone(TEXT)(b"\x01\x01\0", position, DecodeBudget())


def test_objects_that_are_no_bytes_are_left_to_python() -> None:
    raw = bytearray(b"\x02a\x01\0\0")
    with pytest.raises(LeftToPythonError):
        alone(TEXT)(raw, 0, DecodeBudget())  # type: ignore[arg-type]
    assert decoder(TEXT, 0)(raw, 0, DecodeBudget())[0]["text"] == "a"  # type: ignore[arg-type]


def test_values_have_the_types_that_python_gives_them() -> None:
    fetch = schema.response(1)
    assert fetch is not None
    for version in range(4, fetch.versions.last + 1):
        raw = encoder(fetch, version)(random_body(layout(fetch, version), cases([fetch])[0].random("types")))
        body, own = (make(fetch, version)(raw, 0, DecodeBudget())[0] for make in (generated_decoder, decoder))
        assert repr(own) == repr(body)
        assert comparable(own) == comparable(body)


# Turning it off


def python(*arguments: str, pure: bool) -> str:
    environment = {**os.environ, "KDISSECT_PURE": str(int(pure))}
    return subprocess.run(
        [sys.executable, *arguments], env=environment, capture_output=True, check=True, text=True, timeout=300
    ).stdout


def test_it_can_be_turned_off() -> None:
    core, pure = (python("-m", "kdissect", "--version", pure=pure) for pure in (False, True))
    assert (core.split()[-1], pure.split()[-1]) == ("(core)", "(pure)")


def test_a_core_of_another_commit_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    assert core._load() is core.native
    monkeypatch.setattr(core, "_INTERFACE", 0)
    assert core._load() is None


def test_the_stub_names_what_is_in_the_core() -> None:
    stub = ast.parse((Path(core.__file__).parent / "_core.pyi").read_text(encoding="utf-8"))
    assert names_in(stub.body) == {name for name in dir(core.native) if not name.startswith("_")}
    for node in stub.body:
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
            kind = getattr(core.native, node.name)
            assert names_in(node.body) == {name for name in dir(kind) if not name.startswith("_")}, node.name


def test_named_tuples_have_the_same_fields_in_both_languages() -> None:
    text = (Path(core.__file__).parent.parent / "core" / "src" / "python" / "state.rs").read_text("utf-8")
    crossing = re.findall(
        r'^    "([\w.]+)": (\w+)(?: as "(\w+)")? \{(.*?)^    \}', text, re.MULTILINE | re.DOTALL
    )
    assert len(crossing) >= 10
    for module, name, other_name, fields in crossing:
        kind = getattr(import_module(module), other_name or name)
        assert tuple(re.findall(r"^ *(\w+):", fields, re.MULTILINE)) == kind._fields


def names_in(body: list[ast.stmt]) -> set[str]:
    """What statements define, without what is private."""
    functions = {each.name for each in body if isinstance(each, ast.FunctionDef | ast.ClassDef)}
    values = {
        each.target.id
        for each in body
        if isinstance(each, ast.AnnAssign) and isinstance(each.target, ast.Name)
    }
    return {name for name in functions | values if not name.startswith("_")}


def test_the_stub_says_why_the_core_calls_python() -> None:
    """Each function in what it gets at the start is in the list of the stub's docstring."""
    stub = ast.get_docstring(
        ast.parse((Path(core.__file__).parent / "_core.pyi").read_text(encoding="utf-8"))
    )
    assert stub is not None
    listed = {
        f"{form}.{name}"
        for line in stub.splitlines()
        if line.startswith("* ")
        for form, names in re.findall(r"``(\w+)\.([\w`, ]+?)``(?=: |, ``\w+\.)", line)
        for name in names.replace("``", "").split(", ")
    }
    forms = (lending._Callbacks, *PLANS, MemoryPlan)
    callables = {
        f"{form.__name__}.{name}"
        for form in forms
        for name, kind in form.__annotations__.items()
        if re.search(r"Callable|PartitionTest", str(kind))
    }
    assert callables == listed
