"""Spark's log, its plans and its errors have no credential of a client and no secret of a key log."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from pyspark.errors import PySparkException

from kdissect.options import ExportOptions, Options
from kdissect.spark.decode import decode
from kdissect.tables.rows import TABLES
from tests.attack import client_messages
from tests.attack.test_credentials import PATHS, credentials, leaked, plain
from tests.captures import pcap

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

KEYS = Path("samples/tls.keys")
SASL = "kafka-4-sasl"


def key_log_secrets() -> set[bytes]:
    lines = [line.split() for line in KEYS.read_bytes().splitlines() if not line.startswith(b"#")]
    return {bytes.fromhex(secret.decode()) for _, _, secret in lines}


@pytest.mark.parametrize("decodes", [False, pytest.param(True, marks=pytest.mark.deep)])
def test_no_log_has_one(
    spark: SparkSession, spark_log: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str], *, decodes: bool
) -> None:
    captures = tmp_path / "captures"
    captures.mkdir()
    packets = client_messages.conversation().packets
    written = pcap((packet.time_ns, packet.data) for packet in packets)
    (captures / "written.pcap").write_bytes(written)
    (captures / "odd.pcap").write_bytes(written[:24] + b"\xff" * 16 + written[40:])
    (captures / "sasl.pcap").write_bytes(plain(PATHS[SASL]))
    (captures / "tls.pcap").write_bytes(Path("samples/tls.pcap").read_bytes())
    secrets = client_messages.SECRETS | credentials(PATHS[SASL]) | key_log_secrets()

    tables = tmp_path / "tables"
    if decodes:
        names = [str(path) for path in sorted(captures.iterdir())]
        export = ExportOptions(tables, "jsonl", tables=tuple(TABLES))
        decode(spark, names, export, Options(key_logs=(str(KEYS),)))
    frame = spark.read.format("kdissect").option("tlsKeylog", str(KEYS)).load(str(captures))
    frame.where("api = 'SaslAuthenticate'").explain(extended=True)
    rows = frame.collect() if decodes else []
    with pytest.raises(PySparkException) as failure:  # a task that fails with what it has
        frame.selectExpr("raise_error(string(request))").collect()
    outputs = capfd.readouterr()
    texts = {
        "log": spark_log.read_text(encoding="utf-8", errors="replace"),
        "terminal": outputs.out + outputs.err,
        "rows": repr(rows),
        "failure": str(failure.value),
        "tables": "".join(path.read_text() for path in tables.rglob("*") if path.is_file()),
    }
    assert {name: leaks for name, text in texts.items() if (leaks := leaked(text, secrets))} == {}
    assert "SaslAuthenticate" in texts["terminal"]
    assert (len(rows) > 100) == bool(texts["tables"]) == decodes
