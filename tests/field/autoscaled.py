"""A driver process whose autoscaler may ask for executors. Each key costs time, so the keys are the load."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import binshift
from cluster.commanded import Commands, counts, serve
from cluster.driver import Outputs
from harness import StreamRun, rows, until

#: The trigger's interval, and the time that a key costs. Tasks sleep, so three can run on two cores.
EPOCH_SECONDS, KEY_SECONDS = 20.0, 0.04
#: The most files that wait for their epoch; more than one, so that an overloaded query is never idle.
_WAITING = 2
#: The number of epochs that measure an epoch's usual duration.
_CALM = 4


def slow_counts(df: DataFrame) -> DataFrame:
    @F.udf("long")
    def slow(n: int) -> int:
        time.sleep(KEY_SECONDS)
        return n

    return counts(df).select("k", slow("n").alias("n"), "total")


class ScaledCommands(Commands):
    def __init__(self, root: Path, spark: SparkSession, checkpoint: str) -> None:
        self.spark = spark
        self.run = StreamRun(spark, root, slow_counts)
        self.run.outputs = Outputs(root / "outputs")
        self.epoch = 0
        self.decisions: dict[str, None] = {}
        self.run.start(processingTime=f"{EPOCH_SECONDS:g} seconds")
        self.feed(10)
        self.run.query.processAllAvailable()

    def feed(self, keys: int) -> None:
        self.run.feed(rows(self.epoch, n=keys, keys=keys))
        self.epoch += 1

    def waiting(self) -> int:
        """The number of files that no committed epoch has read."""
        last = self.run.query.lastProgress
        return self.epoch - last.batchId - bool(last.numInputRows)

    def autoscale(self, most: int) -> int:
        """Starts the autoscaler; returns the number of executors after its first look."""
        self.scaler = binshift.Autoscaler(
            self.run.attach(),
            min_partitions=1,
            max_partitions=most,
            max_executors=most,
            target_utilization=0.8,
            mode="act",
            interval_s=0.5,
            cooldown_s=0,
            window=2,
            strategy=binshift.AllAtOnce(),
            executor_wait_s=600,
        ).start()
        assert until(lambda: bool(self.scaler.decisions))
        return self.there()

    def there(self) -> int:
        """The number of Spark's executors."""
        return self.spark.sparkContext._jsc.sc().getExecutorMemoryStatus().size() - 1

    def load(self, keys: int, partitions: int, executors: int) -> list[str]:
        """Feeds epochs of so many keys until there are so many partitions and executors; what was decided."""
        deadline = time.monotonic() + 1200
        while (self.run.attach().routing().partitions, self.there()) != (partitions, executors):
            assert time.monotonic() < deadline, list(self.decisions)
            self._feed_when_due(keys)
        for _ in range(_CALM):
            self._feed_when_due(keys)
        return list(self.decisions)

    def _feed_when_due(self, keys: int) -> None:
        # A look may fail because an executor leaves; the next one is right again.
        assert self.scaler.failure is None or isinstance(self.scaler.failure, binshift.BinshiftError)
        if until(lambda: self.waiting() < _WAITING, EPOCH_SECONDS):
            self.feed(keys)
        # The autoscaler only keeps its latest decisions.
        self.decisions |= dict.fromkeys(map(str, self.scaler.decisions))

    def report(self) -> dict[str, Any]:
        """Stops the autoscaler, and reports on the query."""
        self.scaler.stop()
        self.run.query.processAllAvailable()
        return super().report()

    def curve(self) -> list[dict[str, Any]]:
        """The duration of each epoch."""
        return [
            {
                "epoch": p.batchId,
                "rows": p.numInputRows,
                "partitions": p.stateOperators[0].numShufflePartitions,
                "bins_adopted": p.stateOperators[0].customMetrics.get("binshiftBinsAdopted", 0),
                "seconds": p.durationMs["triggerExecution"] / 1000,
            }
            for p in self.run.query.recentProgress
            if p.numInputRows
        ]


if __name__ == "__main__":
    serve(ScaledCommands)
