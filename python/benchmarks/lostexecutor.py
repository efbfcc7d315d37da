"""Runs a query whose executor, a JVM of its own, is killed, and prints how long the next epoch took.

The time until Spark notices isn't counted, because the next epoch only begins after that.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyspark
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

import binshift
from devtools.executors import executor_processes
from openloop.session import session

__all__ = ["EXECUTORS", "PARTITIONS", "SETTINGS", "Lost", "cluster_session", "until"]

EXECUTORS, PARTITIONS = 3, 6
#: Rows of an epoch, and epochs before the executor dies, of which only the second half counts.
UPDATES, EPOCHS = 20_000, 16
SETTLE_SECONDS = 3
SETTINGS = "spark.sql.streaming.stateStore."
#: The names of a standby's threads in Linux.
STANDBY = "binshift-standb"


def until(condition: Callable[[], bool], what: str, seconds: float = 300) -> None:
    """Waits for work in the background."""
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError(what)
        time.sleep(0.1)


class Lost:
    """The query, whose input is as many files as there are epochs."""

    def __init__(self, spark: SparkSession, root: Path, rows: int) -> None:
        self.spark, self.root, self.rows = spark, root, rows
        self.files = 0
        self.feed(spark.range(rows).selectExpr("id AS k"))
        source = spark.readStream.schema("k long").option("maxFilesPerTrigger", 1).parquet(str(root / "input"))
        counted = source.groupBy("k").agg(
            F.count("*").alias("n"), F.max(F.sha2(F.col("k").cast("string"), 256))
        )
        writer = counted.writeStream.outputMode("update").format("noop")
        self.query = writer.option("checkpointLocation", str(root / "checkpoint")).start()
        self.query.processAllAvailable()

    def feed(self, rows: Any) -> None:
        """Writes one more file."""
        made = self.root / "making"
        rows.coalesce(1).write.mode("overwrite").parquet(str(made))
        (self.root / "input").mkdir(exist_ok=True)
        os.replace(next(made.glob("*.parquet")), self.root / "input" / f"{self.files:06}.parquet")
        self.files += 1

    def epoch(self) -> float:
        """Runs one more epoch, and returns its milliseconds."""
        self.feed(self.spark.range(UPDATES).selectExpr(f"(id * 7919 + {self.files}) % {self.rows} AS k"))
        self.query.processAllAvailable()
        last = [p for p in self.query.recentProgress if "addBatch" in p.durationMs][-1]
        return float(last.durationMs["triggerExecution"])

    def metric(self, name: str) -> int:
        """A metric of the last epoch."""
        last = [p for p in self.query.recentProgress if "addBatch" in p.durationMs][-1]
        return sum(op.customMetrics[name] for op in last.stateOperators)


def processor_seconds(pids: list[int]) -> dict[bool, float]:
    """Processor time of the threads of standbys, and of all other threads of these processes."""
    used = {True: 0.0, False: 0.0}
    for pid in pids:
        for task in Path(f"/proc/{pid}/task").iterdir():
            name, fields = (task / "stat").read_text().rsplit(")", 1)
            used[STANDBY in name] += sum(map(int, fields.split()[11:13])) / os.sysconf("SC_CLK_TCK")
    return used


def run(spark: SparkSession, root: Path, rows: int, standbys: int, epochs: int) -> dict[str, float]:
    """Runs the measurement."""
    lost = Lost(spark, root, rows)
    controller = binshift.attach(lost.query)

    def ready() -> bool:
        lags = controller.stats()["standby_lag"].to_pylist()
        return standbys == 0 or all(lag is not None and lag <= 1 for lag in lags)

    for _ in range(3):
        lost.epoch()
    until(ready, "the standbys are not there")
    before = executor_processes(spark.sparkContext.applicationId)
    used = processor_seconds(list(before.values()))
    took = [lost.epoch() for _ in range(epochs)]
    now = processor_seconds(list(before.values()))
    until(ready, "the standbys do not follow")
    victim = controller._placement().partitions[0][0]
    os.kill(before[victim], signal.SIGKILL)
    until(lambda: victim not in controller._placement().executors, "Spark does not notice")
    until(lambda: len(controller._placement().executors) == EXECUTORS, "there is no other executor")
    # Starting it takes processor time.
    time.sleep(SETTLE_SECONDS)
    first = lost.epoch()
    here, fetched = lost.metric("binshiftFilesWarm"), lost.metric("binshiftFilesFetched")
    after = [lost.epoch() for _ in range(3)]
    lost.query.stop()
    return {
        "rows": rows,
        "first_ms": first,
        "median_ms": statistics.median(took[epochs // 2 :]),
        "next_ms": statistics.median(after),
        "files_here": here,
        "files_fetched": fetched,
        "standby_seconds": now[True] - used[True],
        "query_seconds": now[False] - used[False],
    }


def cluster_session(root: Path, standbys: int, pace: str, **conf: str) -> SparkSession:
    """A session whose executors are JVMs of their own, with additional settings `conf`."""
    root.mkdir(parents=True, exist_ok=True)
    # A local-cluster writes its executors' directories into SPARK_HOME.
    home = root / "spark"
    home.mkdir()
    for entry in Path(pyspark.__file__).parent.iterdir():
        if entry.name != "work":
            (home / entry.name).symlink_to(entry)
    os.environ["SPARK_HOME"] = str(home)
    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    options = {
        "spark.executor.extraClassPath": str(root / "benchmarks.jar"),
        "spark.executor.memory": "1g",
        "spark.sql.shuffle.partitions": str(PARTITIONS),
        "spark.locality.wait": "1min",
        SETTINGS + "maintenanceInterval": "5s",
        SETTINGS + "binshift.standbys": str(standbys),
        SETTINGS + "binshift.standbys.interval": "1s",
        SETTINGS + "binshift.ship.maxBytesPerSecond": pace,
        **conf,
    }
    return session(root, f"local-cluster[{EXECUTORS},1,1024]", "1g", **options)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("root", type=Path)
    parser.add_argument("--rows", type=int, default=200_000)
    parser.add_argument("--standbys", type=int, default=1)
    parser.add_argument("--epochs", type=int, default=EPOCHS)
    parser.add_argument("--pace", default="64m")
    args = parser.parse_args()
    spark = cluster_session(args.root, args.standbys, args.pace)
    measured = run(spark, args.root, args.rows, args.standbys, args.epochs)
    sys.stdout.write(json.dumps(measured) + "\n")
    spark.stop()


if __name__ == "__main__":
    main()
