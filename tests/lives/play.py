"""Lives through a quick life in this process, beside the same query on Spark's own provider."""

from __future__ import annotations

import contextlib
import copy
import json
import math
import os
import random
import re
import shutil
import time
from collections import Counter
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame

import binshift
import binshift.inspect as reading
from binshift import AllAtOnce, Batched, Fluid, Migration, OnDemand, RoutingTable, savepoints
from binshift.control.files import Files
from binshift.inspect.tools.fsck import Severity, fsck
from binshift.savepoints.retained import retained_epochs
from binshift.session import PROVIDER, PROVIDER_KEY
from chaos.life import committed
from chaos.winding import forget_from
from harness import STOCK, StreamRun, end_maintenance
from lives.armed import Armed
from lives.life import (
    Cancel,
    Change,
    Epochs,
    Event,
    Fault,
    Life,
    Look,
    Lose,
    Restart,
    RollBack,
    Rot,
    Save,
    TakeOver,
)
from lives.oracle import QUERIES, Oracles, Variants, input_of, operators_of, rows_of, state_of
from lives.rot import Rotten
from lives.spared import Spared
from lives.themes import TASKS
from local.queries import GROWN, with_a_point_in_rows
from traces.by_hand import wound_back
from traces.checker import RejectedError, Verdict, check

#: An epoch takes half a second; one that takes so long does not end.
PATIENCE_S = 60.0
#: For so many epochs of a run, its numbers of rows may be wrong.
UNCOUNTED = 5
#: After so many epochs, a migration has ended whose last step was taken.
ENDS_AFTER = 6
#: For so long, a task may wait for what is held. Closing a store would wait for ever.
HELD_S = 3.0
#: The rows of so many snapshots are read at the end.
SNAPSHOTS_READ = 6
#: Operators that may forget rows an epoch later than Spark's provider while bins come on demand.
FORGET_LATER = ("dedup-watermark", "join-inner", "join-full")
#: A query fails so often at most by what was armed on purpose.
FAILURES = 5


class WrongError(Exception):
    """The results that differ from those of Spark's own provider."""


def play(spark: Any, life: Life, root: Path, oracles: Oracles, deadline: float = math.inf) -> dict[str, Any]:
    """All of a life, in `root`, which is deleted unless it comes out wrong.

    After the `deadline`, by the clock of `time.monotonic`, nothing more happens to it but its last epochs.

    Returns
    -------
    dict
        How often what happened, and the `pairs` of ways that were under way for one partition.

    Raises
    ------
    WrongError
        If an output, a state or a file is not as it should be, or the query fails for no reason that the
        life has.
    """
    shutil.rmtree(root, ignore_errors=True)
    player = _Player(spark, life, root, oracles)
    try:
        for event in life.events:
            if time.monotonic() < deadline:
                player.do(event)
        player.do(Epochs(life.epochs))
        verdict = player.compare()
    finally:
        player.end()
    shutil.rmtree(root)
    return {**player.counts, "traced": verdict.accepted, "pairs": verdict.pairs}


class _TwoActions(StreamRun):
    """A query whose sink has two actions, so that the tasks of each epoch run twice."""

    def _keep(self, batch: DataFrame, epoch: int) -> None:
        batch.count()
        super()._keep(batch, epoch)


class _Player:
    def __init__(self, spark: Any, life: Life, root: Path, oracles: Oracles) -> None:
        self.life, self.oracles = life, oracles
        self.variants: Variants = (0,) * life.epochs
        query = QUERIES[life.operator]
        provider = STOCK if TakeOver() in life.events else PROVIDER
        # Other lives needn't stop at each row.
        fails_at_rows = any(isinstance(e, Fault) and e.point == "query.row" for e in life.events)

        def build(df: DataFrame) -> DataFrame:
            return with_a_point_in_rows(query.build(df)) if fails_at_rows else query.build(df)

        sink = _TwoActions if "two-actions" in life.settings else StreamRun
        self.run = sink(spark, root, build, query.mode, provider, life.conf)
        self.stores = getattr(spark._jvm.org.apache.spark.sql.execution.streaming.state, "StateStore$")
        self.faults = Armed()
        self.rotten = Rotten(self.run.checkpoint)
        self.spared = Spared(self.run.checkpoint)
        self.counts = {
            "epochs": 0,
            "changes": 0,
            "refused": 0,
            "rollbacks": 0,
            "savepoints": 0,
            "starts": 0,
            "failures": 0,
        }
        self.fed = 0
        #: The epochs of savepoints, with their names and the input that they had.
        self.saved: dict[int, tuple[str, Variants]] = {}
        self.compared: dict[int, list[Any]] = {}
        #: Whether bins were missing in an epoch, or arrived only in the course of it.
        self.behind: dict[int, bool] = {}
        self.uncounted = 0
        self.tasks = spark._jvm.binshift.tests.TestTasks
        self.tasks.listenTo(spark._jsc.sc())
        self.tasks.takeFailures()
        self._start()

    def do(self, event: Event) -> None:
        match event:
            case Epochs(n):
                for _ in range(min(n, self.life.epochs - 1 - committed(self.run.root))):
                    self._epoch()
            case TakeOver():
                self.run.stop()
                end_maintenance(self.run.spark)
                self.run.spark.conf.set(PROVIDER_KEY, PROVIDER)
                self._start()
            case Change():
                self._change(event)
            case Cancel():
                self._cancel()
            case RollBack():
                with contextlib.suppress(binshift.BinshiftError):
                    self._roll_back()
            case Lose():
                self.faults.let_go()
                getattr(self.stores, "MODULE$").unloadAll()
            case Restart():
                self._restart(event)
            case Save(chance):
                self._save(chance)
            case Rot():
                self._rot(event)
            case Look(chance):
                self._look(chance)
            case Fault():
                self._arm(event)

    def compare(self) -> Verdict:
        """Compares states, the trace and the files. Outputs were compared before."""
        self.faults.disarm()
        last = committed(self.run.root)
        missing = set(range(self.life.epochs)) - self.run.outputs.keys()
        if missing:
            raise WrongError(f"no output of epochs {sorted(missing)}")
        self._compare_plans(last)
        self.run.stop()
        self._compare_tasks()
        end_maintenance(self.run.spark)
        # Each is read in another way, from the snapshots before it.
        for back in sorted({0, 2, 5, 9, 14, self.life.retained - 1}):
            if back < self.life.retained:
                self._compare_state(last - back)
        self.rotten.mend()
        self._compare_forks()
        try:
            verdict = check(_trace(), under=self.run.root)
        except RejectedError as error:
            raise WrongError(f"the trace: {error}") from error
        if left := self.spared.left_for_nothing(_trace()):
            raise WrongError(f"no savepoint keeps {left[0]}, and it was left")
        self._check_files(last + 1)
        return verdict

    def _check_files(self, newest: int) -> None:
        """Checks the rows of the newest version, and of a few that a snapshot was made of."""
        made = {int(f.stem.split("_")[0]) for f in self.run.checkpoint.glob("state/**/*.zip")}
        retained = [v for v in sorted(made) if newest - self.life.retained < v < newest]
        with reading.open(str(self.run.checkpoint)) as opened:
            for version in (newest, *retained[-SNAPSHOTS_READ:]):
                damage = [str(f) for f in fsck(opened, version) if f.severity is Severity.DAMAGE]
                if damage:
                    raise WrongError(f"fsck of version {version}: {damage[:3]}")

    def _look(self, chance: int) -> None:
        if (last := committed(self.run.root)) >= 0:
            self._compare_state(last - chance % min(self.life.retained, last + 1))

    def _rot(self, event: Rot) -> None:
        # Changelogs of format 2 name no older snapshot, and without changelogs, none replaces another.
        if not {"format-2", "no-changelog"} & {*self.life.settings}:
            self.rotten.begin(event, committed(self.run.root), self.life.retained)

    def _save(self, chance: int) -> None:
        self.rotten.mend()
        there = retained_epochs(Files(self.run.checkpoint))
        if not there:
            return
        # Each second one is made of the newest epoch by the driver, which first has to run one.
        epoch = None if chance % 2 else there[-1 - chance // 2 % len(there)]
        name = f"saved-{self.counts['savepoints']}"
        if (there[-1] if epoch is None else epoch) in self.saved:
            return
        try:
            if epoch is None and self.run.query.isActive and there[-1] > self.began_after:
                made = self.run.attach().savepoint(name)
            else:
                made = savepoints.create(self.run.checkpoint, name, epoch=epoch)
        except binshift.BinshiftError as error:
            raise WrongError(f"no savepoint of {epoch or there} can be made: {error}") from error
        self.counts["savepoints"] += 1
        self.saved[made.epoch] = name, self.variants
        self.spared.note()

    def _drop_from(self, epoch: int) -> None:
        """Under format 1, a query that was wound back past a savepoint would not start."""
        for saved in [e for e in self.saved if e >= epoch and "format-2" not in self.life.settings]:
            savepoints.drop(self.run.checkpoint, self.saved[saved][0])
            del self.saved[saved]

    def _compare_forks(self) -> None:
        for epoch, (name, variants) in self.saved.items():
            fork = copy.copy(self.run)
            fork.checkpoint = self.run.root / f"fork-{epoch}"
            savepoints.fork(self.run.checkpoint, fork.checkpoint, savepoint=name)
            self._compare_state(epoch, fork, variants)

    def _compare_state(
        self, epoch: int, run: StreamRun | None = None, variants: Variants | None = None
    ) -> None:
        """By default, that of the life as it went on."""
        try:
            found = state_of(run or self.run, self.life, epoch)
        except Exception as error:
            raise WrongError(f"state of epoch {epoch} cannot be read: {_first_lines(error)}") from error
        expected = self.oracles.state(self.life, variants or self.variants, epoch)
        if found == expected:
            return
        if not self._may_forget_later(epoch):
            raise WrongError(f"state of epoch {epoch}")
        # There may be rows too many, and none may be missing.
        if any(Counter(wanted) - Counter(there) for wanted, there in zip(expected, found, strict=True)):
            raise WrongError(f"state of epoch {epoch} lacks rows")

    def _may_forget_later(self, epoch: int) -> bool:
        """True if the state may still have rows that no later row meets, since bins came on demand."""
        if self.life.operator not in FORGET_LATER:
            return False
        entries = [json.loads(f.read_text()) for f in (self.run.checkpoint / "binshift/routing").glob("[0-9]*")]
        return self.behind.get(epoch, True) and any(
            (e.get("step") or {}).get("strategy") == "on-demand" and e["epoch"] <= epoch for e in entries
        )

    def end(self) -> None:
        self.faults.disarm()
        with contextlib.suppress(Exception):
            self.run.stop()
        end_maintenance(self.run.spark)

    def _epoch(self) -> None:
        """One more epoch, whose output has to be right; fed anew only if it was not yet."""
        epoch = committed(self.run.root) + 1
        if self.fed <= epoch:
            self.run.feed(input_of(self.life, epoch, self.variants[epoch]))
            self.fed += 1
        self._run_to(epoch)

    def _run_to(self, epoch: int) -> None:
        deadline = time.monotonic() + PATIENCE_S
        while committed(self.run.root) < epoch:
            if not self.run.query.isActive:
                self._failed()
            if time.monotonic() > deadline - PATIENCE_S + HELD_S:
                self.faults.let_go()
            if time.monotonic() > deadline:
                raise WrongError(f"epoch {epoch} does not end: {self.run.query.status}")
            time.sleep(0.01)
        self.counts["epochs"] += 1
        self.faults.committed(epoch)
        self.rotten.committed(epoch)
        self._compare_outputs()
        self._compare_tasks()
        self._compare_rows(epoch)

    def _compare_outputs(self) -> None:
        expected = self.oracles.of(self.life, self.variants)
        for epoch, output in self.run.outputs.items():
            if self.compared.get(epoch) is output:
                continue  # It is the same object, so it has not come again since.
            if output != expected.get(epoch):
                raise WrongError(f"output of epoch {epoch}")
            self.compared[epoch] = output

    def _compare_rows(self, epoch: int) -> None:
        """Compares how many rows each operator has.

        A run may not know at first how many rows a long replay of changelogs has added.
        """
        operators = operators_of(self.run, epoch)
        if operators is not None:
            coming = ("binshiftBinsAwaited", "binshiftBinsAdopted")
            self.behind[epoch] = any(op["customMetrics"].get(m) for op in operators for m in coming)
        # What a run doesn't know when bins begin to come on demand, it knows when they are here.
        self.uncounted -= self.uncounted <= 0 or not self.behind.get(epoch, True)
        found = rows_of(operators)
        if not found or {"no-row-count", "two-actions"} & {*self.life.settings}:
            return
        expected = self.oracles.rows(self.life, self.variants)[epoch]
        if found == expected:
            self.uncounted = 0
        elif self.uncounted < 0 and (
            not self._may_forget_later(epoch)
            or any(n < least for n, least in zip(found, expected, strict=True))
        ):
            raise WrongError(f"epoch {epoch} has {found} rows, and not {expected}")

    def _compare_plans(self, last: int) -> None:
        """A migration ends soon after its last step."""
        try:
            controller = self.run.attach()
            table, migration = controller.routing(), controller.migration()
        except binshift.BinshiftError:
            return  # The query has just ended, on purpose.
        if migration is not None and migration.plan.target == table and table.epoch < last - ENDS_AFTER:
            raise WrongError(f"a migration whose steps were taken by epoch {table.epoch} does not end")

    def _compare_tasks(self) -> None:
        """A task that fails by itself is tried again, which would hide why."""
        if failures := list(self.tasks.takeFailures()):
            raise WrongError(f"a task failed: {_reasons(failures[0])}")

    def _failed(self) -> None:
        """A query may end by what was armed on purpose, and by nothing else."""
        error = self.run.query.exception()
        text = str(error)
        self.counts["failures"] += 1
        if "on purpose" not in text or self.counts["failures"] > FAILURES:
            raise WrongError(f"the query failed: {_reasons(text)}")
        self.faults.disarm()
        self._start()

    def _start(self) -> None:
        self.counts["starts"] += 1
        self._count_later()
        self.began_after = committed(self.run.root)
        self.run.start()

    def _restart(self, event: Restart) -> None:
        # What lasts for some epochs outlives its run, but stores are not closed while something is held.
        self.faults.end_other()
        if event.loses:
            self.faults.let_go()
        with contextlib.suppress(Exception):
            self.run.stop()
        if event.loses:
            end_maintenance(self.run.spark)
        last = committed(self.run.root)
        if event.again:
            self._drop_from(last)
        if event.again and last >= 0:
            forget_from(self.run.checkpoint, last, logs=("commits",))
        back = min(event.back, self.life.retained - 1, last)
        if back > 0 and not event.again:
            self._drop_from(last + 1 - back)
            forget_from(self.run.checkpoint, last + 1 - back)
            if event.other:
                self._change_input_from(last + 1 - back)
        if event.grows:
            self.run.build = GROWN.get(self.life.operator, self.run.build)
        if event.again or back > 0:
            self.behind = {e: was for e, was in self.behind.items() if e < last + 1 - max(event.again, back)}
            wound_back(_trace(), self.run.checkpoint)
        self._start()
        # All that was fed comes again at once.
        if event.again or back > 0:
            self._run_to(self.fed - 1)

    def _change_input_from(self, epoch: int) -> None:
        """Takes the input and the outputs of epochs away that are to come in another variant."""
        for later in range(epoch, self.fed):
            (self.run.input / f"{later:06}.json").unlink()
            self.run.outputs.pop(later, None)
        self.fed = epoch
        variant = max(self.variants) + 1
        self.variants = self.variants[:epoch] + (variant,) * (self.life.epochs - epoch)

    def _change(self, event: Change) -> None:
        rng = random.Random(event.chance)
        chosen = {
            "AllAtOnce": AllAtOnce(),
            "Fluid": Fluid(),
            "Batched": Batched(rng.randint(2, 5)),
            "OnDemand": OnDemand(),
        }
        strategy: Any = chosen[event.strategy]
        self._end_migration(rng.randint(1, 4))
        try:
            controller = self.run.attach()
            limit: dict[str, Any] = {}
            if event.epochs:
                limit = {"deadline": f"{event.epochs} epochs", "on_timeout": "rollback"}
            if event.to == "rebalance":
                controller.rebalance(strategy=strategy, prepare=event.prepare, **limit)
            else:
                table = controller.routing()
                target: Any = event.to
                if event.to in ("owners", "few", table.partitions):
                    target = _other_owners(rng, table, event.to == "few")
                plan = controller.plan(target, strategy=strategy, prepare=event.prepare)
                controller.submit(plan, prepare=event.prepare, **limit)
            self.counts["changes"] += 1
        except binshift.BinshiftError:
            # One is under way, nothing is to move, or the query is just failing, which is seen elsewhere.
            self.counts["refused"] += 1

    def _end_migration(self, epochs: int) -> None:
        """Gives a migration that is under way some more epochs, and then cancels it."""
        for _ in range(epochs):
            with contextlib.suppress(binshift.BinshiftError):
                if self.run.attach().migration() is None:
                    return
            self.do(Epochs(1))
        self._cancel()
        self.do(Epochs(1))

    def _cancel(self) -> None:
        with contextlib.suppress(binshift.BinshiftError):
            if (migration := self.run.attach().migration()) is not None:
                migration.cancel()

    def _arm(self, fault: Fault) -> None:
        # If tasks clean up, and that fails, the error is so long that the stream's thread overflows in Spark's
        # regular expression for such errors, and the query never ends.
        if fault.point != "versions.deleted" or "unload-on-commit" not in self.life.settings:
            self.faults.arm(fault, committed(self.run.root))
        if fault.point in TASKS:
            # The next attempt of the task loads its store anew.
            self._count_later()

    def _count_later(self) -> None:
        """A store that is loaded may know only some epochs later how many rows a long replay has added."""
        self.uncounted = 0 if "unload-on-commit" in self.life.settings else UNCOUNTED

    def _roll_back(self) -> None:
        controller = self.run.attach()
        migration = controller.migration()
        steps = [] if migration else controller.history().column("migration_id").to_pylist()
        if migration is None and steps:
            migration = Migration(controller, steps[-1], controller.plan(1))
        if migration is not None:
            migration.rollback()
            self.counts["rollbacks"] += 1


def _other_owners(rng: random.Random, table: RoutingTable, only_few: bool) -> list[int]:
    partitions = max(2, table.partitions)
    owners = list(table.assignment)
    for bin in rng.sample(range(table.bins), rng.randint(1, 4) if only_few else table.bins):
        owners[bin] = rng.randrange(partitions)
    return owners


def _trace() -> Path:
    return Path(os.environ["BINSHIFT_TESTS_TRACE"])


def _reasons(text: str) -> str:
    """The messages of exceptions, without their stacks, the innermost first."""
    lines = [line.strip() for line in text.splitlines()]
    said = [s for s in lines if re.search(r"(Exception|Error)\b", s) and not s.startswith(("at ", "File "))]
    return " <- ".join(s[:200] for s in [*reversed(said[-3:]), *said[:1]])


def _first_lines(error: Exception) -> str:
    return "\n".join(str(error).splitlines()[:5])
