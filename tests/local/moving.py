"""Runs a query while its bins move, several times and anywhere, and compares it with Spark's own provider."""

from __future__ import annotations

import json
import os
import random
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from binshift import AllAtOnce, RoutingTable
from binshift.session import PROVIDER
from harness import STOCK, Row, StreamRun
from local.compositions import epoch_rows, table
from local.settings import ONE_EPOCH


@dataclass(frozen=True)
class Case:
    """A query from columns (k, v, t), its output mode, what is done with its batches, and settings."""

    build: Callable[[DataFrame], DataFrame]
    mode: str = "append"
    sink: str = "collected"
    conf: Mapping[str, str] = field(default_factory=dict)


def collected(batch: DataFrame) -> list[Row]:
    return [tuple(r) for r in batch.collect()]


def taken_twice(batch: DataFrame) -> list[Row]:
    return [(batch.count(),), *collected(batch)]


def processed(batch: DataFrame) -> list[Row]:
    """Several actions, with batch operators that may take the stream's partitioning for granted."""
    static = table(batch, "hashed").hint("merge")
    other = table(batch, "bucketed").hint("shuffle_hash")
    doubled = batch.repartition(2, "k").union(batch)
    last = F.row_number().over(Window.partitionBy("k").orderBy(F.col("v").desc()))
    return [
        *collected(batch.join(static, "k", "left").join(other, "k")),
        *collected(batch.hint("merge").join(doubled.groupBy("k").agg(F.count("*").alias("n")), "k")),
        *collected(batch.withColumn("place", last).where("place = 1").select("k", "v")),
    ]


def kept_and_processed(batch: DataFrame) -> list[Row]:
    kept = batch.persist()
    try:
        return processed(kept)
    finally:
        kept.unpersist(blocking=True)


SINKS = {f.__name__: f for f in (collected, taken_twice, processed, kept_and_processed)}


class ComposedRun(StreamRun):
    """A run whose batches go through a sink of `SINKS`."""

    sink = "collected"

    def feed(self, data: Iterable[dict[str, Any]]) -> None:
        """Files are read in the order of their times, also where many are written at once."""
        number = len(list(self.input.glob("*.json")))
        temporary = self.root / "next"
        temporary.write_text("\n".join(json.dumps(r) for r in data))
        os.utime(temporary, (1e9 + number, 1e9 + number))
        os.replace(temporary, self.input / f"{number:06}.json")

    def _keep(self, batch: DataFrame, epoch: int) -> None:
        self.outputs[epoch] = sorted(SINKS[self.sink](batch), key=repr)


def move_bins(run: ComposedRun, rng: random.Random) -> None:
    """Any bin to any of one to five partitions, some of which may get none, unless bins are on their way."""
    controller = run.attach()
    if controller.migration() is None:
        bins, partitions = controller.routing().bins, rng.randint(1, 5)
        owners = tuple(rng.randrange(partitions) for _ in range(bins))
        plan = controller.plan(RoutingTable(partitions, owners), strategy=AllAtOnce())
        controller.submit(plan, prepare=False)


def move_while_running(run: ComposedRun, epochs: int, rng: random.Random) -> None:
    """Two migrations at least; each takes effect two epochs after the one that it follows."""
    for epoch in range(epochs):
        run.feed(epoch_rows(epoch))
        run.query.processAllAvailable()
        if epoch in {0, 3} or rng.random() < 0.5:
            move_bins(run, rng)


def gives_what_spark_gives(stream: Any, case: Case, seed: int = 0, epochs: int | None = None) -> bool:
    """Fails if an epoch's output is another than Spark's; False if Spark does not run such a query."""
    rng = random.Random(seed)
    epochs = epochs or rng.choice((6, 7, 8))

    def made(name: str, provider: str) -> ComposedRun:
        conf = ONE_EPOCH | dict(case.conf)
        run = stream(case.build, f"{name}-{seed}", ComposedRun, mode=case.mode, provider=provider, conf=conf)
        run.sink = case.sink
        return run

    oracle, run = made("oracle", STOCK), made("run", PROVIDER)
    for epoch in range(epochs):
        oracle.feed(epoch_rows(epoch))
    try:
        oracle.start()
        run.start()
        move_while_running(run, epochs, rng)
        oracle.query.processAllAvailable()
        moved = run.attach().history().num_rows
    except Exception:
        if spark_fails(oracle):
            return False
        raise
    finally:
        run.stop()
        oracle.stop()
    assert run.outputs == oracle.outputs
    assert moved >= 2
    return True


def spark_fails(oracle: ComposedRun) -> bool:
    if oracle.query is None:
        return True
    try:
        oracle.query.processAllAvailable()
    except Exception:
        return True
    return False
