"""A commanded driver (see `commanded.py`) of a query in real-time mode."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import pytest
from pyspark.sql import SparkSession

import binshift
from cluster.commanded import Commands, serve
from cluster.places import decommission
from cluster.realtime import ALLOWLIST_KEY, RealTime
from harness import entries, real_time_session, until


class RealTimeCommands(Commands):
    def __init__(self, root: Path, spark: SparkSession, checkpoint: str) -> None:
        self.spark, self.root, self.checkpoint = spark, root, checkpoint
        self.operator = spark.conf.get("spark.binshift.tests.operator", "count")
        if self.operator.startswith(("transform", "united")):
            spark.conf.set(ALLOWLIST_KEY, "false")
        self.start()

    def start(self) -> None:
        """Starts the query, or starts it again after it has ended."""
        # The test's clock only reaches tasks in the driver's JVM.
        is_standing = self.spark.sparkContext.master.startswith("local[")
        self.real_time = RealTime(
            self.spark, self.root, self.operator, self.checkpoint, is_standing=is_standing
        )
        self.real_time.start()
        self.real_time.await_outputs()

    def batches(self, count: int) -> int:
        """Ends a number of batches with rows; returns the epoch that is open then."""
        for _ in range(count):
            self.real_time.epoch()
        return self.open()

    def open(self) -> int:
        """Waits until rows flow in an epoch, and returns it."""
        self.real_time.await_begun(self.real_time.committed + 1)
        return self.real_time.committed + 1

    def rows(self) -> None:
        """Feeds rows that are in no epoch yet, and waits for their output."""
        self.real_time.feed()

    def rescale(self, partitions: int, bins_per_step: int = 64, prepare: bool = False) -> None:
        strategy = binshift.Batched(bins_per_step)
        self.real_time.attach().rescale(partitions, strategy=strategy, prepare=prepare)

    def partitions(self) -> int:
        return self.real_time.attach().routing().partitions

    def refused(self, method: str, argument: Any) -> list[Any]:
        """The reason why a plan is refused: condition, parameters and message."""
        with pytest.raises(binshift.PlanError) as error:
            getattr(self.real_time.attach(), method)(argument)
        return [error.value.condition, error.value.parameters, str(error.value)]

    def placed(self) -> list[list[str]]:
        """The executors of each partition."""
        return [list(p) for p in self.real_time.attach()._placement().partitions]

    def drain(self, executor: str) -> None:
        self.real_time.attach().drain(executor)

    def decommission(self, executor: str) -> None:
        decommission(self.spark, executor)

    def own_jobs(self) -> list[int]:
        """The jobs that binshift has run in addition to the query's."""
        return list(self.spark.sparkContext.statusTracker().getJobIdsForGroup("binshift"))

    def is_set(self, key: str) -> bool:
        """True if the setting is set in the Spark context."""
        return bool(self.spark.sparkContext._jsc.sc().conf().contains(key))

    def due(self) -> int:
        """Ends batches until the table of the next epoch is durable; returns that epoch."""
        while self.open() + 1 not in entries(self.real_time.checkpoint):
            self.real_time.epoch()
        return self.open() + 1

    def occupy(self, tasks: int, running: int) -> None:
        self.real_time.jvm.occupy(tasks, running)

    def occupy_while_planned(self, tasks: int) -> None:
        self.real_time.jvm.occupyWhilePlanned(tasks)

    def unload_while_planned(self) -> None:
        self.real_time.jvm.unloadWhilePlanned()

    def free(self) -> None:
        self.real_time.jvm.free()

    def needed(self, partitions: int) -> int:
        """The slots that binshift requires for a number of partitions, from its error if there are too few."""
        self.occupy(100, 1)
        with pytest.raises(binshift.PlanError) as refused:
            self.rescale(partitions)
        self.free()
        return int(refused.value.parameters["needed"])

    def tasks(self) -> int:
        """The number of tasks that Spark can run at the same time."""

        def found() -> int:
            return int(self.real_time.look.tasksAtOnce(self.real_time.query._jsq))

        self.real_time.until(lambda: found() > 0, "all tasks of the batch")
        return found()

    def variable(self, name: str) -> list[list[Any]]:
        """The committed state of a variable of `transformWithState`; ends the query."""
        return self.real_time.state(name)

    def finish(self) -> int:
        """Ends batches until no migration is under way."""
        while self.real_time.attach().migration() is not None:
            self.real_time.epoch()
        return self.batches(1)

    def tables(self) -> list[int]:
        return list(entries(self.real_time.checkpoint))

    def ends_in_vain(self) -> str:
        """Ends the batch and with it the query; returns the reason."""
        self.real_time.jvm.endBatch()
        assert until(lambda: not self.real_time.query.isActive, 120), "the query goes on"
        return self.real_time.failure()

    def report(self) -> dict[str, Any]:
        return self.real_time.report()


if __name__ == "__main__":
    serve(RealTimeCommands, real_time_session)
