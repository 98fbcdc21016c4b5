from __future__ import annotations

import pytest

from kdissect.errors import Unsupported
from kdissect.kafka.layout import layout, split
from tests.kafka.decoding import message_of

MESSAGE = message_of("""\
# Two layouts of version 1.

Two 0-2, flexible 2+ =>
  old: int8                                 0-1
  second: int8                              2+ tag 1
  new: int8                                 1+
  first: int8                               2+ tag 0

draft 2.7-2.8 Two 2 =>
  early: int8
""")


def names(version: int) -> tuple[list[str], list[str]]:
    positional, tagged = split(layout(MESSAGE, version).fields, version)
    return [field.name for field in positional], [field.name for field in tagged]


def test_fields_of_a_version_in_wire_order() -> None:
    assert names(0) == (["old"], [])
    assert names(1) == (["old", "new"], [])
    assert names(2) == (["new"], ["first", "second"])


def test_a_layout_says_what_it_is() -> None:
    (draft,) = MESSAGE.drafts
    assert str(layout(MESSAGE, 1)) == "Two v1"
    assert str(layout(MESSAGE, 2, draft)) == "Two v2 of 2.7-2.8"
    assert layout(MESSAGE, 2).flexible
    assert not layout(MESSAGE, 2, draft).flexible
    assert [field.name for field in layout(MESSAGE, 2, draft).fields] == ["early"]


def test_versions_that_are_not_there() -> None:
    (draft,) = MESSAGE.drafts
    for version, of in ((3, None), (-1, None), (1, draft)):
        with pytest.raises(Unsupported, match=f"^Two has no version {version}$"):
            layout(MESSAGE, version, of)
