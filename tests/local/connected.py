"""A client of Spark Connect in the server's process, with a query that counts rows by key.

It is rescaled through its checkpoint, and then by the controller, which makes a savepoint, too. Prints the
numbers of partitions.
"""

import json
import os
import sys
from collections import Counter
from pathlib import Path

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
spark = binshift.configure(SparkSession.builder.remote("local[2]")).getOrCreate()
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
        command("rescale", "5", "--no-prepare", "--strategy", "all-at-once")
    if seen[-1] == 5 and binshift.attach(query).migration() is None:
        binshift.attach(query).rescale(3, strategy=binshift.AllAtOnce(), prepare=False)
    if epoch > 0 and seen[-2] == 3:
        break
made = binshift.attach(query).savepoint("kept")
assert made == binshift.savepoints.get(CHECKPOINT, "kept")
assert made.epoch == len(seen) - 1
assert {r.k: r["count"] for r in spark.table("counts").collect()} == expected
query.stop()
spark.stop()
sys.stdout.write(f"partitions: {sorted(set(seen))}\n")
