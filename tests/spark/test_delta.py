"""All tables in Delta, by an environment of its own: Delta follows Spark's releases months later.

``DELTA`` names a virtual environment with kdissect and the version of Spark that Delta supports, and in its
directory ``jars`` those of delta-spark with what it needs. ``.ci/run long`` makes one.
"""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from samples.golden import ROOT
from tests.spark.conftest import QUICK_JAVA

SAMPLES = [str(ROOT / "samples" / f"{name}.pcap") for name in ("quickstart", "kafka-4-basics")]
JOB = """
import sys
from pyspark.sql import SparkSession
import kdissect.spark
from kdissect.tables.rows import TABLES

out, captures, ring = sys.argv[1], sys.argv[2:4], sys.argv[4]
builder = SparkSession.builder.master("local[2]").config("spark.sql.shuffle.partitions", "2")
builder = builder.config("spark.sql.extensions", "io.delta.sql.DeltaSparkSessionExtension")
builder = builder.config("spark.sql.catalog.spark_catalog", "org.apache.spark.sql.delta.catalog.DeltaCatalog")
spark = builder.config("spark.jars", sys.argv[5]).getOrCreate()
kdissect.spark.register(spark)

def table(name):
    return spark.read.format("delta").load(f"{out}/{name}")

with kdissect.spark.frames(spark, captures, tuple(TABLES)) as frames:
    for name, frame in frames.items():
        writer = frame.write.format("delta").partitionBy("date")
        writer.save(f"{out}/{name}")
        assert table(name).count() == frame.count(), name
        assert table(name).schema[0].metadata == frame.schema[0].metadata, name
    exchanges = frames["exchanges"]
    assert exchanges.count()
    exchanges.createOrReplaceTempView("more")
    merge = (
        f"merge into delta.`{out}/exchanges` as known using more "
        "on known.connection = more.connection and known.number = more.number "
        "when not matched then insert *"
    )
    assert spark.sql(merge).first().num_inserted_rows == 0
    spark.sql(f"delete from delta.`{out}/exchanges` where api = 'Metadata'")
    assert spark.sql(merge).first().num_inserted_rows == exchanges.where("api = 'Metadata'").count() > 0

with kdissect.spark.frames(spark, captures, ["exchanges"], variant=True, api="Produce") as frames:
    frames["exchanges"].write.format("delta").save(f"{out}/variant")
    assert dict(table("variant").dtypes)["request"] == "variant"
    acks = table("variant").selectExpr("variant_get(request, '$.acks', 'int') as acks").distinct()
    assert {row.acks for row in acks.collect()} <= {-1, 0, 1}

stream = spark.readStream.format("kdissect").option("includeLast", "true").load(ring)
stream = stream.writeStream.format("delta").option("checkpointLocation", f"{out}/checkpoint")
stream.trigger(availableNow=True).start(f"{out}/stream").awaitTermination(300)
assert table("stream").count() == spark.read.format("kdissect").load(ring).count() > 0
print("written", table("exchanges").count())
"""


@pytest.mark.deep
def test_tables_in_delta(tmp_path: Path) -> None:
    if not (home := os.environ.get("DELTA")):
        pytest.skip("needs an environment with Delta, and its path in DELTA")
    python = Path(home, "bin", "python")
    jars = ",".join(str(path) for path in Path(home, "jars").glob("*.jar"))
    (tmp_path / "ring").mkdir()
    (tmp_path / "ring" / "a.pcap").write_bytes(Path(SAMPLES[0]).read_bytes())
    done = subprocess.run(
        [python, "-c", JOB, str(tmp_path / "out"), *SAMPLES, str(tmp_path / "ring"), jars],
        cwd=tmp_path,
        env={
            **os.environ,
            "PYTHONPATH": os.pathsep.join([*filter(None, [os.environ.get("PYTHONPATH")]), str(ROOT)]),
            "SPARK_LOCAL_IP": "127.0.0.1",
            "JDK_JAVA_OPTIONS": QUICK_JAVA,
            "PYSPARK_PYTHON": str(python),
        },
        capture_output=True,
        text=True,
        timeout=900,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    assert done.stdout.startswith("written ")
