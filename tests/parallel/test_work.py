from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from kdissect.parallel.worker import Page, Text, Texts
from kdissect.tables.lines import JsonLines
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
    output = Text(lambda _: True, out, lines.feed).feed(exchange())
    assert output[0] == 1
    assert output[1].startswith(b'{"capture"')


def test_nothing_is_made_of_what_was_not_asked_for() -> None:
    assert Text(lambda _: False, page(), lambda _: None).feed(exchange()) is None


def test_rows_count_for_what_they_stand_for_and_can_be_told_apart_where_the_output_may_be_cut() -> None:
    for per_row, expected in ((False, (5, b"twothree")), (True, (5, [b"two", b"three"]))):
        out = page()
        work = Text(
            lambda _: True, out, out.write, rows=lambda _: [(2, "two"), (3, "three")], per_row=per_row
        )
        output = work.feed(exchange())
        assert output == expected


def test_texts_are_written_as_they_are_but_for_what_all_have_in_front() -> None:
    written = bytearray()
    texts = Texts(written.extend, skip=1)
    texts.take([(1, b"\none\n"), (2, [b"\ntwo\n", b"\nthree\n"])])
    texts.take([(1, b"\nfour\n")])
    assert written == b"one\n\ntwo\n\nthree\n\nfour\n"


def test_at_the_end_it_tells_what_it_is_asked_to() -> None:
    assert Text(lambda _: True, page(), print).end() is None
    assert Text(lambda _: True, page(), print, end=lambda: 7).end() == 7
