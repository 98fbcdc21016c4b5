from __future__ import annotations

from io import BytesIO, TextIOWrapper
from types import SimpleNamespace
from typing import Any

from kdissect.runs.worker import Page, Text, Texts
from kdissect.sinks.records import RecordRows
from kdissect.sinks.rows import Rows
from kdissect.sinks.sink import Each
from kdissect.tables.lines import JsonLines
from tests.exchange_factory import exchange

OUT: Any = SimpleNamespace(encoding="ascii", errors="backslashreplace", isatty=lambda: False)


class Source:
    """Two batches."""

    def of(self, _: Any) -> Any:
        raise NotImplementedError

    def batches(self, _: Any) -> Any:
        return [["t", "wo"], ["th", "re", "e"]]

    def result(self) -> int:
        return 7

    def add(self, _: Any) -> None:
        raise NotImplementedError


def page() -> Any:
    return Page(OUT)


def test_a_page_encodes_strings_as_stdout_does_and_keeps_bytes() -> None:
    texts, pieces = page(), page()
    texts.write("caf\u00e9\n")
    pieces.buffer.write(b"a")
    pieces.buffer.write(b"b")
    assert (texts.take(), texts.take()) == (b"caf\\xe9\n", b"")
    assert (pieces.take(), pieces.take()) == (b"ab", b"")


def test_a_sink_is_flushed_before_its_text_is_taken() -> None:
    out = page()
    lines = JsonLines(out.buffer.write)
    out.flush = lines.close
    output: Any = Text(Rows(lines), out).feed(exchange())
    assert output[0] == 1
    assert output[1].startswith(b'{"capture"')


def test_exchanges_that_are_not_selected_have_no_output() -> None:
    skipped: list[int] = []
    sink = Each(print, skip=lambda each: skipped.append(each.number))
    assert Text(sink, page(), lambda _: False).feed(exchange()) is None
    assert skipped == [exchange().number]


def test_rows_have_weights_and_their_texts_are_kept_apart_on_request() -> None:
    for per_row, expected in ((False, (5, b"twothree")), (True, (5, [b"two", b"three"]))):
        out = page()
        sink = RecordRows(
            Source(), lambda batch, out=out: out.write("".join(batch)), out.flush, by_batch=True
        )
        assert Text(sink, out, per_row=per_row).feed(exchange()) == expected


def test_texts_are_written_unchanged_but_for_the_first_separator() -> None:
    written = BytesIO()
    texts = Texts(TextIOWrapper(written), skip=1)
    texts.take([(1, b"\none\n"), (2, [b"\ntwo\n", b"\nthree\n"])])
    texts.take([(1, b"\nfour\n")])
    assert written.getvalue() == b"one\n\ntwo\n\nthree\n\nfour\n"


def test_the_end_is_the_part_of_the_sink() -> None:
    assert Text(Each(print), page()).end() == (0, None)
    assert Text(RecordRows(Source(), print, print, by_batch=True), page()).end() == (0, 7)
