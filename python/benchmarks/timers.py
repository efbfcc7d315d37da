"""A query that does little but set timers, next to Spark's own RocksDB provider, or while half of them move.

Timers fire, providers take turns, and a pair of runs gives a ratio of throughputs. With `--switch` none fires:
4 partitions become 8 in one step, whose epoch is compared with the median of those before.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

import binshift
from binshift.session import PROVIDER, PROVIDER_KEY, STOCK_PROVIDER
from openloop.session import session

#: Seconds after which no timer of a run fires.
NEVER = 1_000_000
#: Epochs before a step that are its measure.
MEASURED = 20


@contextmanager
def timers(
    spark: SparkSession, provider: str, rows: int, seconds: int, scattered: bool, root: Path
) -> Iterator[StreamingQuery]:
    """A query that sets `rows` timers in each epoch, which lasts a second; they fire after as many."""
    spark = spark.newSession()
    spark.conf.set(PROVIDER_KEY, provider)
    source = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", rows).option("numPartitions", 2)
    queries = spark._jvm.binshift.benchmarks.TimerQuery
    df = DataFrame(queries.of(source.load()._jdf, seconds, scattered), spark)
    query = df.writeStream.format("noop").option("checkpointLocation", str(root)).start()
    try:
        yield query
    finally:
        query.stop()


def await_epoch(query: StreamingQuery, epoch: int) -> None:
    while (query.lastProgress or {"batchId": 0})["batchId"] < epoch:
        query.awaitTermination(1)


def took(query: StreamingQuery, first: int, last: int) -> float:
    """Median milliseconds of those epochs in which rows came in."""
    epochs = [p for p in query.recentProgress if p.numInputRows > 0 and first <= p.batchId <= last]
    return statistics.median(p.durationMs["addBatch"] for p in epochs)


def firing(spark: SparkSession, provider: str, rows: int, seconds: int, scattered: bool, root: Path) -> float:
    """Median milliseconds of an epoch that sets `rows` timers and lets as many fire."""
    with timers(spark, provider, rows, seconds, scattered, root) as query:
        # Epochs before the first timers fire are left out.
        await_epoch(query, seconds + 32)
        return took(query, seconds + 3, seconds + 32)


def switching(
    spark: SparkSession, rows: int, count: int, scattered: bool, prepare: bool, root: Path
) -> tuple[float, list[int]]:
    """Median milliseconds of an epoch that sets `rows` timers, and of those in which half of all move."""
    with timers(spark, PROVIDER, rows, NEVER, scattered, root) as query:
        filled = count // rows
        await_epoch(query, filled + MEASURED)
        median = took(query, filled, filled + MEASURED)
        binshift.attach(query).rescale(8, strategy=binshift.AllAtOnce(), prepare=prepare).wait(600)
        await_epoch(query, query.lastProgress["batchId"] + 1)
        moved = [
            p.durationMs["addBatch"]
            for p in query.recentProgress
            if any(op.customMetrics.get("binshiftBinsReleased", 0) for op in p.stateOperators)
        ]
        return median, moved


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--timers", type=int, nargs="+", default=[10_000, 1_000_000])
    parser.add_argument("--pairs", type=int, default=3)
    parser.add_argument("--keys", choices=["scattered", "ascending"], default="scattered")
    parser.add_argument("--switch", action="store_true", help="move half of the timers; none fires")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        spark = session(Path(scratch), memory="4g", **{"spark.sql.shuffle.partitions": "4"})
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
    print("timers   prepared  median_ms  step_ms  ratio (one line a run)")
    for count in args.timers:
        for turn in range(args.pairs):
            for prepare in (True, False):
                median, moved = switching(
                    spark,
                    count // 50,
                    count,
                    args.keys == "scattered",
                    prepare,
                    scratch / f"{count}-{turn}-{prepare}",
                )
                print(
                    f"{count:<8} {prepare!s:<9} {median:<10.0f} {max(moved):<8.0f} {max(moved) / median:.2f}",
                    flush=True,
                )


if __name__ == "__main__":
    main()
