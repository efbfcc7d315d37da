"""What Spark's own provider gives for the input of a life."""

from __future__ import annotations

import hashlib
import json
import os
import pickle
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from harness import STOCK, StreamRun, rows, until
from lives.life import Life
from lives.themes import DELETES_BY_KEY
from local import queries
from local.rows_on_demand import ROWS
from local.settings import JOIN_4, ONE_EPOCH

#: By operator.
QUERIES = {**queries.QUERIES, DELETES_BY_KEY: ROWS["variables"]}

#: More rows than so many have keys of more than so many letters.
MANY_ROWS, LONG = 1000, 250
#: For each epoch, which of its possible inputs it has.
Variants = tuple[int, ...]


@dataclass
class Oracles:
    """Runs of Spark's own provider, one for each operator, form of state, and input.

    What they gave is kept in `root`, where other processes find it.
    """

    spark: Any
    root: Path
    results: dict[tuple[Any, ...], tuple[dict[int, list[Any]], list[Any]]] = field(default_factory=dict)

    def of(self, life: Life, variants: Variants) -> dict[int, list[Any]]:
        """The outputs of all epochs."""
        return self._results(life, variants)[0]

    def rows(self, life: Life, variants: Variants) -> list[Any]:
        """How many rows each operator has after each epoch."""
        return self._results(life, variants)[1]

    def _results(self, life: Life, variants: Variants) -> tuple[dict[int, list[Any]], list[Any]]:
        key = self._key(life, variants)
        if key not in self.results:
            if self._found(key) is None:
                self._run(life, variants, self.root / f"{self._hashed(key)}-{os.getpid()}")
            found = self._found(key)
            assert found is not None
            self.results[key] = pickle.loads((found / "results").read_bytes())
        return self.results[key]

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
        for epoch in range(life.epochs):
            run.feed(input_of(life, epoch, variants[epoch]))
            run.query.processAllAvailable()
        run.stop()
        counts = [rows_of(operators_of(run, epoch)) for epoch in range(life.epochs)]
        unfinished = folder / "unfinished"
        unfinished.write_bytes(pickle.dumps((run.outputs, counts)))
        unfinished.rename(folder / "results")

    def _stock(self, life: Life, folder: Path) -> StreamRun:
        query = QUERIES[life.operator]
        stock = JOIN_4 if "join-4" in life.settings else {}
        # Savepoints of any epoch are compared with it.
        retained = {"spark.sql.streaming.minBatchesToRetain": "1000"}
        conf = {**ONE_EPOCH, "spark.sql.shuffle.partitions": "1", **retained, **stock}
        return StreamRun(self.spark, folder, query.build, query.mode, STOCK, conf)

    def _found(self, key: tuple[Any, ...]) -> Path | None:
        """Each process makes its own folder, as Spark writes the folder's path into some files."""
        results = next(self.root.glob(f"{self._hashed(key)}-*/results"), None)
        return None if results is None else results.parent

    @staticmethod
    def _hashed(key: tuple[Any, ...]) -> str:
        return hashlib.sha256(repr((key, _made_of())).encode()).hexdigest()[:16]

    @staticmethod
    def _key(life: Life, variants: Variants) -> tuple[Any, ...]:
        return life.operator, life.rows, "join-4" in life.settings, variants


@cache
def _made_of() -> str:
    """The sources that say what the oracles give, so that those of other sources are not taken for them."""
    tests = Path(__file__).parents[1]
    sources = (
        "harness.py",
        "jvm/JvmQueries.scala",
        "lives/oracle.py",
        "local/processors.py",
        "local/queries.py",
        "local/rows_on_demand.py",
    )
    return hashlib.sha256(b"".join((tests / s).read_bytes() for s in sources)).hexdigest()


def state_of(run: StreamRun, life: Life, epoch: int) -> list[list[str]]:
    """Reads the state of an epoch from the checkpoint."""
    return run.states([{**o, "batchId": str(epoch)} for o in QUERIES[life.operator].state])


def rows_of(operators: list[dict[str, Any]] | None) -> list[int] | None:
    """How many rows each operator has, by its progress."""
    return None if operators is None else [op["numRowsTotal"] for op in operators]


def operators_of(run: StreamRun, epoch: int) -> list[dict[str, Any]] | None:
    """Spark's progress of each operator in an epoch; `None` if the query ends before it tells."""

    def reports() -> list[Any]:
        # Reports of the idle query have the same number, and have no rows.
        told = [p for p in run.query._jsq.recentProgress() if p.batchId() == epoch]
        return [told_ for p in told if "addBatch" in (told_ := json.loads(p.json()))["durationMs"]]

    until(lambda: bool(reports()) or not run.query.isActive, 10.0)
    found = reports()
    return found[-1]["stateOperators"] if found else None


def input_of(life: Life, epoch: int, variant: int) -> list[dict[str, Any]]:
    """Variants differ in their keys. Those of many rows are so long that a changelog isn't held in memory."""
    keys, rest = 3 * life.rows // 2, "-" * (LONG if life.rows > MANY_ROWS else 0)
    return [
        {**row, "k": f"key{(int(row['k'].removeprefix('key')) + 17 * variant) % keys}{rest}"}
        for row in rows(epoch, life.rows, keys=keys)
    ]
