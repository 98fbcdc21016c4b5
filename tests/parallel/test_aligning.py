from __future__ import annotations

from io import StringIO
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from hypothesis import given
from hypothesis import strategies as st

from kdissect.parallel.aligning import SEAM, Aligned, Texts
from kdissect.parallel.worker import Page, Text
from kdissect.text.style import Times
from kdissect.text.table import Table
from tests.made_exchanges import connection, exchange

if TYPE_CHECKING:
    from kdissect.model import Exchange

OUT: Any = SimpleNamespace(encoding="utf-8", errors="backslashreplace", isatty=lambda: False)
CLIENTS = st.sampled_from(["a", "a client", "a client whose name is long", "客户端", "x" * 30])
ADDRESSES = st.sampled_from(["10.0.0.5", "192.168.100.200", "fd00::1:2:3"])
ROWS = st.lists(st.tuples(st.integers(0, 2), CLIENTS, ADDRESSES, st.booleans()), max_size=12)


def line_maker() -> Text:
    page: Any = Page(OUT)
    table = Table(page, Times("ud"), gap=SEAM)
    return Text(lambda _: True, page, table.feed, table)


def rows(told: list[tuple[int, str, str, bool]]) -> list[tuple[int, Exchange]]:
    """Of which worker, and what."""
    return [
        (
            worker,
            exchange(
                "Metadata",
                9,
                {},
                {} if is_answered else None,
                client_id=client,
                connection=connection(ip, ip),
            ),
        )
        for worker, client, ip, is_answered in told
    ]


@given(ROWS, st.data())
def test_columns_are_as_wide_as_if_one_process_had_made_the_lines(
    told: list[tuple[int, str, str, bool]], data: st.DataObject
) -> None:
    given_ = rows(told)
    alone = StringIO()
    table = Table(alone, Times("ud"))
    for _, each in given_:
        table.feed(each)

    written = bytearray()
    together = Aligned(written.extend, line_maker().form)
    makers = [line_maker() for _ in range(3)]
    waiting: list[Any] = []

    def take() -> None:
        then = together.form
        together.take([made if form == then else together.dated(made, form) for made, form in waiting])
        waiting.clear()

    for worker, each in given_:
        maker = makers[worker]
        waiting.append((maker.feed(each), maker.form))
        if data.draw(st.booleans()):  # the parent takes what there is, and some hear of it
            take()
            for each_maker in makers:
                if data.draw(st.booleans()):
                    each_maker.form = together.form
    take()
    assert written.decode() == alone.getvalue()


def test_lines_that_were_made_later_than_they_are_shown_are_no_wider_than_they_must_be() -> None:
    written = bytearray()
    together = Aligned(written.extend, (2, 2))
    together.take([(2, [(b"t\x1fabcd\x1fx   \x1fmore\nt\x1fa   \x1fxyz \n", (4, 4))])])
    assert written == b"t  abcd  x   more\nt  a     xyz\n"
    assert together.form == (4, 3)


def test_what_needs_no_alignment_is_written_as_it_is_but_for_what_all_have_in_front() -> None:
    written = bytearray()
    texts = Texts(written.extend, skip=1)
    texts.take([(1, b"\none\n"), (2, [(b"\ntwo\n", None), (b"\nthree\n", None)])])
    texts.take([(1, b"\nfour\n")])
    assert written == b"one\n\ntwo\n\nthree\n\nfour\n"
    assert texts.dated((1, b"x"), None) == (1, b"x")
