"""A driver that a test commands, as `commanded.py`, whose executors go, or get no tasks."""

from __future__ import annotations

import sys
import threading
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import binshift
from cluster.commanded import Commands, counts, serve
from cluster.driver import Outputs
from cluster.places import kill
from harness import StreamRun, rows


class Sink(Outputs):
    """Has an epoch wait before it ends, as long as it is held."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.ends = threading.Event()
        self.ends.set()
        self.waits = threading.Event()

    def __setitem__(self, epoch: int, output: Any) -> None:
        super().__setitem__(epoch, output)
        if not self.ends.is_set():
            self.waits.set()
            assert self.ends.wait(120)


class Departures(Commands):
    def given_back(self, executor: str, total: int) -> list[str]:
        """Has an executor given back as an autoscaler does, in an epoch that does not end; what goes."""
        self.run.outputs = self.sink = Sink(self.run.root / "outputs")
        self.sink.ends.clear()
        self.run.feed(rows(self.epoch))
        self.epoch += 1
        assert self.sink.waits.wait(60)
        link = self.run.attach()._link
        link.request_executors(total)
        return sorted(link.give_back_executors([executor]))

    def end_epoch(self) -> None:
        self.sink.ends.set()
        self.run.query.processAllAvailable()

    def another_query(self, root: str, executor: str) -> list[str]:
        """Another query of the application gets a partition on the executor; where it runs."""
        other = StreamRun(self.spark, Path(root), counts)
        other.start()
        other.run(0, 1)
        migration = other.attach().rescale(3, strategy=binshift.AllAtOnce(), place_on=[executor], prepare=False)
        epoch = 2
        while not migration.status.is_over:
            other.run(epoch)
            epoch += 1
        return sorted({e for on in other.attach()._placement().partitions for e in on})

    def drain(self, executor: str, epochs: int) -> None:
        """Has an executor emptied after so many epochs."""
        self.run.attach().drain(executor, start_epoch=self.epoch + epochs)

    def kill(self, executor: str) -> None:
        kill(self.run, executor)

    def finished(self, most: int) -> bool:
        """Whether no migration is under way after so many epochs at most."""
        for _ in range(most):
            if self.run.attach().migration() is None:
                return True
            self.epochs(1)
        return self.run.attach().migration() is None


if __name__ == "__main__":
    serve(Departures)
