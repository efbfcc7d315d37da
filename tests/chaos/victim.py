"""One driver process of a life, which may be killed: its query runs over all input, and always migrates.

Started again after it died, it goes on where the checkpoint is. When all input has been committed it writes the
state that it finds to `state.json`.
"""

from __future__ import annotations

import json
import os
import random
import sys
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from pyspark import SparkContext
from pyspark.sql import SparkSession

import binshift
from binshift import AllAtOnce, Batched, Fluid, OnDemand, Optimized, Strategy
from binshift.session import PROVIDER, PROVIDER_KEY
from chaos.life import CLUSTER, Life, committed
from chaos.limits import intent, limit
from harness import STOCK, StreamRun, session
from jvms import FAULTS
from local.queries import QUERIES

#: Makes Spark patient with executors that die all the time, and quick to ask another one.
PATIENCE = {
    "spark.deploy.maxExecutorRetries": "-1",
    "spark.task.maxFailures": "100",
    "spark.stage.maxConsecutiveAttempts": "100",
    "spark.locality.wait": "500ms",
    # A block of an executor that is gone is asked for three times, five seconds apart, unless this is set.
    "spark.shuffle.io.maxRetries": "1",
    "spark.shuffle.io.retryWait": "100ms",
    "spark.sql.streaming.stateStore.binshift.ship.timeout": "3s",
}


def main(root: Path, number: int) -> None:
    life = Life.load(root)
    rng = random.Random(f"{life.seed} {number}")
    os.environ["BINSHIFT_TESTS_TRACE"] = str(life.trace)
    spark = session(life.master, **PATIENCE, **slowed(life), **{"spark.jars": os.environ["CHAOS_JAR"]})
    assert SparkContext._gateway is not None
    (root / f"jvm-{number}").write_text(str(SparkContext._gateway.proc.pid))
    parent = os.getppid()
    while not (root / f"go-{number}").exists():
        if os.getppid() != parent:
            return
        time.sleep(0.02)
    is_stock = committed(life.root) < life.stock_epochs - 1
    run = kept(spark, life, STOCK if is_stock else PROVIDER, number).start()
    changes = Changes(run, rng, root / "plans.jsonl", drains=life.master == CLUSTER, deadlines=life.deadlines)
    (root / f"started-{number}").touch()
    if is_stock:
        run_stock_epochs(run, life)
    while (last := committed(life.root)) < life.epochs - 1:
        life.feed(last + 1)
        note_executors(spark, root, number)
        if not run.query.isActive:
            run.query.awaitTermination()
        try:
            changes.make()
        except binshift.BinshiftError as error:
            # The query may come to its end, or begin, while it is asked. Its own failure is raised above.
            note(root / "plans.jsonl", {"refused": str(error)})
        time.sleep(0.05)
    run.query.processAllAvailable()
    history = run.attach().history().to_pylist()
    (root / "state.json").write_text(json.dumps(state_of(run, life)))
    (root / "history.json").write_text(
        json.dumps({"steps": len(history), "bins": sum(h["bins_moved"] for h in history)})
    )
    run.stop()
    if life.gives_back:
        output = str(root / f"given-back-{number}")
        binshift.convert(str(run.checkpoint), to="rocksdb", output=output, spark=spark)
        given_back = run.states(QUERIES[life.operator].state, Path(output))
        (root / "given-back.json").write_text(json.dumps(given_back))
    spark.stop()


def slowed(life: Life) -> dict[str, str]:
    """Makes the drivers and executors of a life take their time at its slow instants."""
    folder = life.root / "faults"
    folder.mkdir(exist_ok=True)
    for point in life.slow:
        (folder / f"{point}.slow").touch()
    return {
        **FAULTS,
        "spark.binshift.tests.faults": str(folder),
    }


def run_stock_epochs(run: StreamRun, life: Life) -> None:
    """The first epochs of a life whose state is taken over; then starts the query on binshift's provider."""
    while (last := committed(life.root)) < life.stock_epochs - 1:
        life.feed(last + 1)
        run.query.processAllAvailable()
    run.stop()
    run.spark.conf.set(PROVIDER_KEY, PROVIDER)
    run.start()


def note_executors(spark: SparkSession, root: Path, number: int) -> None:
    """How many have registered; the driver is one of those that Spark names."""
    registered = spark.sparkContext._jsc.sc().getExecutorMemoryStatus().size() - 1
    # Two drivers may do so at once.
    temporary = root / f"executors.next-{number}"
    temporary.write_text(str(registered))
    os.replace(temporary, root / "executors")


def kept(spark: SparkSession, life: Life, provider: str, attempt: int) -> StreamRun:
    """The life's query; each epoch's output becomes a file, of this attempt and no other."""
    query = QUERIES[life.operator]
    run = StreamRun(spark, life.root, query.build, query.mode, provider, life.conf)
    run.outputs = Outputs(life.root / "outputs", attempt)
    return run


class Outputs(dict[int, Any]):
    """A file for each output that an epoch ever gave, in all runs: those of an epoch have to be the same."""

    def __init__(self, folder: Path, attempt: int) -> None:
        super().__init__()
        self.folder, self.attempt = folder, attempt
        folder.mkdir(exist_ok=True)

    def __setitem__(self, epoch: int, output: Any) -> None:
        temporary = self.folder / f"next-of-{self.attempt}"
        temporary.write_text(json.dumps(output, default=str))
        os.replace(temporary, self.folder / f"{epoch}-{self.attempt}.json")


def state_of(run: StreamRun, life: Life) -> list[list[str]]:
    return run.states(QUERIES[life.operator].state)


class Changes:
    """Submits a random change whenever none is under way; one that is, is sometimes cancelled or undone."""

    def __init__(
        self, run: StreamRun, rng: random.Random, notes: Path, *, drains: bool = False, deadlines: bool = False
    ) -> None:
        self.run, self.rng, self.notes = run, rng, notes
        self.drains, self.deadlines = drains, deadlines
        #: The migration that was under way the last time.
        self.followed: binshift.Migration | None = None

    def make(self) -> None:
        controller = self.run.attach()
        if controller.routing() is None:
            return
        if (under_way := controller.migration()) is not None:
            self.followed = under_way
            if self.rng.random() < 0.01 and not self.deadlines:
                under_way.cancel()
                note(self.notes, {"did": "cancel"})
            elif self.rng.random() < (0.002 if self.deadlines else 0.02):
                self.undo(under_way)
        elif self.deadlines and (ended := self.followed) is not None:
            self.followed = None
            report = ended.wait(0)
            undone = 0 if report.rollback is None else report.rollback.steps
            note(self.notes, {"report": report.id, "steps": report.steps, "steps_undone": undone})
            if self.rng.random() < 0.05:
                self.undo(ended)
        else:
            self.submit(controller)

    def undo(self, migration: binshift.Migration) -> None:
        note(self.notes, {"undoes": migration.id})
        migration.rollback()
        note(self.notes, {"did": "rollback"})

    def submit(self, controller: binshift.Controller) -> None:
        rng = self.rng
        weights = [6, 2, 0, 0] if self.deadlines else [6, 2, 1, 2 * self.drains]
        did = rng.choices(["rescale", "owners", "rebalance", "drain"], weights)[0]
        table = controller.routing()
        strategies = (
            AllAtOnce(),
            Fluid(),
            Batched(rng.randint(2, 8)),
            Optimized(rng.randint(1, 4)),
            OnDemand(),
        )
        strategy: Strategy = rng.choice(strategies)
        prepare = rng.random() < 0.6
        # Some migrations take longer than they may, and are undone, or stay where they are.
        limits: dict[str, Any] = {}
        if self.deadlines:
            limits = limit(rng)
        elif rng.random() < 0.25:
            limits = {
                "deadline": f"{rng.randint(2, 12)} epochs",
                "on_timeout": rng.choice(("keep", "rollback")),
            }
        if did == "drain":
            there = sorted(controller._placement().executors)
            migration = controller.drain(rng.choice(there), prepare=prepare)
        elif did == "rebalance":
            prepare = prepare or isinstance(strategy, OnDemand)
            migration = controller.rebalance(strategy=strategy, prepare=prepare, **limits)
        else:
            target = rng.choice([n for n in range(1, 6) if n != table.partitions])
            # The same number of partitions with other owners, or another number.
            owners = [rng.randrange(table.partitions) for _ in range(table.bins)]
            prepare = prepare or isinstance(strategy, OnDemand)
            plan = controller.plan(owners if did == "owners" else target, strategy=strategy, prepare=prepare)
            if not plan.moves:
                return
            if self.deadlines:
                note(self.notes, intent(plan, limits))
            migration = controller.submit(plan, prepare=prepare, **limits)
        done = {"did": did, "migration": migration.id, "strategy": type(strategy).__name__, "prepare": prepare}
        note(self.notes, done)


def note(file: Path, what: dict[str, Any]) -> None:
    with file.open("a") as out:
        out.write(json.dumps({"t": round(time.time(), 1), **what}) + "\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
