"""Runs a query in real-time mode on one provider, and prints how long its records waited.

Records come at a rate that nothing slows down, and each one's latency counts from when it was due. After
some batches in which nothing happens, the number of partitions changes: live with binshift; with Spark's own
provider the query is stopped, its checkpoint repartitioned, and the query started again. Spark repartitions no
aggregation of this mode; a count on its provider has no such figure.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

import binshift
from binshift.session import PROVIDER_KEY, REAL_TIME_KEY
from openloop.session import session

__all__ = ["between_boundaries", "longest_gap"]

NS_PER_MS = 1_000_000
PATIENCE_SECONDS = 600
#: The time around a boundary between two batches, in which tasks end and begin.
BEFORE_NS, AFTER_NS = 500 * NS_PER_MS, 1500 * NS_PER_MS


class Flow:
    """A query whose state is filled, and into which records flow."""

    def __init__(self, spark: SparkSession, args: argparse.Namespace) -> None:
        self.args = args
        self.checkpoint = args.root / "checkpoint"
        self.spark = spark.newSession()
        self.spark.conf.unset(PROVIDER_KEY)
        self.spark.conf.set(REAL_TIME_KEY, str(args.provider == "binshift").lower())
        self.spark.conf.set("spark.sql.shuffle.partitions", str(args.partitions))
        self.jvm: Any = spark._jvm.binshift.benchmarks.RealTimeFlow  # type: ignore[union-attr]
        self.query = self._started(self.jvm.start)
        self.until(lambda: self.jvm.filledSoFar() >= args.keys, "the state to be filled")
        self.await_batches(1)
        self.jvm.flow(args.rate)
        # The first ones compile what runs for each record.
        self.await_batches(args.warm_up)

    def _started(self, start: Callable[..., Any]) -> StreamingQuery:
        args, checkpoint = self.args, str(self.checkpoint)
        session = self.spark._jsparkSession
        return StreamingQuery(start(session, args.operator, args.keys, checkpoint, f"{args.batch} seconds"))

    def until(self, condition: Callable[[], bool], what: str) -> None:
        deadline = time.monotonic() + PATIENCE_SECONDS
        while not condition():
            if not self.query.isActive:
                raise RuntimeError(f"the query has ended: {self.query.exception()}")
            if time.monotonic() > deadline:
                raise TimeoutError(f"waited in vain for {what}")
            time.sleep(0.02)

    @property
    def committed(self) -> int:
        """The newest epoch in the log of commits, -1 before the first."""
        return max((int(f.name) for f in (self.checkpoint / "commits").glob("[0-9]*")), default=-1)

    def await_batches(self, count: int) -> None:
        """Waits for so many more."""
        last = self.committed
        self.until(lambda: self.committed >= last + count, f"{count} batches")

    def outputs(self, since: int) -> list[tuple[int, int]]:
        """When each record came out from then on, and how late, in nanoseconds."""
        now = self.jvm.now()
        lines = (line.split() for line in self.jvm.lines().splitlines())
        return sorted((int(at), int(late)) for at, late in lines if since <= int(at) < now)

    def steady(self) -> dict[str, float]:
        """Latencies in batches in which nothing happens, and the longest time without a record, in ms."""
        since = self.jvm.now()
        self.await_batches(self.args.batches)
        outputs = self.outputs(since)
        late = [late / NS_PER_MS for _, late in outputs]
        return {
            "records": len(late),
            "p50_ms": percentile(late, 50),
            "p99_ms": percentile(late, 99),
            "p99_between_ms": percentile(between_boundaries(outputs, self.args.batches), 99),
            "boundary_ms": longest_gap([at for at, _ in outputs]),
        }

    def rescaled(self) -> float:
        """The longest time without a record from before the step until a batch after it, in milliseconds.

        A query runs for weeks; what the JVM does when it meets code for the first time is not measured.
        """
        for target in (self.args.to, self.args.partitions):
            self._rescale(target)
        since = self.jvm.now()
        self._rescale(self.args.to)
        return self.gap(since)

    def _rescale(self, target: int) -> None:
        controller = binshift.attach(self.query)
        controller.rescale(target, prepare=not self.args.sent).wait(PATIENCE_SECONDS)
        self.await_batches(1)
        assert controller.routing().partitions == target

    def repartitioned(self) -> float:
        """The same by Spark's own means."""
        since = self.jvm.now()
        self.query.stop()
        self.spark.conf.set("spark.sql.streaming.stateStore.checkpointFormatVersion", "2")
        manager: Any = self.spark._streamingCheckpointManager
        manager.repartition(str(self.checkpoint), self.args.to, enforce_exactly_once_sink=False)
        self.query = self._started(self.jvm.resume)
        self.await_batches(1)
        return self.gap(since)

    def gap(self, since: int) -> float:
        """The longest time without a record from then on, which may begin with it, in milliseconds."""
        return longest_gap([since, *(at for at, _ in self.outputs(since))])


def longest_gap(times: Sequence[int]) -> float:
    """The longest time between two that follow each other, in milliseconds of nanoseconds."""
    return max((b - a for a, b in pairwise(times)), default=0) / NS_PER_MS


def percentile(values: Sequence[float], share: int) -> float:
    """The value below which so many of a hundred are."""
    return sorted(values)[len(values) * share // 100]


def between_boundaries(outputs: Sequence[tuple[int, int]], boundaries: int) -> list[float]:
    """How late records were, in ms, that were due well after one of the longest gaps and before the next."""
    gaps = sorted(pairwise(at for at, _ in outputs), key=lambda gap: gap[0] - gap[1])[:boundaries]
    around = [(begin - BEFORE_NS, end + AFTER_NS) for begin, end in gaps]
    return [
        late / NS_PER_MS for at, late in outputs if not any(begin <= at - late <= end for begin, end in around)
    ]


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("root", type=Path)
    parser.add_argument("--provider", choices=["stock", "binshift"], default="binshift")
    parser.add_argument("--operator", choices=["count", "distinct"], default="distinct")
    parser.add_argument("--keys", type=int, default=100_000)
    parser.add_argument("--rate", type=int, default=500, help="records a second")
    parser.add_argument("--partitions", type=int, default=4)
    parser.add_argument("--to", type=int, default=8)
    parser.add_argument("--batch", type=int, default=6, help="seconds; Spark allows no less than 5")
    parser.add_argument(
        "--warm-up",
        type=int,
        default=10,
        help="batches before those measured, with all stores' first snapshots",
    )
    parser.add_argument(
        "--batches",
        type=int,
        default=11,
        help="that are measured while nothing happens; every tenth has snapshots",
    )
    parser.add_argument("--sent", action="store_true", help="bins are sent at the step, and not copied ahead")
    return parser.parse_args()


def main() -> None:
    args = arguments()
    args.root.mkdir(parents=True, exist_ok=True)
    # A slot for the reader and for each state partition, whatever the cores.
    master = f"local[{1 + max(args.partitions, args.to)}]"
    spark = session(args.root, master, "3g", **{"spark.sql.streaming.stopTimeout": "60s"})
    flow = Flow(spark, args)
    measured = flow.steady()
    if args.provider == "binshift":
        measured["change_ms"] = flow.rescaled()
    elif args.operator == "distinct":
        measured["change_ms"] = flow.repartitioned()
    flow.query.stop()
    sys.stdout.write(json.dumps(measured) + "\n")
    spark.stop()


if __name__ == "__main__":
    main()
