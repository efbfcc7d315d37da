"""Latency of a count in real-time mode, steady and around a step, next to Spark's own RocksDB provider.

Records come at a rate that nothing slows down; each one's latency counts from when it was due. Both
providers take turns, and a pair of runs gives a ratio. Then Spark's own means: stopped, repartitioned,
and started again.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

import binshift
from binshift.session import PROVIDER_KEY, REAL_TIME_KEY
from openloop.session import session

MS = 1_000_000


@dataclass(frozen=True, slots=True)
class Steady:
    """A run without a change, in milliseconds; `boundary` is the longest time without a record."""

    p50: float
    p99: float
    boundary: float


class Flow:
    """A query of one provider, and what came out of it."""

    def __init__(self, spark: SparkSession, args: argparse.Namespace, root: Path, provider: str) -> None:
        self.args, self.root = args, root
        self.spark = spark.newSession()
        self.spark.conf.unset(PROVIDER_KEY)
        self.spark.conf.set(REAL_TIME_KEY, str(provider == "binshift").lower())
        self.spark.conf.set("spark.sql.shuffle.partitions", str(args.partitions))
        self.jvm: Any = spark._jvm.binshift.benchmarks.RealTimeFlow  # type: ignore[union-attr]
        self.query = self._started(self.jvm.start)
        until(lambda: self.jvm.filledSoFar() >= args.keys, "the state to be filled", self.query)
        self.await_batches(1)
        self.jvm.flow(args.rate)
        self.await_batches(2)

    def _started(self, start: Callable[..., Any]) -> StreamingQuery:
        checkpoint = str(self.root / "checkpoint")
        return StreamingQuery(start(self.spark._jsparkSession, self.args.keys, checkpoint, self.args.batch))

    @property
    def committed(self) -> int:
        """The newest epoch in the log of commits, -1 before the first."""
        commits = (self.root / "checkpoint/commits").glob("[0-9]*")
        return max((int(f.name) for f in commits), default=-1)

    def await_batches(self, count: int) -> None:
        """Waits for so many more."""
        last = self.committed
        until(lambda: self.committed >= last + count, f"{count} batches", self.query)

    def outputs(self, since: int, to: int) -> list[tuple[int, int]]:
        """When each record came out, and how late, in nanoseconds."""
        lines = [tuple(map(int, line.split())) for line in self.jvm.lines().splitlines()]
        return sorted((at, late) for at, late in lines if since <= at < to)

    def steady(self, batches: int) -> Steady:
        """Measures so many batches, with the boundaries between them."""
        since = self.jvm.now()
        self.await_batches(batches)
        outputs = self.outputs(since, self.jvm.now())
        late = sorted(late / MS for _, late in outputs)
        return Steady(late[len(late) // 2], late[len(late) * 99 // 100], longest_gap(outputs))

    def rescaled(self, partitions: int) -> float:
        """The longest time without a record while the query goes to so many partitions, milliseconds."""
        since = self.jvm.now()
        binshift.attach(self.query).rescale(partitions).wait(1200)
        self.await_batches(1)
        return longest_gap(self.outputs(since, self.jvm.now()))

    def repartitioned(self, partitions: int) -> float:
        """The same by Spark's own means."""
        since = self.jvm.now()
        self.query.stop()
        self.spark.conf.set("spark.sql.streaming.stateStore.checkpointFormatVersion", "2")
        manager: Any = self.spark._streamingCheckpointManager
        manager.repartition(str(self.root / "checkpoint"), partitions, enforce_exactly_once_sink=False)
        self.query = self._started(self.jvm.resume)
        self.await_batches(1)
        return longest_gap(self.outputs(since, self.jvm.now()))


def longest_gap(outputs: list[tuple[int, int]]) -> float:
    times = [at for at, _ in outputs]
    return max(b - a for a, b in pairwise(times)) / MS


def until(condition: Callable[[], bool], what: str, query: StreamingQuery | None = None) -> None:
    deadline = time.monotonic() + 1200
    while not condition():
        if query is not None and not query.isActive:
            raise RuntimeError(f"the query ended: {query.exception()}")
        if time.monotonic() > deadline:
            raise TimeoutError(f"waited in vain for {what}")
        time.sleep(0.02)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--keys", type=int, default=1_000_000)
    parser.add_argument("--rate", type=int, default=500, help="records a second")
    parser.add_argument("--partitions", type=int, default=4)
    parser.add_argument("--to", type=int, default=8)
    parser.add_argument("--batch", default="10 seconds")
    parser.add_argument("--batches", type=int, default=4, help="of each steady run")
    parser.add_argument("--pairs", type=int, default=3)
    args = parser.parse_args()
    found: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as scratch:
        slots = args.to + 1
        spark = session(
            Path(scratch), f"local[{slots}]", memory="3g", **{"spark.sql.streaming.stopTimeout": "60s"}
        )
        for pair in range(args.pairs):
            record: dict[str, Any] = {}
            for provider in ("stock", "binshift") if pair % 2 == 0 else ("binshift", "stock"):
                flow = Flow(spark, args, Path(scratch) / f"{pair}-{provider}", provider)
                steady = flow.steady(args.batches)
                change = flow.rescaled if provider == "binshift" else flow.repartitioned
                record[provider] = {**asdict(steady), "change": change(args.to)}
                flow.query.stop()
                print(json.dumps({provider: record[provider]}), flush=True)
            found.append(record)
    for name in ("p50", "p99", "boundary"):
        ratios = [r["binshift"][name] / r["stock"][name] for r in found]
        print(
            f"{name}: binshift ÷ stock {statistics.median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f})"
        )
    for provider in ("binshift", "stock"):
        ratios = [r[provider]["change"] / r[provider]["boundary"] for r in found]
        print(f"{provider}: the longest gap of a change ÷ of a boundary {statistics.median(ratios):.2f}")


if __name__ == "__main__":
    main()
