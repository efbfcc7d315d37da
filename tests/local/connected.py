"""What a client of Spark Connect does: its query counts rows by key, and is rescaled through its checkpoint.

The server has the jar and the settings. Prints the numbers of partitions, before and after.
"""

import json
import os
import sys
from collections import Counter
from pathlib import Path

import pytest
from click.testing import CliRunner
from pyspark.sql import SparkSession

import binshift
from binshift.cli.main import cli

ROOT = Path.cwd()
SOURCE, CHECKPOINT = ROOT / "source", ROOT / "checkpoint"


def command(name: str, *arguments: str) -> str:
    result = CliRunner().invoke(cli, [name, str(CHECKPOINT), *arguments], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.stdout


def partitions() -> int:
    return int(json.loads(command("status", "--json"))["routing"]["partitions"])


SOURCE.mkdir()
spark = SparkSession.builder.remote("local[2]").getOrCreate()
frame = spark.readStream.schema("k string").option("maxFilesPerTrigger", 1).json(str(SOURCE))
writer = frame.groupBy("k").count().writeStream.outputMode("complete").format("memory").queryName("counts")
query = writer.option("checkpointLocation", str(CHECKPOINT)).start()
expected = Counter[str]()
seen = []
for epoch in range(40):
    keys = [f"key{(i * 7 + epoch) % 30}" for i in range(40)]
    expected.update(keys)
    (ROOT / "next").write_text("\n".join(json.dumps({"k": k}) for k in keys))
    os.replace(ROOT / "next", SOURCE / f"{epoch}.json")
    query.processAllAvailable()
    seen.append(partitions())
    if epoch == 0:
        with pytest.raises(binshift.ConfigurationError, match="binshift rescale") as refusal:
            binshift.attach(query)
        assert refusal.value.condition == "SPARK_CONNECT"
        command("rescale", "5", "--no-prepare", "--strategy", "all-at-once")
    if epoch > 0 and seen[-2] == 5:
        break
assert {r.k: r["count"] for r in spark.table("counts").collect()} == expected
query.stop()
spark.stop()
sys.stdout.write(f"partitions: {seen[0]}, {seen[-1]}\n")
