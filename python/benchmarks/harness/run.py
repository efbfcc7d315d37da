"""One run of a workload: warm up, act, watch, compare."""

from __future__ import annotations

import os
import shutil
import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

import binshift
from binshift.spark import BINS_KEY, CHANGELOG_KEY, PROVIDER, PROVIDER_KEY
from harness.feed import Feed
from harness.resources import Resources
from harness.timeline import Epoch, files_by_offset, latencies, timeline
from harness.workload import Workload

__all__ = ["STOCK", "Action", "Result", "Runner"]

STOCK = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
STRATEGIES: dict[str, Callable[[int], binshift.Strategy]] = {
    "all-at-once": lambda _: binshift.AllAtOnce(),
    "fluid": lambda _: binshift.Fluid(),
    "batched": binshift.Batched,
    "optimized": binshift.Optimized,
    "on-demand": lambda _: binshift.OnDemand(),
}


@dataclass(frozen=True, slots=True)
class Action:
    """What happens in the middle of a run.

    Parameters
    ----------
    kind : {'idle', 'rescale', 'stock'}
        Nothing, a live rescale, or Spark's own stop, offline repartition and restart.
    strategy : str
        A key of `STRATEGIES`.
    size : int
        Bins of a step, for strategies that take it.
    """

    kind: str = "idle"
    strategy: str = ""
    prepared: bool = True
    size: int = 128
    before: int = 4
    after: int = 8

    @property
    def name(self) -> str:
        """As a reader of the report sees it."""
        if self.kind != "rescale":
            return self.kind
        return f"{self.strategy}, {'prepared' if self.prepared else 'unprepared'}"


@dataclass(frozen=True, slots=True)
class Result:
    """What a run showed. Latencies are those of events, from when they were due to the commit of their epoch.

    `steady_*` are medians of the epochs before the action, `longest_*` the largest values from the action on.
    `steps_ms` is the longest epoch at which bins changed their owner, `seconds` the time of the whole action.
    """

    workload: str
    action: str
    steady_ms: float
    longest_ms: float
    steps_ms: float
    steady_latency: float
    p99_latency: float
    longest_latency: float
    acted: float
    epochs: int
    seconds: float
    bins: tuple[int, int, int]
    cpu_seconds: float
    written_bytes: int
    memory_growth: float
    digest: str

    @property
    def ratio(self) -> float:
        """Longest epoch ÷ median epoch."""
        return self.longest_ms / self.steady_ms

    @property
    def latency_ratio(self) -> float:
        """Largest latency ÷ steady latency."""
        return self.longest_latency / self.steady_latency

    @property
    def excess(self) -> float:
        """Largest latency beyond the steady one, seconds."""
        return self.longest_latency - self.steady_latency


@dataclass(frozen=True, slots=True)
class Phases:
    """Intervals of a run that are left out, that make the steady values, and that follow the action."""

    cold: int = 4
    steady: int = 8
    tail: int = 10


class Runner:
    """Runs workloads in one session, each from a copy of a checkpoint whose state was filled once."""

    def __init__(self, spark: SparkSession, scratch: Path, phases: Phases, timeout: float = 1800) -> None:
        self.spark = spark
        self._scratch = scratch
        self._phases = phases
        self._timeout = timeout
        self._resources = Resources(spark)

    def run(
        self, load: Workload, action: Action, provider: str = PROVIDER, bins: int = 1024, verify: bool = False
    ) -> tuple[Result, pa.Table, pa.Table]:
        """The result, its epochs and the latencies of its files."""
        filled = self._filled(load, provider, bins, action.before)
        with self._copied(filled) as checkpoint:
            one = _Run(self, load, action, provider, bins, checkpoint)
            try:
                return one.measured(verify)
            finally:
                one.close()

    def throughput(self, load: Workload, provider: str, bins: int, partitions: int = 4) -> list[float]:
        """Rows per second of each epoch, without the cold ones, when all of the input is there at once."""
        filled = self._filled(load, provider, bins, partitions)
        with self._copied(filled) as checkpoint:
            source, watched = load.stream_files(self._scratch), self.watched(load)
            files = [(part, file) for part in source.parts for file in sorted(part.glob("*.parquet"))]
            for part, file in files:
                os.link(file, watched / f"{part.name}-{file.name}")
            session = self.session(provider, bins, partitions, load)
            per_epoch = len(files) // len(source.parts)
            query = self.start(
                session, load, watched, checkpoint, {"availableNow": True}, maxFilesPerTrigger=str(per_epoch)
            )
            if not query.awaitTermination(self._timeout):
                raise TimeoutError(f"{load.name} took longer than {self._timeout} s")
            # Not the rows that Spark reports: those of a query that reads its input twice count twice.
            return [1000 * source.rows / e.took_ms for e in timeline(query)[self._phases.cold :]]

    def _filled(self, load: Workload, provider: str, bins: int, partitions: int) -> Path:
        """A checkpoint with the state, as snapshots, as maintenance leaves it in a query that runs long."""
        name = f"{load.name}-{bins if provider == PROVIDER else 'stock'}-{partitions}"
        checkpoint = self._scratch / f"checkpoint-{name}"
        if checkpoint.exists():
            return checkpoint
        making = checkpoint.with_name(f"making-{name}")
        shutil.rmtree(making, ignore_errors=True)
        session = self.session(provider, bins, partitions, load)
        session.conf.set(CHANGELOG_KEY, "false")
        watched = self.watched(load)
        query = self.start(session, load, watched, making, {"availableNow": True}, maxFilesPerTrigger="1")
        if not query.awaitTermination(self._timeout):
            raise TimeoutError(f"filling the state of {load.name} took longer than {self._timeout} s")
        self.forget_stores()
        return making.rename(checkpoint)

    @contextmanager
    def _copied(self, filled: Path) -> Iterator[Path]:
        """A copy of a checkpoint for one run, and no store left open after it."""
        checkpoint = self._scratch / "checkpoint"
        shutil.rmtree(checkpoint, ignore_errors=True)
        shutil.copytree(filled, checkpoint)
        os.sync()  # so that the copy is not written to disk during the run
        try:
            yield checkpoint
        finally:
            self.forget_stores()
            shutil.rmtree(checkpoint, ignore_errors=True)

    def watched(self, load: Workload) -> Path:
        """The directory that queries read, with the input that fills the state.

        Always at the same path, since a query that starts again reads the files of its last epoch.
        """
        directory = self._scratch / "watched"
        shutil.rmtree(directory, ignore_errors=True)
        directory.mkdir()
        for file in load.fill_files(self._scratch).iterdir():
            os.link(file, directory / f"fill-{file.name}")
        return directory

    def session(self, provider: str, bins: int, partitions: int, load: Workload) -> SparkSession:
        """A session whose queries keep their state with `provider`."""
        session = self.spark.newSession()
        session.conf.set(PROVIDER_KEY, provider)
        session.conf.set(BINS_KEY, str(bins))
        session.conf.set("spark.sql.shuffle.partitions", str(partitions))
        for key, value in load.conf.items():
            session.conf.set(key, value)
        return session

    def start(
        self,
        session: SparkSession,
        load: Workload,
        directory: Path,
        checkpoint: Path,
        trigger: dict[str, Any],
        **options: str,
    ) -> StreamingQuery:
        """The workload's query over the files of a directory."""
        stream = (
            session.readStream.format("parquet").schema(load.schema).options(**options).load(str(directory))
        )
        writer = load.build(stream).writeStream.outputMode(load.mode).format("noop").trigger(**trigger)
        return writer.option("checkpointLocation", str(checkpoint)).start()

    def forget_stores(self) -> None:
        """Closes the stores of queries that have ended, which would stay until the next maintenance."""
        self.spark._jvm.org.apache.spark.sql.execution.streaming.state.StateStore.stop()

    def close(self) -> None:
        """Ends the sampling; the session stays."""
        self._resources.stop()


class _Run:
    """The course of one run."""

    def __init__(
        self, runner: Runner, load: Workload, action: Action, provider: str, bins: int, checkpoint: Path
    ) -> None:
        self._runner = runner
        self._load = load
        self._action = action
        self._checkpoint = checkpoint
        self._session = runner.session(provider, bins, action.before, load)
        self._input = load.stream_files(runner._scratch)
        self._watched = runner.watched(load)
        self._feed = Feed(self._input, self._watched)
        self._epochs: list[Epoch] = []
        self._query = self._start()

    def measured(self, verify: bool) -> tuple[Result, pa.Table, pa.Table]:
        """Runs all of it."""
        phases = self._runner._phases
        self._feed.start()
        self._await("the first intervals", lambda: self._feed.fed >= phases.cold + phases.steady)
        steady_end = acted = time.time()
        taken, bins = getattr(self, f"_{self._action.kind}")()
        ended = time.time()
        until = self._feed.fed + phases.tail
        self._await("the last intervals", lambda: self._feed.fed >= until or self._feed.is_exhausted)
        if verify:
            self._await("the end of the input", lambda: self._feed.is_exhausted)
        self._feed.stop()
        self._catch_up()
        return self._result(steady_end, acted, ended, taken, bins, verify)

    def close(self) -> None:
        """Stops the query."""
        self._feed.stop()
        self._query.stop()

    def _start(self) -> StreamingQuery:
        pace = {"processingTime": f"{self._input.interval * 1000:.0f} milliseconds"}
        return self._runner.start(self._session, self._load, self._watched, self._checkpoint, pace)

    def _idle(self) -> tuple[float, tuple[int, int, int]]:
        begin = self._feed.fed
        self._await("idle intervals", lambda: self._feed.fed >= begin + self._runner._phases.tail)
        return 0.0, (0, 0, 0)

    def _rescale(self) -> tuple[float, tuple[int, int, int]]:
        action, begin = self._action, time.time()
        controller = binshift.attach(self._query)
        plan = controller.plan(partitions=action.after, strategy=STRATEGIES[action.strategy](action.size))
        report = controller.submit(plan, prepare=action.prepared).wait(self._runner._timeout)
        bins = (report.bins_prepared, report.bins_shipped, report.bins_from_checkpoint)
        return time.time() - begin, bins

    def _stock(self) -> tuple[float, tuple[int, int, int]]:
        # A stop in the pause before the next trigger interrupts no epoch.
        self._await("a pause (the rate is too high)", lambda: not self._query.status["isTriggerActive"])
        begin = time.time()
        self._epochs += timeline(self._query)
        self._query.stop()
        manager = self._session._streamingCheckpointManager
        manager.repartition(str(self._checkpoint), self._action.after, enforce_exactly_once_sink=True)
        self._query = self._start()
        self._await("the first epoch", lambda: bool(timeline(self._query)))
        return timeline(self._query)[0].committed - begin, (0, 0, 0)

    def _catch_up(self) -> None:
        """Processes what has appeared, and lets the query evict what that made old."""
        self._query.processAllAvailable()
        self._epochs += timeline(self._query)
        self._query.stop()

    def _await(self, what: str, holds: Callable[[], bool]) -> None:
        deadline = time.monotonic() + self._runner._timeout
        while not holds():
            if not self._query.isActive:
                raise self._query.exception() or RuntimeError(f"the query stopped while {what} were awaited")
            if time.monotonic() > deadline:
                raise TimeoutError(f"{what} did not come in {self._runner._timeout} s")
            time.sleep(0.05)

    def _result(
        self,
        steady_end: float,
        acted: float,
        ended: float,
        taken: float,
        bins: tuple[int, int, int],
        verify: bool,
    ) -> tuple[Result, pa.Table, pa.Table]:
        waited = latencies(self._epochs, files_by_offset(self._checkpoint), self._feed.scheduled)
        cold = self._runner._phases.cold
        before = [e for e in self._epochs[cold:] if e.committed <= steady_end]
        after = [e for e in self._epochs if e.committed > acted]
        calm = [r for r in waited.to_pylist() if r["scheduled"] + r["latency"] <= steady_end]
        during = [r["latency"] for r in waited.to_pylist() if r["scheduled"] + r["latency"] > acted]
        usage = self._runner._resources.usage(acted, ended)
        digest = self._load.digest(self._session, self._checkpoint) if verify else ""
        result = Result(
            workload=self._load.name,
            action=self._action.name,
            steady_ms=statistics.median(e.took_ms for e in before),
            longest_ms=max(e.took_ms for e in after),
            steps_ms=max((e.took_ms for e in after if e.adopted), default=0),
            steady_latency=statistics.median(r["latency"] for r in calm[cold:]),
            p99_latency=statistics.quantiles(during, n=100)[-1] if len(during) > 1 else max(during),
            longest_latency=max(during),
            acted=acted,
            epochs=sum(1 for e in after if e.began < ended),
            seconds=taken,
            bins=bins,
            cpu_seconds=usage.cpu_seconds,
            written_bytes=usage.written_bytes,
            memory_growth=usage.memory_growth,
            digest=digest,
        )
        return result, pa.Table.from_pylist([asdict(e) for e in self._epochs]), waited
