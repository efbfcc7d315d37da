"""A program that ends at a random instant of an epoch and a migration, while stores compact."""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import sys
import time
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from py4j.protocol import Py4JError
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

import binshift
from binshift.session import PROVIDER_KEY, STOCK_PROVIDER
from cluster.driver import await_executors
from cluster.places import decommission
from cluster.processes import spark_processes
from devtools.executors import executor_processes
from harness import session, until
from jvms import TESTS_JAR, quick
from local.queries import count_by_key

#: How the driver ends. If it is killed, its executors notice that it is gone.
OF_DRIVERS = ("stop", "leave", "exit", "terminate", "kill")
#: How executors end while the driver lives; then the driver leaves as well.
OF_EXECUTORS = ("terminate-executors", "decommission")

_STORE = "spark.sql.streaming.stateStore."
#: A snapshot at every second epoch, and a pace at which a compaction takes longer than the program lives.
CONF = {
    _STORE + "minDeltasForSnapshot": "2",
    _STORE + "binshift.compaction.bytesPerSecond": "64k",
    "spark.decommission.enabled": "true",
    "spark.executor.memory": "512m",
}
#: With its fourth snapshot, a store begins to compact; with its eighth, it is not held back any more. So the
#: program has to end within the next eight epochs, or no compaction is under way.
COMPACTS_FROM = 8


@dataclass(frozen=True)
class Drawn:
    """What a seed decides: the migration, and the instant of it at which the program ends.

    The program ends `epochs` and some `seconds` after the migration was submitted.
    """

    change: tuple[int, int]
    strategy: str
    prepare: bool
    split: bool
    standbys: bool
    epochs: int
    seconds: float

    @staticmethod
    def of(seed: int, *, is_cluster: bool) -> Drawn:
        rng = random.Random(seed)
        return Drawn(
            rng.choice(((2, 4), (4, 2), (8, 4))),
            rng.choice(("all-at-once", "batched:16", "on-demand")),
            rng.random() < 0.5,
            rng.random() < 0.5,
            rng.random() < 0.5 and is_cluster,
            rng.randint(0, 5),
            rng.uniform(0, 1),
        )

    @property
    def conf(self) -> dict[str, str]:
        conf = {"spark.sql.shuffle.partitions": str(self.change[0])}
        # What executors leave can be told from what the driver does.
        options = "spark.executor.extraJavaOptions"
        scratch = os.environ["BINSHIFT_TESTS_TMP"]
        conf[options] = quick()[options].replace(f"tmpdir={scratch}", f"tmpdir={scratch}/executors")
        if self.split:
            conf[_STORE + "binshift.ship.minBytesToSplit"] = "1b"
        if self.standbys:
            conf |= {_STORE + "binshift.standbys": "1", _STORE + "binshift.standbys.interval": "500ms"}
        return conf


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
    parser.add_argument("how", choices=[*OF_DRIVERS, *OF_EXECUTORS])
    parser.add_argument("--master", default="local[2]")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--busy", type=int, default=0, help="seconds for which another database compacts")
    args = parser.parse_args()
    drawn = Drawn.of(args.seed, is_cluster=args.master.startswith("local-cluster"))
    # Only the other database is made by the tests' own classes.
    jars = {"spark.jars": str(TESTS_JAR)} if args.busy else {}
    spark = session(args.master, **CONF, **drawn.conf, **jars)
    await_executors(spark)
    query = counting(spark, args.root / "checkpoint")
    # Its compactions wait for the other's.
    stock = spark.newSession()
    stock.conf.set(PROVIDER_KEY, STOCK_PROVIDER)
    counting(stock, args.root / "stock")

    def await_epoch(epoch: int) -> None:
        reached = until(lambda: bool(query.lastProgress) and query.lastProgress.batchId >= epoch, 240)
        assert reached, query.exception()

    await_epoch(COMPACTS_FROM)
    binshift.attach(query).rescale(drawn.change[1], strategy=drawn.strategy, prepare=drawn.prepare)
    await_epoch(query.lastProgress.batchId + drawn.epochs)
    time.sleep(drawn.seconds)
    if args.busy:
        storage = spark._jvm.org.apache.spark.sql.execution.streaming.state.binshift.storage
        storage.TestBusyDatabase.compact(str(args.root / "busy"), args.busy)
    end(spark, query, args.how)


def end(spark: SparkSession, query: StreamingQuery, how: str) -> None:
    application = spark.sparkContext.applicationId

    def tell(drivers: Iterable[int], executors: Iterable[int]) -> None:
        """Tells the test which processes have to end from now on."""
        line = {"drivers": list(drivers), "executors": list(executors), "at": time.monotonic()}
        sys.stdout.write(json.dumps({**line, "application": application}) + "\n")
        sys.stdout.flush()

    if how in OF_EXECUTORS:
        ending = executor_processes(application)
        tell([], ending.values())
        for executor, pid in ending.items():
            if how == "decommission":
                decommission(spark, executor)
            else:
                os.kill(pid, signal.SIGTERM)
        # The driver lives until they are gone.
        sys.stdin.readline()
    executors = set(executor_processes(application).values())
    (driver,) = set(spark_processes(application)) - executors
    if how == "stop":
        query.stop()
        tell([], executors)
        spark.stop()
    # Nothing is expected of a driver that is killed.
    tell([] if how == "kill" else [driver], executors)
    if how == "exit":
        with suppress(Py4JError):
            spark._jvm.System.exit(0)
    elif how in ("terminate", "kill"):
        os.kill(driver, signal.SIGTERM if how == "terminate" else signal.SIGKILL)
    os._exit(0)


if __name__ == "__main__":
    main()
