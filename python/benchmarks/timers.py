"""A query that mainly sets timers, compared with Spark's own provider, or while half of them move.

Timers fire, providers take turns, and a pair of runs gives a ratio of throughputs. With `--switch` none fires:
4 partitions become 8 in one step, whose epoch is compared with the median of those before, and of those after.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

import binshift
from binshift.session import PROVIDER, PROVIDER_KEY, STOCK_PROVIDER
from openloop.session import session

#: A time for timers that is longer than any run.
NEVER = 1_000_000
PARTITIONS = 4
#: How many epochs before and after a step it is compared with.
MEASURED = 20


@contextmanager
def timers(
    spark: SparkSession, provider: str, rows: int, seconds: int, scattered: bool, root: Path, keys: int = 0
) -> Iterator[StreamingQuery]:
    """A query that sets `rows` timers in each epoch, which lasts a second; they fire after so many seconds.

    After `keys` rows, the same timers are set again.
    """
    spark = spark.newSession()
    spark.conf.set(PROVIDER_KEY, provider)
    source = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", rows).option("numPartitions", 2)
    queries = spark._jvm.binshift.benchmarks.TimerQuery
    df = DataFrame(queries.of(source.load()._jdf, seconds, scattered, keys), spark)
    query = df.writeStream.format("noop").option("checkpointLocation", str(root)).start()
    try:
        yield query
    finally:
        query.stop()


def await_epoch(query: StreamingQuery, epoch: int) -> None:
    while (query.lastProgress or {"batchId": 0})["batchId"] < epoch:
        query.awaitTermination(1)


def took(query: StreamingQuery, first: int, last: int) -> list[int]:
    """Milliseconds of those epochs in which rows came in."""
    epochs = [p for p in query.recentProgress if p.numInputRows > 0 and first <= p.batchId <= last]
    return [p.durationMs["addBatch"] for p in epochs]


def firing(spark: SparkSession, provider: str, rows: int, seconds: int, scattered: bool, root: Path) -> float:
    """Median milliseconds of an epoch that sets `rows` timers and lets as many fire."""
    with timers(spark, provider, rows, seconds, scattered, root) as query:
        # Epochs before the first timers fire are left out.
        await_epoch(query, seconds + 32)
        return statistics.median(took(query, seconds + 3, seconds + 32))


@dataclass(frozen=True)
class Switch:
    """Milliseconds of epochs that set timers.

    Attributes
    ----------
    idle, after : list[int]
        Of those before any bin moves, and of those with the new routing.
    step : int
        Of the one in which half of all timers move.
    """

    idle: list[int]
    step: int
    after: list[int]

    def __str__(self) -> str:
        before, after = statistics.median(self.idle), statistics.median(self.after)
        return (
            f"{before:<10.0f} {max(self.idle):<11} {self.step:<8} {self.step / before:<14.2f} {after:<9.0f}"
            f" {self.step / after:.2f}"
        )


def switching(
    spark: SparkSession, rows: int, count: int, scattered: bool, prepare: bool, partitions: int, root: Path
) -> Switch:
    """Moves half of `count` timers, to new partitions if there are to be more."""
    with timers(spark, PROVIDER, rows, NEVER, scattered, root, count) as query:
        filled = count // rows
        await_epoch(query, filled + MEASURED)
        idle = took(query, filled, filled + MEASURED)
        controller = binshift.attach(query)
        owners = controller.routing().assignment
        # Every other bin of a partition goes to the next one, where there are no new ones.
        swapped = [(owner + bin // PARTITIONS % 2) % PARTITIONS for bin, owner in enumerate(owners)]
        whole = binshift.AllAtOnce()
        plan = controller.plan(swapped if partitions == PARTITIONS else partitions, strategy=whole)
        report = controller.submit(plan, prepare=prepare).wait(600)
        over = report.last_epoch + 2
        await_epoch(query, over + MEASURED)
        moved = [
            p.durationMs["addBatch"]
            for p in query.recentProgress
            if any(op.customMetrics.get("binshiftBinsReleased", 0) for op in p.stateOperators)
        ]
        return Switch(idle, max(moved), took(query, over, over + MEASURED))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--timers", type=int, nargs="+", default=[10_000, 1_000_000])
    parser.add_argument("--pairs", type=int, default=3)
    parser.add_argument("--keys", choices=["scattered", "ascending"], default="scattered")
    parser.add_argument("--switch", action="store_true", help="move half of the timers; none fires")
    parser.add_argument("--to", type=int, default=8, metavar="N", help="partitions after the switch, of 4")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        spark = session(Path(scratch), memory="4g", **{"spark.sql.shuffle.partitions": str(PARTITIONS)})
        (switch_all if args.switch else fire_all)(spark, args, Path(scratch))
        spark.stop()


def fire_all(spark: SparkSession, args: argparse.Namespace, scratch: Path) -> None:
    print("timers   timers_per_epoch  stock_ms  binshift_ms  throughput_ratio (one line a pair)")
    for count in args.timers:
        rows, seconds = (2_000, 5) if count <= 10_000 else (count // 50, 50)
        for pair in range(args.pairs):
            order = (STOCK_PROVIDER, PROVIDER) if pair % 2 == 0 else (PROVIDER, STOCK_PROVIDER)
            ms = {
                p: firing(spark, p, rows, seconds, args.keys == "scattered", scratch / f"{count}-{pair}-{p}")
                for p in order
            }
            ratio = ms[STOCK_PROVIDER] / ms[PROVIDER]
            print(
                f"{count:<8} {rows:<17} {ms[STOCK_PROVIDER]:<9.0f} {ms[PROVIDER]:<12.0f} {ratio:.2f}",
                flush=True,
            )


def switch_all(spark: SparkSession, args: argparse.Namespace, scratch: Path) -> None:
    print("timers   prepared  median_ms  longest_ms  step_ms  step ÷ median  after_ms  step ÷ after")
    for count in args.timers:
        for turn in range(args.pairs):
            for prepare in (True, False):
                switch = switching(
                    spark,
                    count // 50,
                    count,
                    args.keys == "scattered",
                    prepare,
                    args.to,
                    scratch / f"{count}-{turn}-{prepare}",
                )
                print(f"{count:<8} {prepare!s:<9} {switch}", flush=True)


if __name__ == "__main__":
    main()
