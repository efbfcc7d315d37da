"""A driver process that reads commands from standard input, one per line, and answers each in a line.

It counts rows by key, as `driver.py` does, unless a setting names another query of `local.queries`. A test can
do something to the cluster between two commands. Started again, it goes on with the checkpoint, which may be
anywhere, and the input that is there.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import binshift
from binshift.session import PROVIDER
from cluster.driver import Outputs
from cluster.processes import listening, spark_processes
from harness import StreamRun, end_maintenance, session, until
from local.queries import QUERIES


def counts(df: DataFrame) -> DataFrame:
    return df.groupBy("k").agg(F.count("*").alias("n"), F.sum("v").alias("total"))


class Commands:
    """The commands of a test; a command is the name of a method."""

    query = staticmethod(counts)
    kind = StreamRun

    def __init__(self, root: Path, spark: SparkSession, checkpoint: str) -> None:
        self.spark = spark
        provider = spark.conf.get("spark.binshift.tests.provider", PROVIDER)
        name = spark.conf.get("spark.binshift.tests.query", "")
        query = QUERIES[name].build if name else self.query
        mode = QUERIES[name].mode if name else spark.conf.get("spark.binshift.tests.mode", "update")
        self.run = self.kind(spark, root, query, mode, provider)
        self.run.outputs = Outputs(root / spark.conf.get("spark.binshift.tests.outputs", "outputs"))
        # The URI stays a string: a Path would turn its two slashes into one.
        self.run.checkpoint = checkpoint or self.run.checkpoint  # type: ignore[assignment]
        self.epoch = len(list(self.run.input.glob("*.json")))
        self.run.start()
        self.run.query.processAllAvailable()

    def await_executors(self, count: int) -> list[str]:
        """Waits for a number of executors, and returns their ids."""
        status = self.spark.sparkContext._jsc.sc().getExecutorMemoryStatus
        assert until(lambda: status().size() == count + 1), f"{status().size() - 1} executors, not {count}"
        # Spark's scheduler may hear of the last one a little later. Those that get no tasks aren't placed.
        until(lambda: len(self.executors()) == count, 3.0)
        return self.executors()

    def executors(self) -> list[str]:
        return list(self.run.attach()._placement().executors)

    def placement(self) -> dict[str, Any]:
        """The executor of each partition, and which executors get tasks."""
        return asdict(self.run.attach()._placement())

    def left(self, executors: int) -> dict[str, Any]:
        """Waits, without epochs, until a number of executors is left; returns the places of the partitions."""
        self.await_executors(executors)
        return self.placement()

    def evacuated(self, count: int) -> None:
        """Waits until a number of partitions have left executors that Spark decommissions."""
        moves = self._router().relocation()
        assert until(lambda: moves.evacuated() == count, 10), f"{moves.evacuated()} partitions, not {count}"

    def _router(self) -> Any:
        jvm = self.spark._jvm
        run = jvm.java.util.UUID.fromString(self.run.query.runId)
        return jvm.org.apache.spark.sql.binshift.query.QueryRouters.known(run).get()

    def epochs(self, count: int) -> int:
        """Runs more epochs; returns the number of all epochs so far."""
        for _ in range(count):
            self.run.run(self.epoch)
            self.epoch += 1
        return self.epoch

    def follow(self) -> int:
        """Waits until the input that another driver has fed is processed; returns the number of all epochs."""
        self.run.query.processAllAvailable()
        self.epoch = len(list(self.run.input.glob("*.json")))
        return self.epoch

    def runs(self, count: int) -> None:
        """Stops the query and starts it again, a number of times, for an epoch each."""
        for _ in range(count):
            self.run.stop()
            self.run.start()
            self.epochs(1)

    def rescale(self, partitions: int, bins_per_step: int, prepare: bool) -> None:
        strategy = binshift.Batched(bins_per_step)
        self.run.attach().rescale(partitions, strategy=strategy, prepare=prepare)

    def swap(self, prepare: bool = False) -> None:
        """Exchanges all bins of two partitions."""
        controller = self.run.attach()
        swapped = [1 - owner for owner in controller.routing().assignment]
        controller.submit(controller.plan(swapped, strategy=binshift.AllAtOnce()), prepare=prepare)

    def cancel(self) -> None:
        migration = self.run.attach().migration()
        assert migration is not None
        migration.cancel()

    def lose_stores(self) -> None:
        """Closes all stores, as if all executors were lost, so that the next epoch reads the checkpoint."""
        end_maintenance(self.spark)

    def scale(self, epoch_s: float, partitions: int, executors: int, most: int = 3) -> list[str]:
        """Lets the autoscaler act until it has reached the numbers; returns its decisions."""
        scaler = binshift.Autoscaler(
            self.run.attach(),
            min_partitions=1,
            max_partitions=most,
            max_executors=most,
            target_utilization=0.1,
            epoch_s=epoch_s,
            cooldown_s=0,
            window=2,
            mode="act",
            strategy=binshift.AllAtOnce(),
            executor_wait_s=600,
        )
        deadline = time.monotonic() + 240
        while True:
            scaler.step()
            there = self.spark.sparkContext._jsc.sc().getExecutorMemoryStatus().size() - 1
            if (self.run.attach().routing().partitions, there) == (partitions, executors):
                owners = self._router().ownExecutors()
                assert owners.areOurs()
                # The next call starts another autoscaler.
                scaler.stop()
                assert not owners.areOurs()
                return [str(d) for d in scaler.decisions]
            assert time.monotonic() < deadline, (there, [str(d) for d in scaler.decisions])
            self.epochs(1)

    def finish(self) -> int:
        """Runs epochs until no migration is under way."""
        while (migration := self.run.attach().migration()) is not None and not migration.status.is_over:
            self.epochs(1)
        return self.epochs(2)

    def listening(self) -> int:
        """The ports on which the driver and its executors listen."""
        return sum(len(listening(pid)) for pid in spark_processes(self.spark.sparkContext.applicationId))

    def report(self) -> dict[str, Any]:
        epochs = [p for p in self.run.query.recentProgress if "addBatch" in p.durationMs]
        metrics = [op.customMetrics for p in epochs for op in p.stateOperators]
        stats, history = self.run.attach().stats(), self.run.attach().history()
        return {
            "keys": sum(stats["keys"].to_pylist()),
            "paths": {
                name: sum(m.get(f"binshiftBins{name}", 0) for m in metrics)
                for name in ("Prepared", "Shipped", "FromCheckpoint", "Recopied")
            },
            "history": history["bins_moved"].to_pylist(),
            "switches": history["epoch"].to_pylist(),
            "state": [[*key, *value] for key, value in self.run.state()],
            "partitions": self.run.attach().routing().partitions,
            "numRowsTotal": self.run.query.lastProgress.stateOperators[0].numRowsTotal,
            "metadata": [m.numPartitions for m in self.run.metadata()],
        }


def serve(
    kind: Callable[[Path, SparkSession, str], Commands], make: Callable[..., SparkSession] = session
) -> None:
    """Carries out the commands of standard input until it ends."""
    root, master, conf, checkpoint = Path(sys.argv[1]), sys.argv[2], json.loads(sys.argv[3]), sys.argv[4]
    spark = make(master, **conf)
    commands = kind(root, spark, checkpoint)
    for line in sys.stdin:
        name, *arguments = json.loads(line)
        sys.stdout.write(f"answer: {json.dumps(getattr(commands, name)(*arguments))}\n")
        sys.stdout.flush()
    commands.run.stop()
    spark.stop()


if __name__ == "__main__":
    serve(Commands)
