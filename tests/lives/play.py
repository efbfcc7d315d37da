"""Lives through a quick life in this process, beside the same query on Spark's own provider."""

from __future__ import annotations

import contextlib
import hashlib
import json
import math
import os
import pickle
import random
import re
import shutil
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import binshift
import binshift.inspect as reading
from binshift import AllAtOnce, Batched, Fluid, Migration, OnDemand
from binshift.inspect.tools.fsck import Severity, fsck
from binshift.session import PROVIDER
from chaos.life import committed
from chaos.winding import forget_from
from harness import STOCK, StreamRun, end_maintenance, rows
from lives.life import EPOCHS, Cancel, Change, Epochs, Event, Fault, Life, Look, Lose, Restart, RollBack
from local.queries import QUERIES
from local.settings import JOIN_4, ONE_EPOCH
from traces.by_hand import wound_back
from traces.checker import RejectedError, Verdict, check

#: An epoch takes half a second; one that takes so long does not end.
PATIENCE_S = 60.0
#: A query fails so often at most by what was armed on purpose.
FAILURES = 5


class WrongError(Exception):
    """The results that differ from those of Spark's own provider."""


#: For each epoch, which of its possible inputs it has.
Variants = tuple[int, ...]


@dataclass
class Oracles:
    """Runs of Spark's own provider, one for each operator, form of state, and input.

    What they gave is kept in `root`, where other processes find it.
    """

    spark: Any
    root: Path
    outputs: dict[tuple[Any, ...], dict[int, list[Any]]] = field(default_factory=dict)

    def of(self, life: Life, variants: Variants) -> dict[int, list[Any]]:
        """The outputs of all epochs."""
        key = self._key(life, variants)
        if key not in self.outputs:
            if self._found(key) is None:
                self._run(life, variants, self.root / f"{self._hashed(key)}-{os.getpid()}")
            found = self._found(key)
            assert found is not None
            self.outputs[key] = pickle.loads((found / "outputs").read_bytes())
        return self.outputs[key]

    def state(self, life: Life, variants: Variants, epoch: int) -> list[list[str]]:
        self.of(life, variants)
        folder = self._found(self._key(life, variants))
        assert folder is not None
        kept = folder / f"state-{epoch}"
        if not kept.exists():
            made = folder / f"state-{epoch}-{os.getpid()}"
            made.write_bytes(pickle.dumps(state_of(self._stock(life, folder), life, epoch)))
            made.rename(kept)
        states: list[list[str]] = pickle.loads(kept.read_bytes())
        return states

    def _run(self, life: Life, variants: Variants, folder: Path) -> None:
        run = self._stock(life, folder).start()
        for epoch in range(EPOCHS):
            run.feed(input_of(life, epoch, variants[epoch]))
            run.query.processAllAvailable()
        run.stop()
        unfinished = folder / "unfinished"
        unfinished.write_bytes(pickle.dumps(run.outputs))
        unfinished.rename(folder / "outputs")

    def _stock(self, life: Life, folder: Path) -> StreamRun:
        query = QUERIES[life.operator]
        stock = JOIN_4 if "join-4" in life.settings else {}
        conf = {**ONE_EPOCH, "spark.sql.shuffle.partitions": "1", **stock}
        return StreamRun(self.spark, folder, query.build, query.mode, STOCK, conf)

    def _found(self, key: tuple[Any, ...]) -> Path | None:
        """Each process makes its own folder, as Spark writes the folder's path into some files."""
        outputs = next(self.root.glob(f"{self._hashed(key)}-*/outputs"), None)
        return None if outputs is None else outputs.parent

    @staticmethod
    def _hashed(key: tuple[Any, ...]) -> str:
        return hashlib.sha256(repr(key).encode()).hexdigest()[:16]

    @staticmethod
    def _key(life: Life, variants: Variants) -> tuple[Any, ...]:
        return life.operator, life.rows, "join-4" in life.settings, variants


def state_of(run: StreamRun, life: Life, epoch: int) -> list[list[str]]:
    """Reads the state of an epoch from the checkpoint."""
    return run.states([{**o, "batchId": str(epoch)} for o in QUERIES[life.operator].state])


def input_of(life: Life, epoch: int, variant: int) -> list[dict[str, Any]]:
    """Variants differ in their keys."""
    keys = 3 * life.rows // 2
    return [
        {**row, "k": f"key{(int(row['k'].removeprefix('key')) + 17 * variant) % keys}"}
        for row in rows(epoch, life.rows, keys=keys)
    ]


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
        player.do(Epochs(EPOCHS))
        verdict = player.compare()
    finally:
        player.end()
    shutil.rmtree(root)
    return {**player.counts, "traced": verdict.accepted, "pairs": verdict.pairs}


class _Player:
    def __init__(self, spark: Any, life: Life, root: Path, oracles: Oracles) -> None:
        self.life, self.oracles = life, oracles
        self.variants: Variants = (0,) * EPOCHS
        query = QUERIES[life.operator]
        self.run = StreamRun(spark, root, query.build, query.mode, PROVIDER, life.conf)
        self.stores = getattr(spark._jvm.org.apache.spark.sql.execution.streaming.state, "StateStore$")
        self.faults = Path(os.environ["BINSHIFT_TESTS_TMP"]) / "faults"
        self.counts = {"epochs": 0, "changes": 0, "refused": 0, "rollbacks": 0, "starts": 0, "failures": 0}
        self.fed = 0
        self._disarm()
        self._start()

    def do(self, event: Event) -> None:
        match event:
            case Epochs(n):
                for _ in range(min(n, EPOCHS - 1 - committed(self.run.root))):
                    self._epoch()
            case Change():
                self._change(event)
            case Cancel():
                with contextlib.suppress(binshift.BinshiftError):
                    if (migration := self.run.attach().migration()) is not None:
                        migration.cancel()
            case RollBack():
                with contextlib.suppress(binshift.BinshiftError):
                    self._roll_back()
            case Lose():
                getattr(self.stores, "MODULE$").unloadAll()
            case Restart():
                self._restart(event)
            case Look(chance):
                if (last := committed(self.run.root)) >= 0:
                    self._compare_state(last - chance % min(self.life.retained, last + 1))
            case Fault():
                self._disarm()
                (self.faults / f"{event.point}.{event.action}").touch()

    def compare(self) -> Verdict:
        """Compares states, the trace and the files. Outputs were compared before."""
        self._disarm()
        last = committed(self.run.root)
        missing = set(range(EPOCHS)) - self.run.outputs.keys()
        if missing:
            raise WrongError(f"no output of epochs {sorted(missing)}")
        self.run.stop()
        end_maintenance(self.run.spark)
        for epoch in sorted({last, max(0, last - min(self.life.retained, 3) + 1)}, reverse=True):
            self._compare_state(epoch)
        try:
            verdict = check(_trace(), under=self.run.root)
        except RejectedError as error:
            raise WrongError(f"the trace: {error}") from error
        with reading.open(str(self.run.checkpoint)) as opened:
            damage = [str(f) for f in fsck(opened) if f.severity is Severity.DAMAGE]
        if damage:
            raise WrongError(f"fsck: {damage[:3]}")
        return verdict

    def _compare_state(self, epoch: int) -> None:
        try:
            found = state_of(self.run, self.life, epoch)
        except Exception as error:
            raise WrongError(f"state of epoch {epoch} cannot be read: {_first_lines(error)}") from error
        if found != self.oracles.state(self.life, self.variants, epoch) and not self._may_forget_later(epoch):
            raise WrongError(f"state of epoch {epoch}")

    def _may_forget_later(self, epoch: int) -> bool:
        """True if the state may still have rows that no later row meets, since bins came on demand."""
        entries = [json.loads(f.read_text()) for f in (self.run.checkpoint / "binshift/routing").glob("[0-9]*")]
        return any(
            e["step"] and e["step"]["strategy"] == "on-demand" and epoch - 4 < e["epoch"] <= epoch
            for e in entries
        )

    def end(self) -> None:
        self._disarm()
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
            if time.monotonic() > deadline:
                raise WrongError(f"epoch {epoch} does not end: {self.run.query.status}")
            time.sleep(0.01)
        self.counts["epochs"] += 1
        self._compare_outputs()

    def _compare_outputs(self) -> None:
        expected = self.oracles.of(self.life, self.variants)
        for epoch, output in self.run.outputs.items():
            if output != expected.get(epoch):
                raise WrongError(f"output of epoch {epoch}")

    def _failed(self) -> None:
        """A query may end by what was armed on purpose, and by nothing else."""
        error = self.run.query.exception()
        text = str(error)
        self.counts["failures"] += 1
        if "on purpose" not in text or self.counts["failures"] > FAILURES:
            raise WrongError(f"the query failed: {_reasons(text)}")
        self._disarm()
        self._start()

    def _start(self) -> None:
        self.counts["starts"] += 1
        self.run.start()

    def _restart(self, event: Restart) -> None:
        self._disarm()
        with contextlib.suppress(Exception):
            self.run.stop()
        if event.loses:
            end_maintenance(self.run.spark)
        last = committed(self.run.root)
        if event.again and last >= 0:
            forget_from(self.run.checkpoint, last, logs=("commits",))
        back = min(event.back, self.life.retained - 1, last)
        if back > 0 and not event.again:
            forget_from(self.run.checkpoint, last + 1 - back)
            if event.other:
                self._change_input_from(last + 1 - back)
        if event.again or back > 0:
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
        self.variants = self.variants[:epoch] + (variant,) * (EPOCHS - epoch)

    def _change(self, event: Change) -> None:
        rng = random.Random(event.chance)
        chosen = {
            "AllAtOnce": AllAtOnce(),
            "Fluid": Fluid(),
            "Batched": Batched(rng.randint(2, 5)),
            "OnDemand": OnDemand(),
        }
        strategy: Any = chosen[event.strategy]
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
                if event.to == "owners":
                    target = [rng.randrange(table.partitions) for _ in range(table.bins)]
                plan = controller.plan(target, strategy=strategy, prepare=event.prepare)
                controller.submit(plan, prepare=event.prepare, **limit)
            self.counts["changes"] += 1
        except binshift.BinshiftError:
            # One is under way, nothing is to move, or the query is just failing, which is seen elsewhere.
            self.counts["refused"] += 1

    def _roll_back(self) -> None:
        controller = self.run.attach()
        migration = controller.migration()
        steps = [] if migration else controller.history().column("migration_id").to_pylist()
        if migration is None and steps:
            migration = Migration(controller, steps[-1], controller.plan(1))
        if migration is not None:
            migration.rollback()
            self.counts["rollbacks"] += 1

    def _disarm(self) -> None:
        self.faults.mkdir(exist_ok=True)
        for file in self.faults.iterdir():
            file.unlink(missing_ok=True)


def _trace() -> Path:
    return Path(os.environ["BINSHIFT_TESTS_TRACE"])


def _reasons(text: str) -> str:
    """The messages of exceptions, without their stacks, the innermost first."""
    lines = [line.strip() for line in text.splitlines()]
    said = [s for s in lines if re.search(r"(Exception|Error)\b", s) and not s.startswith(("at ", "File "))]
    return " <- ".join(s[:200] for s in [*reversed(said[-3:]), *said[:1]])


def _first_lines(error: Exception) -> str:
    return "\n".join(str(error).splitlines()[:5])
