from __future__ import annotations

import gzip
import io

import pytest
import zstandard

from kdissect.tables.rows import TABLES
from kdissect.tables.table_files import COMPRESSIONS, JsonFormat
from tests.exchange_factory import exchange

TABLE = TABLES["exchanges"]


def written(compression: str, rows: int = 3) -> bytes:
    file = io.BytesIO()
    form = JsonFormat(compression)
    lines = form.open(file, form.columns(TABLE))
    for number in range(1, rows + 1):
        lines.feed(exchange(number=number))
    lines.flush()
    lines.close()
    assert not file.closed
    return file.getvalue()


def test_json_lines() -> None:
    lines = written("none").split(b"\n")
    assert len(lines) == 4
    assert lines[0].startswith(b'{"capture":"test.pcap","connection":"c0ffee","number":1,')
    assert lines[-1] == b""


def test_compressed() -> None:
    plain = written("none")
    assert gzip.decompress(written("gz")) == plain
    with zstandard.ZstdDecompressor().stream_reader(written("zst")) as reader:
        assert reader.read() == plain


@pytest.mark.parametrize("compression", COMPRESSIONS)
def test_the_same_rows_make_the_same_bytes(compression: str) -> None:
    assert written(compression) == written(compression)


@pytest.mark.parametrize("compression", COMPRESSIONS)
def test_no_rows(compression: str) -> None:
    data = written(compression, rows=0)
    assert data == b"" if compression == "none" else data


def test_file_names_show_the_compression() -> None:
    assert [JsonFormat(each).suffix for each in COMPRESSIONS] == [".jsonl", ".jsonl.gz", ".jsonl.zst"]
