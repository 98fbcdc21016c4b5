from __future__ import annotations

from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kdissect.names import ENTRY_BYTES, NAME_BYTES, Recent, entries, kept
from kdissect.phrases import TopicId
from kdissect.query.filters import NameTest
from kdissect.query.where import COMPARISONS
from kdissect.stats.quantiles import Bounded, Distinct, Largest, Quantiles
from tests.exchange_factory import exchange

LONG = "n" * 32_000
WIDE = "\U0001f600" * 8_000


class Pair(NamedTuple):
    one: str
    number: int


def test_of_a_long_name_the_beginning_and_a_hash_are_kept() -> None:
    assert kept(LONG) == "n" * 1000 + "...59461a7b"
    assert kept("\U0001f600" * 300) == "\U0001f600" * 250 + "...54c6e513"
    assert kept("a" + "\U0001f600" * 300).startswith("a" + "\U0001f600" * 249 + "...")  # cut at a character
    assert kept("\udcff" * 400).startswith("\udcff" * 333 + "...")


@pytest.mark.parametrize("name", ["", "orders", "t" * 249, "n" * 1024, "\U0001f600" * 256, TopicId("x" * 22)])
def test_a_short_name_is_kept_as_it_is(name: str) -> None:
    assert kept(name) is name


@given(st.text(min_size=200), st.text(min_size=200))
def test_equal_names_stay_equal_and_others_distinct(one: str, other: str) -> None:
    one, other = one * 10, other * 10
    assert len(kept(one).encode(errors="surrogatepass")) <= NAME_BYTES
    assert kept(kept(one)) == kept(one)
    assert (kept(one) == kept(other)) == (one == other)


def test_names_inside_a_tuple_are_kept_too() -> None:
    pair, plain = Pair(LONG, 7), (LONG, ("t", 3), None)
    assert kept(pair) == Pair(kept(LONG), 7)
    assert isinstance(kept(pair), Pair)
    assert kept(plain) == (kept(LONG), ("t", 3), None)
    short = Pair("a", 1)
    assert kept(short) is short
    assert kept(7) == 7


def test_long_names_and_lists_count_as_several_entries() -> None:
    assert entries("orders") == entries(("group", "orders", 3)) == entries(Pair("orders", 3)) == 1
    assert entries("n" * 1011) == 1 + 1060 // ENTRY_BYTES
    assert entries("\U0001f600" * 250) > 4
    assert entries(("group", ("a", "b", "c"))) == 4
    assert entries(("group", Pair("a", 1))) == 1


def test_a_table_of_recent_names_counts_entries() -> None:
    table: Recent[str, str] = Recent(10)
    for number in range(20):
        table.keep(f"{number}{LONG}", "value")
    assert [key[:2] for key in table] == ["18", "19"]
    assert table.forgotten == 18
    assert table.find(f"19{LONG}") == "value"
    table.keep(f"18{LONG}", "again")
    assert next(iter(table))[:2] == "19"
    table.pop(f"18{LONG}")
    table.pop("unknown")
    assert len(table) == 1
    for number in range(5):
        table.keep(str(number), "value")
    assert len(table) == 6


def test_a_bounded_table_finds_a_long_name_by_all_of_it() -> None:
    table: Bounded[tuple[str, int], Quantiles] = Bounded(20, Quantiles)
    for number in range(20):
        table[f"{number}{LONG}", 3].add(number)
        table[f"{number}{LONG}", 3].add(number)
    assert len(table) == 4
    assert [each.count for each in table.values()] == [2, 2, 2, 2]
    assert table.other is not None
    assert table.other.count == 32
    assert table.pop((f"0{LONG}", 3)).count == 2
    assert table.pop(("unknown", 3)) is None
    table["short", 1].add(1)
    assert len(table) == 4
    table.rename({"short": LONG})
    assert (kept(LONG), 1) in table


def test_distinct_names_are_counted_in_bounded_memory() -> None:
    names = Distinct()
    for number in range(1000):
        names.add(f"{number:04}{WIDE}")
    assert len(names) == pytest.approx(1000, rel=0.06)
    assert len(names.first(1000)) < 25
    names.add(f"0000{WIDE}")
    assert names.first(1) == [kept(f"0000{WIDE}")]


def test_the_largest_items_have_short_names() -> None:
    largest = Largest(3)
    largest.add(1, exchange(), lambda: Pair(LONG, 1))
    assert largest.all() == [Pair(kept(LONG), 1)]


@pytest.mark.parametrize("text", [LONG, kept(LONG), "n*", f"orders,{LONG}"])
def test_filters_compare_names_as_tables_keep_them(text: str) -> None:
    is_name = NameTest([text])
    assert is_name(LONG)
    assert is_name(kept(LONG))
    assert not is_name(f"m{LONG}")


def test_a_long_name_can_be_excluded() -> None:
    assert not NameTest([f"!{LONG}"])(kept(LONG))
    assert not NameTest([f"!{kept(LONG)}"])(LONG)


@pytest.mark.parametrize("left", [LONG, [LONG, "a"]])
@pytest.mark.parametrize("right", [LONG, kept(LONG), ["b", kept(LONG)]])
def test_expressions_do_too(left: object, right: object) -> None:
    assert COMPARISONS["=="](left, right)
    assert not COMPARISONS["=="](f"{LONG}m", right)
    assert not COMPARISONS["!="](LONG, kept(LONG))
    assert COMPARISONS["!="](LONG, f"{LONG}m")
