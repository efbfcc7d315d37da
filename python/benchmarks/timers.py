"""A query that does little but set timers and let them fire, next to Spark's own RocksDB provider.

Both providers take turns; a pair of runs gives a ratio of throughputs.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

from binshift.session import PROVIDER, PROVIDER_KEY, STOCK_PROVIDER
from openloop.session import session


def epochs(
    spark: SparkSession, provider: str, rows: int, seconds: int, scattered: bool, measured: int, root: Path
) -> float:
    """Median milliseconds of an epoch that sets `rows` timers and lets as many fire."""
    spark = spark.newSession()
    spark.conf.set(PROVIDER_KEY, provider)
    source = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", rows).option("numPartitions", 2)
    queries = spark._jvm.binshift.benchmarks.TimerQuery
    df = DataFrame(queries.of(source.load()._jdf, seconds, scattered), spark)
    query = df.writeStream.format("noop").option("checkpointLocation", str(root)).start()
    try:
        while (query.lastProgress or {"batchId": 0})["batchId"] < seconds + measured + 2:
            query.awaitTermination(1)
        # Epochs in which the watermark moves and rows come in; those before the first timers are left out.
        full = [p for p in query.recentProgress if p.numInputRows > 0 and p.batchId > seconds + 2]
        return statistics.median(p.durationMs["addBatch"] for p in full)
    finally:
        query.stop()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--timers", type=int, nargs="+", default=[10_000, 1_000_000])
    parser.add_argument("--pairs", type=int, default=3)
    parser.add_argument("--keys", choices=["scattered", "ascending"], default="scattered")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        spark = session(Path(scratch), memory="4g", **{"spark.sql.shuffle.partitions": "4"})
        print("timers   timers_per_epoch  stock_ms  binshift_ms  throughput_ratio (one line a pair)")
        for timers in args.timers:
            rows, seconds = (2_000, 5) if timers <= 10_000 else (timers // 50, 50)
            for pair in range(args.pairs):
                order = (STOCK_PROVIDER, PROVIDER) if pair % 2 == 0 else (PROVIDER, STOCK_PROVIDER)
                took = {
                    p: epochs(
                        spark,
                        p,
                        rows,
                        seconds,
                        args.keys == "scattered",
                        30,
                        Path(scratch) / f"{timers}-{pair}-{p}",
                    )
                    for p in order
                }
                ratio = took[STOCK_PROVIDER] / took[PROVIDER]
                print(
                    f"{timers:<8} {rows:<17} {took[STOCK_PROVIDER]:<9.0f} {took[PROVIDER]:<12.0f} {ratio:.2f}",
                    flush=True,
                )
        spark.stop()


if __name__ == "__main__":
    main()
