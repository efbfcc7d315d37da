"""A program that ends at a random instant of an epoch and a migration, while stores compact."""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import sys
import time
from contextlib import suppress
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from py4j.protocol import Py4JError
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

import binshift
from binshift.session import PROVIDER_KEY, STOCK_PROVIDER
from cluster.processes import spark_processes
from harness import session, until
from local.queries import count_by_key

_STORE = "spark.sql.streaming.stateStore."
#: A snapshot at each epoch, and a pace at which a compaction takes longer than the program lives.
CONF = {
    _STORE + "minDeltasForSnapshot": "1",
    _STORE + "binshift.compaction.bytesPerSecond": "64k",
}
#: With its fourth snapshot, a store begins to compact; with its eighth, it is not held back any more.
COMPACTS_FROM = 4


def counting(spark: SparkSession, checkpoint: Path) -> StreamingQuery:
    """A query with 20,000 new keys at each epoch."""
    source = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 20_000)
    rows = source.option("numPartitions", 2).load()
    counts = count_by_key(rows.selectExpr("cast(xxhash64(value) AS string) AS k", "value AS v"))
    writer = counts.writeStream.outputMode("update").format("noop").trigger(processingTime="500 milliseconds")
    return writer.option("checkpointLocation", str(checkpoint)).start()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("root", type=Path)
    parser.add_argument("how", choices=["stop", "leave", "exit", "terminate", "kill", "terminate-executors"])
    parser.add_argument("--master", default="local[2]")
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    spark = session(args.master, **CONF)
    query = counting(spark, args.root / "checkpoint")
    # Its compactions wait for the other's.
    stock = spark.newSession()
    stock.conf.set(PROVIDER_KEY, STOCK_PROVIDER)
    counting(stock, args.root / "stock")
    assert until(lambda: bool(query.lastProgress) and query.lastProgress.batchId >= COMPACTS_FROM, 240)
    binshift.attach(query).rescale(4)
    time.sleep(random.Random(args.seed).uniform(0, 2))

    application = spark.sparkContext.applicationId
    processes = spark_processes(application)
    driver = next(pid for pid in processes if application not in _command(pid))
    if args.how == "stop":
        query.stop()
        spark.stop()
    ends = [pid for pid in processes if pid != driver] if args.how == "terminate-executors" else processes
    sys.stdout.write(json.dumps({"ends": ends, "at": time.monotonic()}) + "\n")
    sys.stdout.flush()
    if args.how == "exit":
        with suppress(Py4JError):
            spark._jvm.System.exit(0)
    elif args.how in ("terminate", "kill"):
        os.kill(driver, signal.SIGTERM if args.how == "terminate" else signal.SIGKILL)
    elif args.how == "terminate-executors":
        for pid in ends:
            os.kill(pid, signal.SIGTERM)
        # The driver lives until they are gone.
        sys.stdin.read()
    os._exit(0)


def _command(pid: int) -> str:
    return Path(f"/proc/{pid}/cmdline").read_text()


if __name__ == "__main__":
    main()
