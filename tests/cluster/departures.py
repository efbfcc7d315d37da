"""A commanded driver (see `commanded.py`) whose executors leave, or get no tasks."""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from pyspark import TaskContext
from pyspark.sql import DataFrame

import binshift
from cluster.commanded import Commands, counts, serve
from cluster.driver import Outputs
from cluster.places import kill
from harness import StreamRun, rows, until
from local.migrations import finish


class Sink(Outputs):
    """A sink that lets an epoch end only once it is released."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.ends = threading.Event()
        self.ends.set()
        self.waits = threading.Event()

    def __setitem__(self, epoch: int, output: Any) -> None:
        super().__setitem__(epoch, output)
        if not self.ends.is_set():
            self.waits.set()
            assert self.ends.wait(120)


class ReadAgain(StreamRun):
    """A query whose sink may do something in the middle of an epoch, and then runs its stage once more."""

    meanwhile: Callable[[], None] | None = None
    #: Seconds of that second time.
    again_s = 0.0

    def _keep(self, batch: DataFrame, epoch: int) -> None:
        super()._keep(batch, epoch)
        if self.meanwhile is not None:
            self.meanwhile()
            self.meanwhile = None
            begun = time.monotonic()
            super()._keep(batch, epoch)
            self.again_s = time.monotonic() - begun


class Departures(Commands):
    kind = ReadAgain
    run: ReadAgain

    def given_back(self, executor: str, total: int) -> list[str]:
        """Gives an executor back, as an autoscaler does, in an epoch that does not end; returns it."""
        self.run.outputs = self.sink = Sink(self.run.root / "outputs")
        self.sink.ends.clear()
        self.run.feed(rows(self.epoch))
        self.epoch += 1
        assert self.sink.waits.wait(60)
        link = self.run.attach()._link
        link.request_executors(total)
        return sorted(link.give_back_executors([executor]))

    def end_epoch(self) -> None:
        self.sink.ends.set()
        self.run.query.processAllAvailable()

    def another_query(self, root: str, executor: str) -> list[str]:
        """Places a partition of another query on the executor; returns where it runs."""
        other = StreamRun(self.spark, Path(root), counts)
        other.start()
        other.run(0, 1)
        migration = other.attach().rescale(3, strategy=binshift.AllAtOnce(), place_on=[executor], prepare=False)
        finish(other, migration, 2)
        return sorted({e for on in other.attach()._placement().partitions for e in on})

    def drain(self, executor: str, epochs: int = 0, prepare: bool = False) -> dict[int, str]:
        """Drains an executor after a number of epochs; returns the targets of its partitions."""
        start = self.epoch + epochs if epochs else None
        places = self.run.attach()._placement().drained(executor)
        self.run.attach().drain(executor, start_epoch=start, prepare=prepare)
        return places

    def grow(self, partitions: int) -> None:
        self.run.attach().rescale(partitions, strategy=binshift.AllAtOnce(), prepare=False)

    def exclude(self) -> str:
        """Lets a task fail on an executor, so that Spark excludes it."""

        def fail(_: int) -> None:
            context = TaskContext.get()
            if context is not None and context.attemptNumber() == 0:
                raise OSError("fails on purpose")

        self.spark.sparkContext.parallelize([0], 1).foreach(fail)

        def excluded() -> list[str]:
            found = self.spark.sparkContext._jsc.sc().statusStore().executorList(True)
            return [found.apply(i).id() for i in range(found.size()) if found.apply(i).isExcluded()]

        assert until(lambda: len(excluded()) == 1), excluded()
        return excluded()[0]

    def occupy(self, executors: int) -> None:
        """Runs a task on each executor until it is freed."""
        folder = self.run.root / "busy"
        folder.mkdir()

        def wait(_: int) -> None:
            # The working directory of an executor of Spark is named by the executor's id.
            busy = folder / Path.cwd().name
            busy.touch()
            while busy.exists():
                time.sleep(0.05)

        job = self.spark.sparkContext.parallelize(range(executors), executors)
        threading.Thread(target=job.foreach, args=(wait,), daemon=True).start()
        assert until(lambda: len(list(folder.iterdir())) == executors)

    def free(self, *executors: str) -> None:
        for executor in executors:
            os.unlink(self.run.root / "busy" / executor)

    def lasted(self) -> float:
        """Seconds of the latest epoch."""
        return self.run.query.lastProgress.durationMs["triggerExecution"] / 1000

    def kill(self, executor: str) -> None:
        kill(self.run, executor)

    def decommission(self, executor: str) -> None:
        """Has Spark tell an executor to leave, as an autoscaler does."""
        jvm, context = self.spark._jvm, self.spark.sparkContext._jsc.sc()
        why = jvm.org.apache.spark.scheduler.ExecutorDecommissionInfo("asked to", jvm.scala.Option.empty())
        assert context.schedulerBackend().decommissionExecutor(executor, why, False, False)

    def replace_within(self, executor: str, executors: int) -> float:
        """Replaces one of `executors` within an epoch; returns the seconds that the rest of it takes."""

        def meanwhile() -> None:
            self.kill(executor)
            self.await_executors(executors)

        self.run.meanwhile = meanwhile
        self.epochs(1)
        assert self.run.meanwhile is None
        return self.run.again_s

    def finished(self, most: int) -> bool:
        """True if no migration is under way after so many epochs at most."""
        for _ in range(most):
            if self.run.attach().migration() is None:
                return True
            self.epochs(1)
        return self.run.attach().migration() is None


if __name__ == "__main__":
    serve(Departures)
