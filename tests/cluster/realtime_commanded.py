"""A driver with a query in real-time mode that does what its standard input says; see `commanded.py`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from pyspark.sql import SparkSession

import binshift
from cluster.commanded import Commands, serve
from cluster.realtime import RealTime
from harness import real_time_session, until


class RealTimeCommands(Commands):
    def __init__(self, root: Path, spark: SparkSession, checkpoint: str) -> None:
        self.spark = spark
        self.real_time = RealTime(spark, root, "count", checkpoint)
        self.real_time.start()
        self.real_time.await_outputs()

    def batches(self, count: int) -> int:
        """Ends so many batches with rows; the epoch that is open then."""
        for _ in range(count):
            self.real_time.epoch()
        return self.open()

    def open(self) -> int:
        """The epoch whose tasks run, once rows flow in it."""
        self.real_time.await_begun(self.real_time.committed + 1)
        return self.real_time.committed + 1

    def rows(self) -> None:
        """Feeds rows that are in no epoch yet, and waits until they came out."""
        self.real_time.feed()

    def rescale(self, partitions: int, bins_per_step: int = 64, prepare: bool = False) -> None:
        strategy = binshift.Batched(bins_per_step)
        self.real_time.attach().rescale(partitions, strategy=strategy, prepare=prepare)

    def finish(self) -> int:
        """Ends batches until no migration is under way."""
        while self.real_time.attach().migration() is not None:
            self.real_time.epoch()
        return self.batches(1)

    def tables(self) -> list[int]:
        return sorted(int(f.name) for f in (self.real_time.checkpoint / "binshift/routing").glob("[0-9]*"))

    def ends_in_vain(self) -> str:
        """Ends the batch that another driver has committed meanwhile; why the query has ended."""
        self.real_time.jvm.endBatch()
        assert until(lambda: not self.real_time.query.isActive, 120), "the query goes on"
        return self.real_time.failure()

    def report(self) -> dict[str, Any]:
        return self.real_time.report()


if __name__ == "__main__":
    serve(RealTimeCommands, real_time_session)
