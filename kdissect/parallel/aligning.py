"""Lines of several workers -> the same lines, each with the column widths that one process would have had.

Columns grow with what they show, and a worker does not know what the others' lines show. So between the cells
of a line stands ``SEAM``; lines are made with the widths that were agreed on last, and where a line did not
fit, it is sent with the widths it was made with. What was made with other widths than those that hold when
its turn comes is set anew. Widths are agreed on within a few lines as a rule; then nothing is set twice.
Holds the widths.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from kdissect.phrases import columns_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

SEAM = "\x1f"
"""Stands between cells; sinks escape it where it is part of a text."""

_SEAM = SEAM.encode()
_GAP = b"  "

Made = tuple[int, "bytes | list[tuple[bytes, Any]]"]
"""Rows, and their text; where that is not to be taken as it is: pieces of it, each with its widths."""


class Grows(Protocol):
    """A sink of lines whose columns grow."""

    @property
    def widths(self) -> list[int]:
        """As they are now."""

    def widen(self, widths: Sequence[int]) -> None:
        """Let them be at least so."""


class Texts:
    """Texts that need no alignment, for who writes them.

    Args:
        write: takes bytes.
        skip: bytes that all of them have in front, and the first has not.

    Attributes:
        form: nothing is to be agreed on.
    """

    form: Any = None

    def __init__(self, write: Callable[[bytes], object], skip: int = 0) -> None:
        self._write = write
        self._skip = skip

    def dated(self, made: Made | None, _form: Any) -> Made | None:
        """The same: it does not depend on what others made."""
        return made

    def take(self, made: Sequence[Made]) -> None:
        """Write them."""
        texts = [
            data if isinstance(data, bytes) else b"".join([piece for piece, _ in data]) for _, data in made
        ]
        text = b"".join(texts)
        if self._skip and text:
            text, self._skip = text[self._skip :], 0
        self._write(text)


class Aligned(Texts):
    """The same, of lines with cells.

    Attributes:
        form: the widths that hold.
    """

    def __init__(self, write: Callable[[bytes], object], widths: Sequence[int]) -> None:
        super().__init__(write)
        self.form: tuple[int, ...] = tuple(widths)

    def dated(self, made: Made | None, form: tuple[int, ...]) -> Made | None:
        """What was made when these widths were agreed on; they may hold no more when its turn comes."""
        if made is None or not isinstance(made[1], bytes):
            return made
        return made[0], [(made[1], form)]

    def take(self, made: Sequence[Made]) -> None:
        """Write them."""
        texts = [data for _, data in made]
        try:
            text = b"".join(texts)  # type: ignore[arg-type]  # which tells whether any is none
        except TypeError:
            text = b"".join(self._pieces(texts))
        self._write(text.replace(_SEAM, _GAP))

    def _pieces(self, texts: Sequence[bytes | list[tuple[bytes, Any]]]) -> Iterator[bytes]:
        then = self.form
        for text in texts:
            for piece, form in ((text, then),) if isinstance(text, bytes) else text:
                yield piece if form == self.form else self._set(piece, form)

    def _set(self, text: bytes, form: tuple[int, ...]) -> bytes:
        return b"".join(self._line(line, form) + b"\n" for line in text.split(b"\n")[:-1])

    def _line(self, line: bytes, form: tuple[int, ...]) -> bytes:
        time, *cells = line.split(_SEAM)
        for index, (had, has) in enumerate(zip(form, self.form, strict=True)):
            cell = cells[index]
            if had > has:  # than one process knows so far
                text = cell.rstrip(b" ")
                has = min(had, max(has, columns_of(text.decode(errors="replace"))))
                cells[index] = cell[: max(len(text), len(cell) + has - had)]
                self.form = (*self.form[:index], has, *self.form[index + 1 :])
            else:
                cells[index] = cell + b" " * (has - had)
        return _SEAM.join([time, *cells]).rstrip(b" ")
