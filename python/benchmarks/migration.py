"""How long an epoch takes while a query that counts keys goes from 4 to 8 state partitions.

The state is filled once per provider and number of keys; each run begins with a copy of that checkpoint
and gets the same rows per epoch, keys drawn uniformly. Runs take turns: each strategy, prepared and
not; the query left alone (`idle`), whose ratio is what the machine's noise makes of it; and Spark's own
provider (`stock`), which has to be stopped, repartitioned and started again.
"""

from __future__ import annotations

import argparse
import math
import os
import shutil
import statistics
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

import matplotlib as mpl
from pyspark.sql import SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.query import StreamingQuery

import binshift
from binshift.spark import CHANGELOG_KEY, PROVIDER, PROVIDER_KEY

mpl.use("Agg")
import matplotlib.pyplot as plt

STOCK = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
BEFORE, AFTER = 4, 8
STRATEGIES: dict[str, binshift.Strategy] = {
    "all-at-once": binshift.AllAtOnce(),
    "batched": binshift.Batched(128),
    "on-demand": binshift.OnDemand(),
    "fluid": binshift.Fluid(),
}
#: Keys that one epoch brings while the state is filled.
FILL = 2_000_000
#: Epochs of a run that are left out, those that make its median, and those watched after the migration.
COLD, STEADY, TAIL = 4, 8, 10
HEADER = (
    f"{'keys':>9} {'run':<23}{'median_ms':>10}{'longest_ms':>11}{'ratio':>8}{'excess_ms':>10}{'step_ms':>8}"
    f"{'epochs':>7}{'seconds':>8}{'prepared':>9}{'shipped':>8}{'checkpoint':>11}{'rss':>6}"
)


@dataclass
class Run:
    """What one run showed. `step_ms` is the longest epoch at which bins changed their owner."""

    keys: int
    name: str
    steady_ms: float = 0
    longest_ms: float = 0
    step_ms: float = 0
    epochs: float = 0
    seconds: float = 0
    bins: tuple[int, int, int] = (0, 0, 0)
    rss: float = math.nan
    submitted: float = 0
    watched: int = 0
    line: list[Any] = field(default_factory=list)  # progress of each epoch

    @property
    def ratio(self) -> float:
        """Longest epoch, in median epochs."""
        return self.longest_ms / self.steady_ms

    @property
    def excess_ms(self) -> float:
        """What the longest epoch took beyond a median one."""
        return self.longest_ms - self.steady_ms

    def show(self, more: str = "") -> None:
        """Prints the run as a line of the table."""
        prepared, shipped, checkpoint = self.bins
        print(
            f"{self.keys:>9} {self.name:<23}{self.steady_ms:>10.0f}{self.longest_ms:>11.0f}{self.ratio:>8.2f}"
            f"{self.excess_ms:>10.0f}{self.step_ms:>8.0f}{self.epochs:>7.0f}{self.seconds:>8.1f}{prepared:>9}"
            f"{shipped:>8}{checkpoint:>11}{self.rss:>6.2f}{more}",
            flush=True,
        )


@dataclass(frozen=True)
class Workload:
    """A stream of keys, counted."""

    spark: SparkSession
    scratch: Path
    keys: int
    args: argparse.Namespace

    @property
    def fills(self) -> int:
        """Epochs that fill the state."""
        return math.ceil(self.keys / FILL)

    @property
    def filled_rows(self) -> int:
        """Rows of these epochs."""
        return self.fills * math.ceil(self.keys / self.fills)

    def fill(self, provider: str) -> Path:
        """A checkpoint with all keys, as snapshots, as maintenance leaves them in a query that runs long."""
        checkpoint = self.scratch / f"{self.keys}-{provider}"
        session = self.session(provider)
        session.conf.set(CHANGELOG_KEY, "false")
        for _ in range(self.fills):
            rows = self.filled_rows // self.fills
            query = self._start(session, checkpoint, rows, "value", availableNow=True)
            if not query.awaitTermination(self.args.timeout):
                raise TimeoutError(f"filling the state took longer than {self.args.timeout} s")
        self.forget_stores()
        return checkpoint

    @contextmanager
    def running(self, provider: str, checkpoint: Path) -> Iterator[StreamingQuery]:
        """The query at its steady pace."""
        pace = f"{self.args.trigger * 1000:.0f} milliseconds"
        session = self.session(provider)
        query = self._start(session, checkpoint, self.args.rows, "xxhash64(value)", processingTime=pace)
        try:
            yield query
        finally:
            query.stop()

    @contextmanager
    def copied(self, filled: Path) -> Iterator[Path]:
        """A copy of a checkpoint for one run, and no store left open after it."""
        checkpoint = self.scratch / "checkpoint"
        shutil.copytree(filled, checkpoint)
        os.sync()  # so that the copy is not written to disk during the run
        try:
            yield checkpoint
        finally:
            self.forget_stores()
            shutil.rmtree(checkpoint)

    def session(self, provider: str) -> SparkSession:
        """A session whose queries keep their state with `provider`."""
        session = self.spark.newSession()
        session.conf.set(PROVIDER_KEY, provider)
        return session

    def forget_stores(self) -> None:
        """Closes the stores of queries that have ended, which would stay until the next maintenance."""
        self.spark._jvm.org.apache.spark.sql.execution.streaming.state.StateStore.stop()

    def _start(
        self, session: SparkSession, checkpoint: Path, rows: int, key: str, **trigger: Any
    ) -> StreamingQuery:
        source = session.readStream.format("rate-micro-batch").option("rowsPerBatch", rows)
        stream = source.option("numPartitions", 2).option("advanceMillisPerBatch", 1000).load()
        counts = stream.groupBy(F.expr(f"pmod({key}, {self.keys}L)").alias("key")).count()
        writer = counts.writeStream.outputMode("update").format("noop").trigger(**trigger)
        return writer.option("checkpointLocation", str(checkpoint)).start()


class Memory(threading.Thread):
    """Samples the resident memory of the driver's JVM."""

    def __init__(self, spark: SparkSession) -> None:
        super().__init__(daemon=True)
        self._status = Path(f"/proc/{spark._jvm.java.lang.ProcessHandle.current().pid()}/status")
        self._samples: list[tuple[float, int]] = []
        self.start()

    def run(self) -> None:
        """Samples as long as the JVM lives."""
        while self._status.exists():
            lines = self._status.read_text().splitlines()
            self._samples += [(time.time(), int(s.split()[1])) for s in lines if s.startswith("VmRSS:")]
            time.sleep(0.2)

    def growth(self, begin: float, end: float) -> float:
        """The peak between two moments ÷ what it was just before."""
        before = [kib for at, kib in self._samples if at < begin]
        during = [kib for at, kib in self._samples if begin <= at <= end]
        return max(during) / before[-1] if before and during else math.nan


def main() -> None:
    args = arguments()
    with tempfile.TemporaryDirectory(dir=args.scratch, ignore_cleanup_errors=True) as scratch:
        spark = session(args, scratch)
        memory = Memory(spark)
        print(HEADER)
        runs: list[Run] = []
        for keys in args.keys:
            runs += measure(Workload(spark, Path(scratch), keys, args), memory)
        spark.stop()
    summarise(runs)
    if args.picture:
        draw([r for r in runs if r.keys == max(args.keys)], args.picture)


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--keys", type=int, nargs="+", default=[10_000_000])
    parser.add_argument("--rows", type=int, default=20_000, help="rows per epoch")
    parser.add_argument("--trigger", type=float, default=1.0, help="seconds from epoch to epoch")
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--strategies", nargs="+", choices=STRATEGIES, default=["all-at-once", "batched"])
    parser.add_argument("--fluid", action="store_true", help="add fluid: 512 steps, an epoch or more each")
    parser.add_argument("--master", default="local[2]")
    parser.add_argument("--memory", default="10g", help="of the driver")
    parser.add_argument("--scratch", type=Path, help="parent of the directory for all data")
    parser.add_argument("--timeout", type=float, default=3600.0, help="seconds that any one wait may take")
    parser.add_argument("--picture", type=Path, help="where to draw the epochs of the first repetition")
    parser.add_argument("--quick", action="store_true", help="a small run, to see that it works")
    if parser.parse_args().quick:
        parser.set_defaults(keys=[200_000], rows=2_000, trigger=0.3, repeat=1, timeout=600.0)
    args = parser.parse_args()
    if args.fluid and "fluid" not in args.strategies:
        args.strategies = [*args.strategies, "fluid"]
    return args


def session(args: argparse.Namespace, scratch: str) -> SparkSession:
    options = {
        "spark.driver.memory": args.memory,
        "spark.local.dir": scratch,
        "spark.log.level": "OFF",
        "spark.sql.shuffle.partitions": BEFORE,
        "spark.sql.streaming.numRecentProgressUpdates": 10_000,
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
    }
    return binshift.configure(SparkSession.builder.master(args.master).config(map=options), 1024).getOrCreate()


def measure(load: Workload, memory: Memory) -> list[Run]:
    """All runs with one number of keys, in another order at each turn."""
    own, stocks = load.fill(PROVIDER), load.fill(STOCK)
    names = load.args.strategies
    kinds: list[tuple[Path, Callable[..., Run], Any]] = [
        (own, live, (name, prepare)) for name in names for prepare in (True, False)
    ]
    with load.copied(own) as checkpoint:  # for the JVM to warm up; its times do not count
        trial = live(load, checkpoint, memory, names[0], True)
        verify(load, checkpoint, trial)
    runs: list[Run] = []
    for turn in range(load.args.repeat):
        longest = max(r.watched for r in [trial, *runs])
        order = [*kinds, (own, idle, (longest,)), (stocks, stock, ())]
        shift = turn * len(order) // load.args.repeat
        for filled, kind, more in order[shift:] + order[:shift]:
            with load.copied(filled) as checkpoint:
                runs.append(kind(load, checkpoint, memory, *more))
            runs[-1].show()
    shutil.rmtree(own)
    shutil.rmtree(stocks)
    return runs


def live(load: Workload, checkpoint: Path, memory: Memory, name: str, prepare: bool) -> Run:
    """A rescale of the running query."""
    with load.running(PROVIDER, checkpoint) as query:
        first = warm_up(load, query)
        begin = time.time()
        controller = binshift.attach(query)
        plan = controller.plan(partitions=AFTER, strategy=STRATEGIES[name])
        report = controller.submit(plan, prepare=prepare).wait(load.args.timeout)
        end = time.time()
        await_epoch(load, query, last_epoch(query) + TAIL)
        run = result(load, query, f"{name}, {'prepared' if prepare else 'unprepared'}", first, begin)
    run.epochs, run.seconds = (report.last_epoch or first) - first, end - begin
    run.bins = (report.bins_prepared, report.bins_shipped, report.bins_from_checkpoint)
    run.step_ms, run.rss = report.longest_epoch_ms, memory.growth(begin, end)
    return run


def idle(load: Workload, checkpoint: Path, memory: Memory, epochs: int) -> Run:
    """The same query, left alone."""
    with load.running(PROVIDER, checkpoint) as query:
        first = warm_up(load, query)
        begin = time.time()
        await_epoch(load, query, first + epochs)
        run = result(load, query, "idle", first, begin)
    run.rss = memory.growth(begin, time.time())
    return run


def stock(load: Workload, checkpoint: Path, memory: Memory) -> Run:
    """Spark's own way. Its longest epoch is the time from the stop to the next commit."""
    with load.running(STOCK, checkpoint) as query:
        first = warm_up(load, query)
        # A stop while the query waits for its next trigger interrupts no epoch.
        await_that(load, query, "a pause", lambda: not query.status["isTriggerActive"])
        begin = time.time()
        run = result(load, query, "stock", first, begin)
    manager = load.session(STOCK)._streamingCheckpointManager
    manager.repartition(str(checkpoint), AFTER, enforce_exactly_once_sink=True)
    with load.running(STOCK, checkpoint) as query:
        await_that(load, query, "the first epoch", lambda: bool(epochs_of(query)))
        after = epochs_of(query)[0]
        run.seconds = began(after) + milliseconds(after) / 1000 - begin
        await_epoch(load, query, after.batchId + TAIL)
        run.line += epochs_of(query)
    run.longest_ms, run.rss = run.seconds * 1000, memory.growth(begin, begin + run.seconds)
    return run


def result(load: Workload, query: StreamingQuery, name: str, first: int, begin: float) -> Run:
    """What the query's progress tells; the submission, at `begin`, came after epoch `first`."""
    line = epochs_of(query)
    steady = [milliseconds(p) for p in line[COLD:] if p.batchId <= first]
    watched = [milliseconds(p) for p in line if p.batchId > first]
    run = Run(load.keys, name, statistics.median(steady), max(watched, default=0))
    run.submitted, run.watched, run.line = begin, len(watched), line
    return run


def epochs_of(query: StreamingQuery) -> list[Any]:
    return [p for p in query.recentProgress if p.numInputRows > 0]


def began(progress: Any) -> float:
    return datetime.fromisoformat(progress.timestamp).timestamp()


def milliseconds(progress: Any) -> int:
    return progress.durationMs["triggerExecution"]


def last_epoch(query: StreamingQuery) -> int:
    progress = query.lastProgress
    return -1 if progress is None else progress.batchId


def warm_up(load: Workload, query: StreamingQuery) -> int:
    """Lets the query reach its pace; the newest epoch that is committed."""
    await_epoch(load, query, load.fills + COLD + STEADY - 1)
    return last_epoch(query)


def await_epoch(load: Workload, query: StreamingQuery, epoch: int) -> None:
    await_that(load, query, f"epoch {epoch}", lambda: last_epoch(query) >= epoch)


def await_that(load: Workload, query: StreamingQuery, what: str, holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + load.args.timeout
    while not holds():
        if not query.isActive:
            raise query.exception() or RuntimeError(f"the query stopped while {what} was awaited")
        if time.monotonic() > deadline:
            raise TimeoutError(f"{what} did not come in {load.args.timeout} s")
        time.sleep(0.05)


def verify(load: Workload, checkpoint: Path, run: Run) -> None:
    """Ends the benchmark if the state is not that of all rows fed until the run's last epoch."""
    fed = load.filled_rows + sum(p.numInputRows for p in run.line)
    state = load.spark.read.format("statestore").option("batchId", run.line[-1].batchId).load(str(checkpoint))
    keys, rows = state.agg(F.count("*"), F.sum("value.count")).first()
    if (keys, rows) != (load.keys, fed):
        raise SystemExit(f"WRONG: the state has {keys} keys and {rows} rows; {load.keys} and {fed} were fed")
    print(
        f"{load.keys:>9} the state after a trial ({run.name}) is that of the {fed} rows fed: correct",
        flush=True,
    )


def summarise(runs: list[Run]) -> None:
    """A line per kind of run, and the figures of the prepared strategies: medians of the repetitions."""
    kinds: dict[tuple[int, str], list[Run]] = {}
    for run in runs:
        kinds.setdefault((run.keys, run.name), []).append(run)
    print(f"\nmedians\n{HEADER}  ratio: median (min..max)")
    for (keys, name), same in kinds.items():
        mid = Run(keys, name, bins=same[0].bins)
        for column in ("steady_ms", "longest_ms", "step_ms", "epochs", "seconds", "rss"):
            setattr(mid, column, statistics.median(getattr(r, column) for r in same))
        ratios = [r.ratio for r in same]
        mid.show(f"  {statistics.median(ratios):.2f} ({min(ratios):.2f}..{max(ratios):.2f})")
    print()
    sizes = sorted({keys for keys, _ in kinds})
    for (keys, name), same in kinds.items():
        if name.endswith(", prepared"):
            aims(name, same, kinds[keys, "stock"])
            if keys == sizes[-1] != sizes[0]:
                low, high = (statistics.median(r.longest_ms for r in kinds[k, name]) for k in (sizes[0], keys))
                print(f"{name}: longest at {keys} keys / at {sizes[0]} keys {high / low:.2f}")


def aims(name: str, same: list[Run], stocks: list[Run]) -> None:
    ratio = statistics.median(r.ratio for r in same)
    pairs = zip(stocks, same, strict=True)
    gain = statistics.median(s.excess_ms / max(1.0, r.excess_ms) for s, r in pairs)
    print(f"{name}, {same[0].keys} keys: longest / median {ratio:.2f}, excess of stock / excess {gain:.0f}")


def draw(runs: list[Run], picture: Path) -> None:
    """Saves how long epochs took around the submission, in the first repetition."""
    figure, axes = plt.subplots(figsize=(9, 5), layout="constrained")
    colors = {
        "idle": "#888888",
        "batched, prepared": "#228833",
        "all-at-once, prepared": "#4477aa",
        "all-at-once, unprepared": "#ee6677",
        "stock": "#aa3377",
    }
    first = {r.name: r for r in reversed(runs)}
    for run in (first[name] for name in colors if name in first):
        color, label = colors[run.name], run.name
        line = [(began(p) - run.submitted, milliseconds(p) / 1000) for p in run.line[COLD:]]
        if run is first["stock"]:
            axes.axvspan(0, run.seconds, color=color, alpha=0.12, linewidth=0)
            line = sorted([*line, (0.0, math.nan)])
            label = f"stock: no epoch for {run.seconds:.0f} s"
        axes.plot(*zip(*line, strict=True), color=color, marker=".", linewidth=1, label=label)
    axes.set_yscale("log")
    axes.set_xlabel("time since the rescale was asked for, s")
    axes.set_ylabel("duration of an epoch, s")
    axes.set_title(f"{BEFORE} to {AFTER} state partitions, {runs[0].keys:,} keys")
    axes.legend(loc="upper right")
    figure.savefig(picture, dpi=120)
    plt.close(figure)


if __name__ == "__main__":
    main()
