"""The driver process of the query that suffers cuts, commanded by a test.

It counts rows by key, with half a kilobyte of state for each key, so that moving state takes time. When the
query ends with a failure, it starts it again, as whoever runs it would.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

import binshift
from cluster.commanded import Commands, serve
from harness import until

#: Rows of an epoch, and keys; the first epoch has them all.
ROWS, KEYS = 1000, 4000
#: How many times a query is started again for one epoch before the test gives up.
_MOST_STARTS = 30
#: How long executors may take to come back: the worker has to register again, and to start them.
_PATIENCE_SECONDS = 180.0


def padded(df: DataFrame) -> DataFrame:
    """Counts by key, and keeps some text that doesn't compress. Of an unused text, Spark would keep nothing."""
    pad = F.concat(*(F.sha2(F.concat("k", F.lit(str(n))), 512) for n in range(4)))
    counted = df.withColumn("pad", pad).groupBy("k").agg(F.count("*"), F.sum("v"), F.max("pad"))
    return counted.toDF("k", "n", "total", "pad").withColumn("pad", F.length("pad"))


class Driven(Commands):
    """The commands of a test of cuts."""

    query = staticmethod(padded)

    def all_there(self, executors: int) -> None:
        """Waits until so many executors are there."""
        status = self.spark.sparkContext._jsc.sc().getExecutorMemoryStatus
        there = until(lambda: status().size() == executors + 1, _PATIENCE_SECONDS)
        assert there, f"{status().size() - 1} executors, not {executors}"

    def epochs_timed(self, count: int) -> list[dict[str, Any]]:
        """Runs epochs, and tells how long each took."""
        return [self._epoch() for _ in range(count)]

    def migrate(self, way: str) -> None:
        """Orders a rescale to the other number of partitions."""
        controller = self.run.attach()
        partitions = 5 if controller.routing().partitions == 3 else 3
        if way == "prepared":
            controller.rescale(partitions, strategy=binshift.Batched(32))
        else:
            controller.rescale(partitions, strategy=binshift.AllAtOnce(), prepare=False)

    def go_on(self, healed: str, migrates: bool) -> list[dict[str, Any]]:
        """Runs epochs until the file is there, one after that, and until no migration is under way."""
        epochs = []
        while True:
            is_last = Path(healed).exists()
            moving = migrates and self._moves()
            epochs.append(self._epoch() | {"moving": moving})
            if is_last and not (migrates and self._moves()):
                return epochs

    def end_of(self, migrates: bool) -> dict[str, Any]:
        """The facts that a test compares at the end: the state, and binshift's own findings."""
        state = [[*key, *value] for key, value in self.run.state()]
        if not migrates:
            return {"state": state}
        controller = self.run.attach()
        return {
            "state": state,
            "keys": sum(controller.stats()["keys"].to_pylist()),
            "partitions": controller.routing().partitions,
            "metadata": [m.numPartitions for m in self.run.metadata()],
            "moved": sum(controller.history()["bins_moved"].to_pylist()),
        }

    def _moves(self) -> bool:
        migration = self.run.attach().migration()
        return migration is not None and not migration.status.is_over

    def _epoch(self) -> dict[str, Any]:
        """Runs an epoch to its commit, with as many starts of the query as it takes."""
        began, failures = time.time(), []
        self._feed()
        while True:
            try:
                self.run.query.processAllAvailable()
                return {"began": began, "seconds": time.time() - began, "failures": failures}
            except (PySparkException, Py4JError) as error:
                failures.append(self._failure(error))
            while len(failures) <= _MOST_STARTS:
                try:
                    self.run.start()
                    break
                except (PySparkException, Py4JError) as error:
                    failures.append(self._failure(error))
            assert len(failures) <= _MOST_STARTS, failures[-1]

    def _failure(self, error: Exception) -> str:
        """The first line of an error; all of it goes to a file."""
        with (self.run.root / "failures").open("a") as out:
            out.write(f"{time.time()} {error}\n\n")
        return str(error).partition("\n")[0][:300]

    def _feed(self) -> None:
        rows = [
            {"k": f"key{(i * 7 + self.epoch * 11) % KEYS}", "v": i, "t": "2026-01-01 00:00:00"}
            for i in range(ROWS if self.epoch else KEYS)
        ]
        self.run.feed(rows)
        self.epoch += 1


if __name__ == "__main__":
    serve(Driven)
