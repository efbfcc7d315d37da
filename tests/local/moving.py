"""Runs a query while its bins move, several times and anywhere, and compares it with Spark's own provider."""

from __future__ import annotations

import json
import os
import random
import threading
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
    """A query from columns (k, v, t), its output mode, its sink, and settings."""

    build: Callable[[DataFrame], DataFrame]
    mode: str = "append"
    sink: str = "collected"
    conf: Mapping[str, str] = field(default_factory=dict)


def collected(batch: DataFrame) -> list[Row]:
    return [tuple(r) for r in batch.collect()]


def taken_twice(batch: DataFrame) -> list[Row]:
    return [(batch.count(),), *collected(batch)]


def processed(batch: DataFrame) -> list[Row]:
    """A sink with several actions, whose batch operators may rely on the stream's partitioning."""
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
    """A run whose batches go through a sink of `SINKS`.

    A query with several sources looks for files once for each of them, one after the other. A file that
    comes meanwhile is in one epoch for some and in the next for others. So all files are there before the
    query starts. If the run goes `step_by_step`, a file comes while an epoch is open. The epoch waits for it.
    """

    sink = "collected"
    step_by_step = False

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._changed = threading.Condition()
        self._files = 0
        self._is_complete = False

    def feed(self, data: Iterable[dict[str, Any]]) -> None:
        """Writes a file with a time of its own, as files are read in the order of their times."""
        temporary = self.root / "next"
        temporary.write_text("\n".join(json.dumps(r) for r in data))
        os.utime(temporary, (1e9 + self._files, 1e9 + self._files))
        os.replace(temporary, self.input / f"{self._files:06}.json")
        with self._changed:
            self._files += 1
            self._changed.notify_all()

    def complete(self) -> None:
        """Marks the end of the input."""
        with self._changed:
            self._is_complete = True
            self._changed.notify_all()

    def await_output(self, epoch: int) -> None:
        """Waits until the sink has the epoch's batch; raises the query's error if it fails."""
        with self._changed:
            while epoch not in self.outputs:
                self._changed.wait(0.2)
                if not self.query.isActive:
                    self.query.processAllAvailable()

    def stop(self) -> None:
        self.complete()
        super().stop()

    def _keep(self, batch: DataFrame, epoch: int) -> None:
        with self._changed:
            files = self._files
        output = sorted(SINKS[self.sink](batch), key=repr)
        with self._changed:
            self.outputs[epoch] = output
            self._changed.notify_all()
            while self.step_by_step and self._files == files and not self._is_complete:
                self._changed.wait()


def move_bins(run: ComposedRun, rng: random.Random) -> None:
    """Unless a migration is under way, moves bins at random to one to five partitions; some may get none."""
    controller = run.attach()
    if controller.migration() is None:
        table = target = controller.routing()
        while target == table:
            partitions = rng.randint(1, 5)
            target = RoutingTable(partitions, tuple(rng.randrange(partitions) for _ in range(table.bins)))
        plan = controller.plan(target, strategy=AllAtOnce())
        controller.submit(plan, prepare=False)


def move_while_running(run: ComposedRun, epochs: int, rng: random.Random) -> None:
    """At least two migrations; each takes effect two epochs after its submission."""
    run.step_by_step = True
    run.feed(epoch_rows(0))
    run.start()
    for epoch in range(epochs):
        run.await_output(epoch)
        if epoch in {0, 3} or rng.random() < 0.5:
            move_bins(run, rng)
        if epoch + 1 < epochs:
            run.feed(epoch_rows(epoch + 1))
    run.complete()
    run.query.processAllAvailable()


def gives_what_spark_gives(stream: Any, case: Case, seed: int = 0, epochs: int | None = None) -> bool:
    """Fails if an epoch's output differs from Spark's; returns False if Spark can't run the query."""
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
    for epoch in sorted({*run.outputs, *oracle.outputs}):
        mine, expected = run.outputs.get(epoch), oracle.outputs.get(epoch)
        assert mine == expected, f"epoch {epoch} gave {mine}, and Spark gives {expected}"
    assert moved >= 2, f"{moved} steps were taken"
    return True


def spark_fails(oracle: ComposedRun) -> bool:
    if oracle.query is None:
        return True
    try:
        oracle.query.processAllAvailable()
    except Exception:
        return True
    return False
