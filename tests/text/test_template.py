from __future__ import annotations

import pytest

from kdissect.errors import UsageError
from kdissect.text.template import Template
from tests.record_batches import Item, batch
from tests.record_exchanges import fetch, opened, produce

ALL_BYTES = bytes(range(256))


def written(text: str, *items: Item, is_terminal: bool = False) -> bytes:
    out: list[bytes] = []
    template = Template(text, out.append, is_terminal=is_terminal)
    for record in opened(fetch(batch(list(items), base_offset=7), topic="orders")):
        template.feed(record)
    return b"".join(out)


def test_every_field() -> None:
    item = Item(b"key", b"value", ((b"a", b"1"), (b"b", None)))
    assert written("%t %p %o %k %s %K %S %h %%;", item) == b"orders 3 7 key value 3 5 a=1,b=NULL %;"
    assert written("%T", item).isdigit()


def test_escapes() -> None:
    assert written(r"%o\t\x00\xfFé\\n\n\r\0", Item()) == b"7\t\x00\xff\xc3\xa9\\n\n\r\0"


def test_bytes_are_exact() -> None:
    assert written("%s%k", Item(ALL_BYTES, ALL_BYTES)) == ALL_BYTES * 2
    assert written("%s\n", Item(b"k", b"\x1b[2J"), is_terminal=True) == b"\\x1b[2J\n"


def test_null_is_empty_with_a_length_of_minus_one() -> None:
    assert written("[%k %K %s %S]", Item(None, None), Item(b"", b"")) == b"[ -1  -1][ 0  0]"


def test_an_unknown_offset() -> None:
    out: list[bytes] = []
    (record,) = opened(produce(batch([Item(b"k", b"v")]), {"error_code": 3, "base_offset": -1}))
    Template("%o", out.append).feed(record)
    assert out == [b"-"]


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("%q", 'no field "%q"; known: %t topic, '),
        ("abc%", 'no field "%"; known: '),
        (r"\q", r'no escape "\q"; known: \n, '),
        (r"\x1", r'no escape "\x"; known: '),
    ],
)
def test_invalid(text: str, reason: str) -> None:
    with pytest.raises(UsageError) as caught:
        Template(text, len)
    assert str(caught.value).startswith(f"--template: {reason}")
