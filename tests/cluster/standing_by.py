"""A commanded driver (see `commanded.py`) whose partitions have standbys."""

from __future__ import annotations

import os
import signal
import sys
from collections import defaultdict
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from binshift.planning.options import MigrationOptions
from cluster.commanded import Commands, serve
from devtools.executors import executor_processes
from harness import until

Lags = dict[int, tuple[str, int | None]]


class StandingBy(Commands):
    def __init__(self, *arguments: Any) -> None:
        # Executors that other tests have killed leave files.
        self.before = set(files_of_standbys())
        super().__init__(*arguments)

    def standbys(self) -> Lags:
        """The standby of each partition, and the number of versions that it lacks."""
        stats = self.run.attach().stats().to_pylist()
        found = {r["partition"]: (r["standby"], r["standby_lag"]) for r in stats}
        assert len(set(found.items())) == len({(r["partition"], r["standby"], r["standby_lag"]) for r in stats})
        return found

    def ready(self) -> list[str]:
        """Waits until each standby has all committed versions; returns the standby of each partition."""

        def are_there() -> bool:
            places = self.run.attach()._placement()
            return all(
                executor is not None
                and lag == 0
                and executor in places.executors
                and executor not in places.partitions[p]
                for p, (executor, lag) in self.standbys().items()
            )

        assert until(are_there, 120), f"{self.standbys()}, {self.run.attach()._placement()}"
        return [executor for _, (executor, _) in sorted(self.standbys().items())]

    def shared(self) -> dict[str, int]:
        """The number of standbys of each executor, once all are in their places."""
        counts: dict[str, int] = defaultdict(int)
        for executor in self.ready():
            counts[executor] += 1
        return counts

    def kill(self, executor: str, wait: bool = True) -> None:
        """Kills the JVM of an executor without notice, and waits until Spark has noticed."""
        self._signal(executor, signal.SIGKILL)
        if wait:
            assert until(lambda: executor not in self.executors())

    def cut_off(self, executor: str) -> None:
        """Stops an executor, so that it neither dies nor answers and Spark takes it for lost."""
        self._signal(executor, signal.SIGSTOP)
        jvm = self.spark._jvm
        lost = jvm.org.apache.spark.scheduler.ExecutorProcessLost("a test", jvm.scala.Option.empty(), False)
        self.spark.sparkContext._jsc.sc().schedulerBackend().removeExecutor(executor, lost)
        assert until(lambda: executor not in self.executors())

    def resume(self, executor: str) -> None:
        self._signal(executor, signal.SIGCONT)

    def taken_over(self) -> int:
        """The partitions that their standbys have taken over."""
        jvm = self.spark._jvm
        run = jvm.java.util.UUID.fromString(self.run.query.runId)
        router = jvm.org.apache.spark.sql.binshift.query.QueryRouters.known(run).get()
        return int(router.standbys().get().takenOver())

    def take_over(self, count: int) -> None:
        assert until(lambda: self.taken_over() >= count), f"{self.taken_over()} partitions, not {count}"

    def drain(self, executor: str) -> None:
        self.run.attach().drain(executor)

    def put(self, places: list[str]) -> None:
        """Asks for each partition to move to an executor."""
        controller = self.run.attach()
        options = MigrationOptions(places=dict(enumerate(places)))
        controller._submit(controller.plan(controller.routing()), options)

    def lags(self, lag: int | None) -> None:
        """Waits until each standby lacks so many versions."""
        assert until(lambda: {found for _, found in self.standbys().values()} == {lag}), self.standbys()

    def forgotten(self) -> None:
        """Waits, without epochs, until no executor has files of a partition that it doesn't run."""
        assert until(lambda: self._here() == 0, 30), f"{self._here()} files"

    def files(self, since: int) -> list[int]:
        """The files that loads found on their executors, and those that they fetched, since an epoch."""
        epochs = [p for p in self.run.query.recentProgress if p.batchId >= since and "addBatch" in p.durationMs]
        metrics = [op.customMetrics for p in epochs for op in p.stateOperators]
        return [sum(m[f"binshiftFiles{name}"] for m in metrics) for name in ("Warm", "Fetched")]

    def left_over(self) -> list[int]:
        """The standbys' files on this machine, while the query runs and after it has ended."""
        running = self._here()
        self.run.query.stop()
        self.forgotten()
        return [running, self._here()]

    def _here(self) -> int:
        return len(set(files_of_standbys()) - self.before)

    def _signal(self, executor: str, number: int) -> None:
        os.kill(executor_processes(self.spark.sparkContext.applicationId)[executor], number)


def files_of_standbys() -> list[Path]:
    return [*Path(os.environ["BINSHIFT_TESTS_TMP"]).rglob("binshift-standby*/*.*")]


if __name__ == "__main__":
    serve(StandingBy)
