"""What a worker makes of exchanges, for the sinks of ``read`` and ``records``: texts. Holds what the sink
does.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from typing import TextIO

    from kdissect.analysis.over import Over
    from kdissect.model import Exchange
    from kdissect.parallel.aligning import Grows, Made


class Page:
    """Stands for stdout: takes what a sink writes, and gives it away as bytes.

    Attributes:
        flush: has the sink write what it holds.
    """

    def __init__(self, out: TextIO) -> None:
        self.flush: Callable[[], object] = int
        self._texts: list[str] = []
        self._pieces: list[bytes] = []
        self._encoding = out.encoding
        self._errors = out.errors or "strict"
        self.write = self._texts.append
        self.buffer = _Buffer(self._pieces.append)
        self.isatty = out.isatty

    def take(self) -> bytes:
        """Give away what was written: texts, or bytes; no sink writes both."""
        self.flush()
        texts, pieces = self._texts, self._pieces
        if texts:
            text = texts.pop() if len(texts) == 1 else "".join(texts)
            texts.clear()
            return text.encode(self._encoding, self._errors)
        data = b"".join(pieces)
        pieces.clear()
        return data


class _Buffer:
    def __init__(self, write: Callable[[bytes], object]) -> None:
        self.write = write


class Selected:
    """Work on those exchanges that were asked for.

    Args:
        takes: whether an exchange was; told of all.
    """

    form: Any = None

    def __init__(self, takes: Callable[[Exchange], bool]) -> None:
        self._takes = takes

    def feed(self, exchange: Exchange) -> Any:
        """What is made of it; None: nothing."""
        return self.make(exchange) if self._takes(exchange) else None

    def make(self, exchange: Exchange) -> Any:
        """What is made of one that was asked for."""
        raise NotImplementedError

    def over(self, _over: Over) -> Any:
        """Nothing is made of the end of a connection."""

    def end(self) -> Any:
        """What is left at the end of it all."""


class Text(Selected):
    """Rows of a sink as text.

    Args:
        takes: whether an exchange was asked for.
        page: what the sink writes to.
        feed: the sink's.
        grows: the sink, where its columns grow.
        rows: makes the rows of an exchange: each with how many it counts for; None: the exchange is one.
        cuts: whether the output may be cut behind any row.
        end: tells what else there is to tell at the end.
    """

    def __init__(
        self,
        takes: Callable[[Exchange], bool],
        page: Page,
        feed: Callable[[Any], object],
        grows: Grows | None = None,
        rows: Callable[[Exchange], Iterable[tuple[int, Any]]] | None = None,
        *,
        cuts: bool = False,
        end: Callable[[], Any] | None = None,
    ) -> None:
        super().__init__(takes)
        self._end = end
        self._page = page
        self._feed = feed
        self._grows = grows
        self._rows = rows
        self._cuts = cuts
        self._agreed: list[int] = [] if grows is None else list(grows.widths)

    @property
    def form(self) -> Any:
        """The widths agreed on."""
        return None if self._grows is None else tuple(self._agreed)

    @form.setter
    def form(self, widths: Any) -> None:
        if self._grows is not None and widths != tuple(self._agreed):
            self._agreed = list(widths)
            self._grows.widen(widths)

    def make(self, exchange: Exchange) -> Made | None:
        """The text of its rows; None where it has none."""
        grows = self._grows
        if self._rows is None:
            self._feed(exchange)
            text = self._page.take()
            if grows is None or grows.widths == self._agreed:
                return 1, text
            return 1, [(text, tuple(grows.widths))]
        count = 0
        pieces: list[tuple[bytes, Any]] = []
        for stands_for, row in self._rows(exchange):
            count += stands_for
            self._feed(row)
            if self._cuts or grows is not None:
                pieces.append((self._page.take(), grows and tuple(grows.widths)))
        if not count:
            return None
        if self._cuts or (grows is not None and grows.widths != self._agreed):
            return count, pieces
        return count, self._page.take() + b"".join([piece for piece, _ in pieces])

    def end(self) -> Any:
        """What else there is to tell."""
        return None if self._end is None else self._end()
