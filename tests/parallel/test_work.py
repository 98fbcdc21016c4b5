from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from kdissect.parallel.aligning import SEAM
from kdissect.parallel.worker import Page, Text
from kdissect.tables.lines import JsonLines
from kdissect.text.style import Times
from kdissect.text.table import Table
from tests.made_exchanges import exchange

OUT: Any = SimpleNamespace(encoding="ascii", errors="backslashreplace", isatty=lambda: False)


def page() -> Any:
    return Page(OUT)


def test_a_page_gives_away_texts_as_stdout_would_write_them_and_bytes_as_they_are() -> None:
    texts, pieces = page(), page()
    texts.write("caf\u00e9\n")
    pieces.buffer.write(b"a")
    pieces.buffer.write(b"b")
    assert (texts.take(), texts.take()) == (b"caf\\xe9\n", b"")
    assert (pieces.take(), pieces.take()) == (b"ab", b"")


def test_what_a_sink_holds_is_written_first() -> None:
    out = page()
    lines = JsonLines(out.buffer.write)
    out.flush = lines.close
    made = Text(lambda _: True, out, lines.feed).feed(exchange())
    assert made[0] == 1
    assert made[1].startswith(b'{"capture"')


def test_nothing_is_made_of_what_was_not_asked_for() -> None:
    assert Text(lambda _: False, page(), lambda _: None).feed(exchange()) is None


def test_rows_count_for_what_they_stand_for_and_can_be_told_apart_where_the_output_may_be_cut() -> None:
    for cuts, expected in ((False, (5, b"twothree")), (True, (5, [(b"two", None), (b"three", None)]))):
        out = page()
        work = Text(lambda _: True, out, out.write, rows=lambda _: [(2, "two"), (3, "three")], cuts=cuts)
        made = work.feed(exchange())
        assert made == expected


def test_a_line_that_needs_wider_columns_says_so_until_they_are_agreed_on() -> None:
    out = page()
    table = Table(out, Times("ud"), gap=SEAM)
    work = Text(lambda _: True, out, table.feed, table)
    plain, wide = (
        exchange("Metadata", 9, {}, {}, client_id=client) for client in ("a", "a client with a long name")
    )
    agreed = work.form
    assert isinstance(work.feed(plain)[1], bytes)
    (_, form), *_ = work.feed(wide)[1]
    assert form > agreed
    assert not isinstance(work.feed(plain)[1], bytes)
    work.form = form
    assert isinstance(work.feed(plain)[1], bytes)
    assert work.form == form


def test_at_the_end_it_tells_what_it_is_asked_to() -> None:
    assert Text(lambda _: True, page(), print).end() is None
    assert Text(lambda _: True, page(), print, end=lambda: 7).end() == 7
