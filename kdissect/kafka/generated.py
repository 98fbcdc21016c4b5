"""Lines of Python -> a function, with its source where tracebacks, debuggers and ``inspect`` look for it.

Generated code lives in memory only, under a pseudo file name such as ``<kdissect FetchResponse v13
decoder>``.
"""

from __future__ import annotations

import linecache
from contextlib import contextmanager
from keyword import iskeyword
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

_WIDTH = 100


class Source:
    """The text of one function in the making.

    Attributes:
        namespace: what the function sees as its globals.
    """

    __slots__ = ("_depth", "_file", "_lines", "_names", "namespace")

    def __init__(self, title: str, namespace: Mapping[str, Any], reserved: Iterable[str]) -> None:
        self._file = f"<kdissect {title}>"
        self.namespace = dict(namespace)
        self._lines: list[str] = []
        self._depth = 0
        self._names = {*namespace, *reserved}

    def __str__(self) -> str:
        return "\n".join(self._lines) + "\n"

    def line(self, text: str) -> None:
        """Add a line at the present depth."""
        self._lines.append(" " * 4 * self._depth + text)

    @contextmanager
    def block(self, head: str) -> Iterator[None]:
        """Add a line that ends in a colon; what is added inside the ``with`` is indented below it."""
        self.line(head)
        self._depth += 1
        yield
        self._depth -= 1

    def name(self, wanted: str) -> str:
        """A variable that nothing else in this function uses, named as wanted if that is free."""
        name = f"{wanted}_" if iskeyword(wanted) else wanted
        number = 2
        while name in self._names:
            name = f"{wanted}_{number}"
            number += 1
        self._names.add(name)
        return name

    def display(self, variable: str, items: Iterable[tuple[str, str]]) -> None:
        """Add ``variable = {...}``, a dict display of (key, expression), over several lines if it is long."""
        pairs = [f'"{key}": {expression}' for key, expression in items]
        one_line = f"{variable} = {{{', '.join(pairs)}}}"
        if 4 * self._depth + len(one_line) <= _WIDTH:
            self.line(one_line)
            return
        with self.block(f"{variable} = {{"):
            for pair in pairs:
                self.line(f"{pair},")
        self.line("}")

    def function(self) -> Callable[..., Any]:
        """Compile the text and hand out the one function that it defines."""
        text = str(self)
        known = set(self.namespace)
        exec(compile(text, self._file, "exec"), self.namespace)
        linecache.cache[self._file] = (len(text), None, text.splitlines(keepends=True), self._file)
        (name,) = self.namespace.keys() - known - {"__builtins__"}
        made: Callable[..., Any] = self.namespace[name]
        return made
