"""The course of one run: warm up, act, watch, compare."""

from __future__ import annotations

import shutil
import statistics
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql.streaming.query import StreamingQuery

import binshift
from binshift import savepoints
from openloop.action import STRATEGIES, Action, Result
from openloop.copying import copy_seconds
from openloop.feed import Feed
from openloop.resources import Others
from openloop.timeline import Epoch, files_by_offset, latencies, timeline
from openloop.workload import Workload

if TYPE_CHECKING:
    from openloop.runner import Runner

__all__ = ["Run"]

#: How many epochs before the action must be without a backlog.
STEADY = 3


@dataclass(frozen=True, slots=True)
class Moments:
    """When a run began to act, when that was over, and when the last interval came; seconds since 1970."""

    acted: float
    over: float
    ended: float


class Run:
    """One run; used once."""

    def __init__(
        self, runner: Runner, load: Workload, action: Action, provider: str, bins: int, checkpoint: Path
    ) -> None:
        self._runner = runner
        self._load = load
        self._action = action
        self._checkpoint = checkpoint
        self._session = runner.session(provider, bins, action.before, load)
        self._input = load.stream_files(runner.scratch)
        self._watched = runner.watched(load)
        self._feed = Feed(self._input, self._watched)
        self._epochs: list[Epoch] = []
        self._first = load.fill_epochs(runner.scratch)
        self._copy_seconds = copy_seconds(checkpoint, runner.scratch)
        self._query = self._start(checkpoint)
        self._fork: StreamingQuery | None = None

    def measured(self, verify: bool) -> tuple[Result, pa.Table, pa.Table]:
        """Does the whole run."""
        phases = self._runner.phases
        actions = {
            "idle": self._idle,
            "rescale": self._rescale,
            "stock": self._stock,
            "savepoint": self._savepoint,
            "fork": self._make_fork,
        }
        others = Others()
        self._feed.start()
        self._await("steady epochs (the rate is too high)", self._is_steady)
        acted, fed = time.time(), self._feed.fed
        taken, bins = actions[self._action.kind]()
        over = time.time()
        until = max(self._feed.fed + phases.tail, fed + phases.window)
        self._await("the last intervals", lambda: self._feed.fed >= until or self._feed.is_exhausted)
        ended = time.time()
        if verify:
            self._await("the end of the input", lambda: self._feed.is_exhausted)
        self._feed.stop()
        self._catch_up()
        return self._result(Moments(acted, over, ended), taken, bins, others.share(), verify)

    def close(self) -> None:
        """Stops the query, and one on a fork."""
        self._feed.stop()
        self._query.stop()
        if self._fork is not None:
            self._fork.stop()
        shutil.rmtree(self._place_of_fork, ignore_errors=True)

    @property
    def _place_of_fork(self) -> Path:
        return self._checkpoint.with_name("fork")

    def _start(self, checkpoint: Path) -> StreamingQuery:
        pace = {"processingTime": f"{self._input.interval * 1000:.0f} milliseconds"}
        return self._runner.start(self._session, self._load, self._watched, checkpoint, pace)

    def _is_steady(self) -> bool:
        """True if enough epochs are over, and each of the last ones took the input of one interval."""
        phases = self._runner.phases
        if self._feed.is_exhausted:
            raise TimeoutError(
                "the query never kept up with the input (the rate is too high, or the machine too busy)"
            )
        if _last_epoch(self._query) < self._first + phases.cold + phases.steady:
            return False
        rows = [e.rows for e in timeline(self._query)]
        return len(rows) >= phases.cold + phases.steady and set(rows[-STEADY:]) == {min(rows)}

    def _idle(self) -> tuple[float, tuple[int, int, int]]:
        return 0.0, (0, 0, 0)

    def _rescale(self) -> tuple[float, tuple[int, int, int]]:
        action, begin = self._action, time.time()
        controller = binshift.attach(self._query)
        plan = controller.plan(action.after, strategy=STRATEGIES[action.strategy](action.size))
        report = controller.submit(plan, prepare=action.prepared).wait(self._runner.timeout)
        bins = (report.bins_prepared, report.bins_shipped, report.bins_from_checkpoint)
        return time.time() - begin, bins

    def _stock(self) -> tuple[float, tuple[int, int, int]]:
        # Stops in the pause before the next trigger, to interrupt no epoch.
        self._await("a pause (the rate is too high)", lambda: not self._query.status["isTriggerActive"])
        begin = time.time()
        self._epochs += timeline(self._query)
        self._query.stop()
        manager = self._session._streamingCheckpointManager
        manager.repartition(str(self._checkpoint), self._action.after, enforce_exactly_once_sink=True)
        self._query = self._start(self._checkpoint)
        self._await("the first epoch", lambda: bool(timeline(self._query)))
        return timeline(self._query)[0].committed - begin, (0, 0, 0)

    def _savepoint(self) -> tuple[float, tuple[int, int, int]]:
        begin = time.time()
        savepoints.create(self._checkpoint, "benchmark")
        return time.time() - begin, (0, 0, 0)

    def _make_fork(self) -> tuple[float, tuple[int, int, int]]:
        begin = time.time()
        savepoints.fork(self._checkpoint, self._place_of_fork)
        taken = time.time() - begin
        if self._action.starts:
            fork = self._fork = self._start(self._place_of_fork)
            self._await("the fork's first epoch", lambda: fork.lastProgress is not None)
        return taken, (0, 0, 0)

    def _catch_up(self) -> None:
        """Processes the input that has appeared, and lets the query evict rows that it made old."""
        self._query.processAllAvailable()
        self._epochs += timeline(self._query)
        self._query.stop()

    def _await(self, what: str, holds: Callable[[], bool]) -> None:
        deadline = time.monotonic() + self._runner.timeout
        while not holds():
            if not self._query.isActive:
                raise self._query.exception() or RuntimeError(f"the query stopped while {what} were awaited")
            if time.monotonic() > deadline:
                raise TimeoutError(f"{what} did not come in {self._runner.timeout} s")
            time.sleep(0.05)

    def _result(
        self,
        moments: Moments,
        taken: float,
        bins: tuple[int, int, int],
        others: float,
        verify: bool,
    ) -> tuple[Result, pa.Table, pa.Table]:
        waited = latencies(self._epochs, files_by_offset(self._checkpoint), self._feed.scheduled)
        cold = self._runner.phases.cold
        acted = moments.acted
        before = [e for e in self._epochs[cold:] if e.committed <= acted]
        after = [e for e in self._epochs if e.committed > acted]
        warm = self._epochs[cold - 1].committed
        calm = [r["latency"] for r in waited.to_pylist() if warm < r["scheduled"] + r["latency"] <= acted]
        during = [r["latency"] for r in waited.to_pylist() if r["scheduled"] + r["latency"] > acted]
        usage = self._runner.resources.usage(acted, moments.ended)
        digest = self._load.digest(self._session, self._checkpoint) if verify else ""
        result = Result(
            workload=self._load.name,
            action=self._action.name,
            steady_ms=statistics.median(e.took_ms for e in before),
            longest_ms=max(e.took_ms for e in after),
            steps_ms=max((e.took_ms for e in after if e.adopted), default=0),
            first_ms=next((e.took_ms for e in after if e.adopted or e.fetched), 0),
            most_ms=max(e.most_ms for e in after),
            steady_latency=statistics.median(calm),
            p99_latency=statistics.quantiles(during, n=100)[-1] if len(during) > 1 else max(during),
            longest_latency=max(during),
            acted=acted,
            epochs=sum(1 for e in after if e.began < moments.over),
            seconds=taken,
            bins=bins,
            window_seconds=moments.ended - acted,
            cpu_seconds=usage.cpu_seconds,
            written_bytes=usage.written_bytes,
            native_growth=usage.native_growth,
            heap_growth=usage.heap_growth,
            copy_seconds=self._copy_seconds,
            others=others,
            digest=digest,
        )
        return result, pa.Table.from_pylist([asdict(e) for e in self._epochs]), waited


def _last_epoch(query: StreamingQuery) -> int:
    """The newest epoch that the query reported, or -1."""
    progress = query.lastProgress
    return -1 if progress is None else progress.batchId
