"""Memory of executors outside Java's heap: with a query, while bins are copied, with standbys.

Three executors are JVMs of their own, with two of six partitions each; a rescale makes twelve partitions of
them. All of an executor's heap is resident from the beginning, so any other resident memory is outside the
heap. Prints the mean of an executor in megabytes.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import threading
from pathlib import Path

import psutil
from pyspark.sql import SparkSession

import binshift
from devtools.executors import executor_processes
from lostexecutor import PARTITIONS, SETTINGS, Lost, cluster_session, until

HEAP_MB = 1024
#: Epochs before each measurement, within which stores make a snapshot.
EPOCHS = 12
#: Seconds between two looks while bins are copied.
PERIOD = 0.2


class Executors:
    """The executors' processes."""

    def __init__(self, spark: SparkSession) -> None:
        self._processes = [
            psutil.Process(p) for p in executor_processes(spark.sparkContext.applicationId).values()
        ]

    def megabytes(self) -> float:
        """The memory that an executor has outside its heap now."""
        return float(statistics.mean(p.memory_info().rss for p in self._processes)) / 2**20 - HEAP_MB


class Peak(threading.Thread):
    """The highest memory that was seen between entering and leaving it."""

    def __init__(self, executors: Executors) -> None:
        super().__init__(daemon=True)
        self._executors, self._ended = executors, threading.Event()
        self.megabytes = 0.0

    def __enter__(self) -> Peak:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self.join()

    def run(self) -> None:
        """Measures until the context is left."""
        while not self._ended.wait(PERIOD):
            self.megabytes = max(self.megabytes, self._executors.megabytes())


def of_rocksdb(lost: Lost) -> float:
    """Memory that RocksDB reports for an executor's share of stores, at the last epoch."""
    last = [p for p in lost.query.recentProgress if "addBatch" in p.durationMs][-1]
    return sum(op.memoryUsedBytes for op in last.stateOperators) / 2**20 / 3


def run(spark: SparkSession, root: Path, rows: int, standbys: int) -> dict[str, float]:
    """Runs the measurement."""
    # Lets Java load and compile the code that a query needs.
    small = Lost(spark, root / "small", 1000)
    for _ in range(EPOCHS):
        small.epoch()
    small.query.stop()
    executors = Executors(spark)
    found = {"small": executors.megabytes()}
    lost = Lost(spark, root / "large", rows)
    controller = binshift.attach(lost.query)
    for _ in range(EPOCHS):
        lost.epoch()
    if standbys:
        until(lambda: None not in controller.stats()["standby_lag"].to_pylist(), "the standbys are not there")
    found |= {"idle": executors.megabytes(), "idle_rocksdb": of_rocksdb(lost)}
    with Peak(executors) as peak:
        migration = controller.rescale(2 * PARTITIONS)
        while controller.migration() is not None:
            lost.epoch()
    report = migration.wait(60)
    for _ in range(EPOCHS):
        lost.epoch()
    lost.query.stop()
    return {
        **found,
        "peak": peak.megabytes,
        "after": executors.megabytes(),
        "after_rocksdb": of_rocksdb(lost),
        "moved_megabytes": (report.bytes_adopted or 0) / 2**20,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("root", type=Path)
    parser.add_argument("--rows", type=int, default=2_000_000)
    parser.add_argument("--standbys", type=int, default=0)
    parser.add_argument("--bounded", type=int, default=0, help="megabytes of boundedMemoryUsage; 0 for none")
    args = parser.parse_args()
    conf = {"spark.executor.extraJavaOptions": f"-Xms{HEAP_MB}m -XX:+AlwaysPreTouch -XX:+UseSerialGC"}
    if args.bounded:
        conf[SETTINGS + "rocksdb.boundedMemoryUsage"] = "true"
        conf[SETTINGS + "rocksdb.maxMemoryUsageMB"] = str(args.bounded)
    spark = cluster_session(args.root, args.standbys, "64m", **conf)
    measured = run(spark, args.root, args.rows, args.standbys)
    sys.stdout.write(json.dumps({**vars(args), "root": None, **measured}) + "\n")
    spark.stop()


if __name__ == "__main__":
    main()
