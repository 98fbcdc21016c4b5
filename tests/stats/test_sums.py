"""What joins as it is declared; what is not declared is refused."""

from __future__ import annotations

import importlib
import pickle
import pkgutil
from collections import Counter
from functools import reduce
from typing import TYPE_CHECKING, Any

import pytest

from kdissect import stats
from kdissect.stats import sums
from kdissect.stats.quantiles import Distinct
from kdissect.stats.sums import Summed, join, summed

if TYPE_CHECKING:
    from collections.abc import Iterator

for module in pkgutil.walk_packages(stats.__path__, f"{stats.__name__}."):
    importlib.import_module(module.name)


def kinds_of(kind: type[Summed]) -> Iterator[type[Summed]]:
    for each in kind.__subclasses__():
        yield each
        yield from kinds_of(each)


SUMMED = sorted(
    {
        each
        for each in kinds_of(Summed)
        if each.__module__.startswith("kdissect.") and "declared" in vars(each)
    },
    key=lambda each: (each.__module__, each.__name__),
)


@summed
class Count(Summed):
    number: int = sums.total()
    by_name: Counter[str] = sums.total(Counter)
    everything: list[int] = sums.total(list)
    first_ns: int | None = sums.earliest()
    last_ns: int | None = sums.latest()
    most: int = sums.largest()
    is_known: bool = sums.either(False)
    names: Distinct | None = sums.merged(Distinct)
    nothing: Distinct | None = sums.merged(lambda: None)
    tables: dict[str, Any] = sums.merged_by_name()
    parameter: int = sums.own()

    def __init__(self, parameter: int = 0) -> None:
        Summed.__init__(self)
        self.tables = {"table": Distinct()}
        self.parameter = parameter

    def see(self, number: int) -> Count:
        self.number += number
        self.by_name[str(number)] += 1
        self.everything.append(number)
        self.first_ns = sums.earlier(self.first_ns, number)
        self.last_ns = sums.later(self.last_ns, number)
        self.most = max(self.most, number)
        self.is_known = True
        assert self.names is not None
        self.names.add(str(number))
        self.tables["table"].add(str(number))
        return self

    @property
    def state(self) -> tuple[object, ...]:
        assert self.names is not None
        return (
            *(self.number, self.by_name, sorted(self.everything), self.first_ns, self.last_ns, self.most),
            *(
                self.is_known,
                self.names.first(9),
                self.nothing,
                self.tables["table"].first(9),
                self.parameter,
            ),
        )


@summed
class More(Count):
    more: int = sums.total()


def both(one: Count, other: Count) -> Count:
    built: Count = pickle.loads(pickle.dumps(one))
    built.merge(pickle.loads(pickle.dumps(other)))
    return built


def test_parts_add_up_in_any_order_and_nothing_changes_nothing() -> None:
    parts = [Count().see(7), Count().see(3).see(7), Count(), Count().see(1)]
    everything = Count().see(7).see(3).see(7).see(1).state
    assert reduce(both, parts).state == everything
    assert reduce(both, reversed(parts)).state == everything
    assert both(both(parts[0], parts[1]), both(parts[2], parts[3])).state == everything


def test_values_that_can_change_are_of_one_instance() -> None:
    Count().see(7)
    assert Count().state == (0, Counter(), [], None, None, 0, False, [], None, [], 0)


def test_what_is_own_stays() -> None:
    assert both(Count(parameter=1), Count(parameter=2)).parameter == 1


def test_of_a_subclass_the_part_of_the_base_class_can_be_taken() -> None:
    more = More()
    more.more = 1
    join(more, Count().see(3), Count)
    assert (more.more, more.number) == (1, 3)


@pytest.mark.parametrize("kind", SUMMED, ids=lambda kind: f"{kind.__module__}.{kind.__name__}")
def test_an_attribute_that_declares_nothing_is_refused(kind: type[Summed]) -> None:
    with pytest.raises(TypeError, match=r"Forgetful\.forgotten does not declare"):
        summed(type(kind)("Forgetful", (kind,), {"__annotations__": {"forgotten": "int"}}))
    assert kind.__dictoffset__ == 0, "an attribute could be set that is not declared"


def test_a_class_that_is_not_summed_is_refused() -> None:
    class Undeclared(Count):
        pass

    with pytest.raises(KeyError):
        Undeclared()


def test_an_attribute_cannot_be_set_that_is_not_declared() -> None:
    with pytest.raises(AttributeError):
        Count().forgotten = 1  # type: ignore[attr-defined]
