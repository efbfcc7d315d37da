"""One driver process: has partitions placed, drains executors, kills one, and spreads the partitions again."""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import binshift
from cluster.driver import Outputs, await_executors
from devtools.executors import executor_processes
from harness import StreamRun, lose, session, until

#: Longer than Spark's default wait for a busy executor before it runs the task on an idle one.
SLOW_SECONDS = 4.0
#: The metrics of rows that are moved one by one, and of their bins.
COPIED = ("RowsAdopted", "BytesCopied", "BinsFromCheckpoint")


def main() -> None:
    root = Path(sys.argv[1])
    conf = {
        # A partition that moves has files of a snapshot.
        "spark.sql.streaming.stateStore.minDeltasForSnapshot": "2",
        "spark.decommission.enabled": "true",
    }
    spark = session("local-cluster[3,1,1024]", **conf)
    await_executors(spark)
    places = Places(StreamRun(spark, root, counts(root)), root)
    report = places.play()
    (root / "report.json").write_text(json.dumps(report))
    places.run.stop()
    spark.stop()


def counts(root: Path) -> Any:
    """Counts rows by key; while the file `slow` exists, the first row of each task takes long."""
    slow = str(root / "slow")

    def build(df: DataFrame) -> DataFrame:
        @F.udf("long")
        def waited(n: int, partition: int) -> int:
            if partition not in seen and os.path.exists(slow):
                time.sleep(SLOW_SECONDS)
            seen.add(partition)
            return n

        seen: set[int] = set()
        counted = df.groupBy("k").agg(F.count("*").alias("n"), F.sum("v").alias("total"))
        return counted.select("k", waited("n", F.spark_partition_id()).alias("n"), "total")

    return build


class Places:
    def __init__(self, run: StreamRun, root: Path) -> None:
        self.run, self.root, self.epoch = run, root, 0
        run.outputs = Outputs(root / "outputs")

    def play(self) -> dict[str, Any]:
        run = self.run
        run.start()
        self.go_on(2)
        executors = self.executors()
        # New partitions leave an executor that is busy for 3 s. Those that move do not, whatever is set.
        conf = run.spark.sparkContext._jsc.sc().conf()
        conf.set("spark.locality.wait", "1min")
        self.finish(run.attach().rescale(4, strategy=binshift.AllAtOnce(), place_on=[executors[0]]))
        self.go_on(1)
        conf.remove("spark.locality.wait")
        report: dict[str, Any] = {"executors": executors, "placed": self.where()}
        table, since = run.attach().routing(), self.epoch

        # An idle executor attracts tasks that wait for a slot elsewhere.
        (self.root / "slow").touch()
        drain = run.attach().drain(executors[0], prepare=False)
        report["misplaced"] = drain.status.misplaced
        self.finish(drain)
        report["drained"] = self.where()
        self.go_on(1)
        report["still_drained"] = self.where()
        (self.root / "slow").unlink()
        assert run.attach().routing() == table

        # Back to the old executors, with as many partitions, which stay as long as they can't be rebuilt.
        for file in (run.checkpoint / "state/0").glob(f"[0-9]/{self.epoch}.*"):
            lose(file)
        self.finish(run.attach().rebalance("bins"))
        report["balanced"] = self.where()
        copied = self.metric(since, *COPIED)
        report["fetched_ahead"] = self.metric(since, "FilesWarm")

        # The executor that gets partitions dies, and the query is stopped before it has run an epoch.
        drain = run.attach().drain(executors[1], place_on=[executors[2]])
        kill(run, executors[2])
        run.stop()
        run.start()
        self.go_on(1)
        migration = run.attach().migration()
        assert migration is not None
        assert migration.id == drain.id
        self.finish(migration)
        report["after_death"] = self.where()
        assert until(lambda: len(self.executors()) == 3)
        self.finish(run.attach().rebalance("bins"))
        report["replaced"] = self.where()
        report["executors_then"] = self.executors()
        ran_on = sorted(set(run.attach().stats()["executor"].to_pylist()))

        # An executor that Spark decommissions gets no tasks any more while it exists.
        gone = self.executors()[0]
        report["decommissioned"] = gone
        decommission(run.spark, gone)
        placement = run.attach()._placement()
        assert gone not in placement.executors + placement.idle
        if gone in placement.decommissioned:
            self.finish(run.attach().drain(gone))
        report["after_decommission"] = self.where()

        stats = run.attach().stats()
        return report | {
            "copied": copied + self.metric(0, *COPIED),
            "history": [r["bins_moved"] for r in run.attach().history().to_pylist()],
            "ran_on": ran_on,
            "state": [[*key, *value] for key, value in run.state()],
            "partitions": run.attach().routing().partitions,
            "keys": sum(stats["keys"].to_pylist()),
            "numRowsTotal": run.query.lastProgress.stateOperators[0].numRowsTotal,
            "metadata": [m.numPartitions for m in run.metadata()],
        }

    def metric(self, since: int, *names: str) -> int:
        """The sum of some metrics over the epochs of this run since the given one."""
        operators = [op for p in self.run.query.recentProgress if p.batchId >= since for op in p.stateOperators]
        return sum(op.customMetrics.get(f"binshift{name}", 0) for op in operators for name in names)

    def go_on(self, epochs: int) -> None:
        for _ in range(epochs):
            self.run.run(self.epoch)
            self.epoch += 1

    def finish(self, migration: binshift.Migration) -> None:
        while not migration.status.is_over:
            self.go_on(1)

    def where(self) -> list[list[str]]:
        return [list(executors) for executors in self.run.attach()._placement().partitions]

    def executors(self) -> list[str]:
        return list(self.run.attach()._placement().executors)


def decommission(spark: SparkSession, executor: str) -> None:
    """Decommissions the executor, so that Spark gives it no more tasks."""
    jvm = spark._jvm
    info = jvm.org.apache.spark.scheduler.ExecutorDecommissionInfo("a test", jvm.scala.Option.empty())
    spark.sparkContext._jsc.sc().schedulerBackend().decommissionExecutor(executor, info, False, False)


def kill(run: StreamRun, executor: str) -> None:
    """Kills the JVM of an executor of this application, and waits until Spark has noticed."""
    application = run.spark.sparkContext.applicationId
    os.kill(executor_processes(application)[executor], signal.SIGKILL)
    assert until(lambda: executor not in run.attach()._placement().executors)


if __name__ == "__main__":
    main()
