"""Drains an executor, a JVM of its own, of a running query, and prints how long the epochs took.

The partitions that leave are fetched as files. For comparison, it measures how long `cp` takes for as many
bytes.
"""

from __future__ import annotations

import argparse
import json
import shutil
import statistics
import sys
import time
from pathlib import Path

from pyspark.sql import SparkSession

import binshift
from lostexecutor import EPOCHS, PARTITIONS, Lost, cluster_session

__all__ = ["main"]


def run(spark: SparkSession, root: Path, rows: int, epochs: int, prepared: bool) -> dict[str, float]:
    """Runs the measurement. Epochs of the drain are those from the request until one after its end."""
    lost = Lost(spark, root, rows)
    controller = binshift.attach(lost.query)
    for _ in range(3):
        lost.epoch()
    took = [lost.epoch() for _ in range(epochs)]
    idle = [lost.epoch() for _ in range(epochs)]
    victim = controller._placement().partitions[0][0]
    moved = sum(1 for places in controller._placement().partitions if victim in places)
    begun = time.monotonic()
    migration = controller.drain(victim, prepare=prepared)
    during: list[float] = []
    warm = fetched = copied = 0
    while not migration.status.is_over:
        during.append(lost.epoch())
        warm += lost.metric("binshiftFilesWarm")
        fetched += lost.metric("binshiftFilesFetched")
        copied += lost.metric("binshiftRowsAdopted")
    seconds = time.monotonic() - begun
    during.append(lost.epoch())
    # The executors that are left run more partitions each.
    after = [lost.epoch() for _ in range(epochs)]
    lost.query.stop()
    size, copying = copied_as_files(root)
    median = statistics.median(took + idle)
    return {
        "rows": rows,
        "median_ms": median,
        "longest_ms": max(during),
        "longest_idle_ms": max(idle),
        "next_ms": statistics.median(after),
        "longest_next_ms": max(after),
        "epochs": len(during),
        "seconds": seconds,
        "files_here": warm,
        "files_fetched": fetched,
        "rows_adopted": copied,
        "partitions_moved": moved,
        "bytes": size * moved // PARTITIONS,
        "cp_seconds": copying * moved / PARTITIONS,
    }


def copied_as_files(root: Path) -> tuple[int, float]:
    """Bytes of all files of state in the checkpoint, and the seconds that a copy of them takes."""
    state = root / "checkpoint" / "state"
    size = sum(f.stat().st_size for f in state.rglob("*.sst"))
    begun = time.monotonic()
    shutil.copytree(state, root / "copied")
    return size, time.monotonic() - begun


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("root", type=Path)
    parser.add_argument("--rows", type=int, default=2_000_000)
    parser.add_argument("--epochs", type=int, default=EPOCHS)
    parser.add_argument("--prepared", type=int, default=1)
    parser.add_argument("--pace", default="64m")
    args = parser.parse_args()
    spark = cluster_session(args.root, 0, args.pace)
    sys.stdout.write(json.dumps(run(spark, args.root, args.rows, args.epochs, bool(args.prepared))) + "\n")
    spark.stop()


if __name__ == "__main__":
    main()
