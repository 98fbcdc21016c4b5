"""Two values of an expression -> whether they compare, whatever their types may be. Holds nothing.

* A list stands for *any* of its elements: ``request.topics.name != "a"`` is true when one topic has another
  name, ``not request.topics.name == "a"`` when none has this one.
* A comparison with an absent value (None), or of values of different types, is false, ``!=`` included; only
  ``x == null`` and ``x != null`` tell absent from present. Arithmetic with one of these gives an absent
  value.
* ``in`` looks for an element of a list or for a part of a text; ``not in`` is its contrary where both are
  present.
* Alone, a value is true unless it is absent, false, 0, "" or a list of nothing but these.
* Numbers compare with numbers, texts with texts, true with false; bytes, structs and credentials with
  nothing.

Nothing here raises, and two long lists cost the sum of their lengths, not the product.
"""

from __future__ import annotations

import operator
from typing import TYPE_CHECKING, Any

from kdissect.model import Embedded

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    Search = Callable[[bytes], object | None]
    """Looks for a pattern in UTF-8; None: it is not there."""

MAX_MATCHED = 4096
"""Characters of a text that a regular expression is tried on; Kafka's own names end at 249."""

_TYPES = {bool: "boolean", int: "number", float: "number", str: "text"}


def is_true(value: Any) -> bool:
    """Whether a value that stands alone fulfils a condition."""
    return any(map(is_true, value)) if type(value) is list else bool(value)


def is_present(value: Any) -> bool:
    """``x != null``; of a list: whether any element is present."""
    return any(element is not None for element in value) if type(value) is list else value is not None


def is_absent(value: Any) -> bool:
    """``x == null``; of a list: whether any element is absent."""
    return any(element is None for element in value) if type(value) is list else value is None


def flat(values: Iterable[Any]) -> list[Any]:
    """One list of values and of the elements of lists among them."""
    found: list[Any] = []
    for value in values:
        if type(value) is list:
            found += value
        else:
            found.append(value)
    return found


def matches(value: Any, search: Search) -> bool:
    """``x =~ "pattern"``."""
    if type(value) is list:
        return any(matches(element, search) for element in value)
    return isinstance(value, str) and search(utf8(value[:MAX_MATCHED])) is not None


def utf8(text: str) -> bytes:
    """Encode a text; lone surrogates, as in the name of a file that is no UTF-8, become escapes."""
    return text.encode("utf-8", "backslashreplace")


def calculate(operation: Callable[[Any, Any], Any], left: Any, right: Any) -> Any:
    """``left + right`` and the like, for numbers; with one list: a list of the results."""
    if type(left) is list and type(right) is not list:
        return [calculate(operation, element, right) for element in left]
    if type(right) is list and type(left) is not list:
        return [calculate(operation, left, element) for element in right]
    if _TYPES.get(type(left)) != "number" or _TYPES.get(type(right)) != "number":
        return None
    try:
        return operation(left, right)
    except (ZeroDivisionError, OverflowError):
        return None


def _equal(left: Any, right: Any) -> bool:
    if type(left) is type(right) and type(left) is not list:
        return type(left) in _TYPES and bool(left == right)
    rights = {(_TYPES[type(element)], element) for element in _elements(right)}
    return any((_TYPES[type(element)], element) in rights for element in _elements(left))


def _ordering(compare: Callable[[Any, Any], Any]) -> Callable[[Any, Any], bool]:
    def ordered(left: Any, right: Any) -> bool:
        rights = _extremes(right) if type(right) is list else [right]
        lefts = left if type(left) is list else (left,)
        return any(
            _TYPES.get(type(x), "") == _TYPES.get(type(y)) and bool(compare(x, y))
            for x in lefts
            for y in rights
        )

    return ordered


def _extremes(values: list[Any]) -> list[Any]:
    """The least and the greatest of each type: what is below, above or unlike any is so for one of these."""
    sorts: dict[str, list[Any]] = {}
    for value in _elements(values):
        sorts.setdefault(_TYPES[type(value)], []).append(value)
    return [extreme(sort) for sort in sorts.values() for extreme in (min, max)]


def _elements(value: Any) -> list[Any]:
    """What can be compared, of a list or a single value."""
    return [element for element in (value if type(value) is list else [value]) if type(element) in _TYPES]


def _in(left: Any, right: Any) -> bool:
    if isinstance(right, str):
        return any(isinstance(part, str) and part in right for part in _elements(left))
    return type(right) is list and _equal(left, right)


def _not_in(left: Any, right: Any) -> bool:
    if left is None or not isinstance(right, str | list):
        return False
    return not _in(left, right)


def _length(value: Any) -> int | None:
    """Elements of a list, characters of a text, bytes of bytes and record data."""
    if isinstance(value, Embedded):
        value = value.data
    if type(value) in _TYPES or value is None or isinstance(value, tuple | dict):
        return len(value) if isinstance(value, str) else None
    return len(value)


def _lower(value: Any) -> Any:
    if type(value) is list:
        return [_lower(element) for element in value]
    return value.lower() if isinstance(value, str) else None


COMPARISONS: dict[str, Callable[[Any, Any], bool]] = {
    "==": _equal,
    "!=": _ordering(operator.ne),
    "<": _ordering(operator.lt),
    "<=": _ordering(operator.le),
    ">": _ordering(operator.gt),
    ">=": _ordering(operator.ge),
    "in": _in,
    "not in": _not_in,
}

FUNCTIONS: dict[str, Callable[[Any], Any]] = {"len": _length, "lower": _lower}
