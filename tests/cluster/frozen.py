"""Drivers that are stopped at an instant, and go on when another one has taken their place."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from urllib.parse import urlsplit

import cluster.commands
from cluster.conftest import HERE
from cluster.processes import children, state
from harness import lose, until
from jvms import FAULTS
from traces.by_hand import wound_back_to

HALTING = {
    "spark.sql.streaming.checkpointFileManagerClass": "binshift.tests.HaltingCheckpointFileManager",
    **FAULTS,
    # State is read from changelogs, so that no snapshot hides that a version is gone.
    "spark.sql.streaming.stateStore.minDeltasForSnapshot": "4",
}

#: Old files go soon.
CLEANED = {
    "spark.sql.streaming.minBatchesToRetain": "2",
    "spark.sql.streaming.stateStore.maintenanceInterval": "500ms",
    "spark.sql.streaming.stateStore.minDeltasForSnapshot": "2",
}


class Driver(cluster.commands.Driver):
    """One that a test can stop."""

    @property
    def jvm(self) -> int:
        (pid,) = (pid for pid, command in children(self.process.pid) if "java" in command)
        return pid

    def await_stop(self) -> None:
        """Waits until the JVM has stopped itself."""

        def is_stopped() -> bool:
            assert self.process.poll() is None, self.errors.read_text()[-4000:]
            jvms = [pid for pid, command in children(self.process.pid) if "java" in command]
            return any(state(pid) == "T" for pid in jvms)

        assert until(is_stopped, 120), self.errors.read_text()[-4000:]

    def wake(self) -> None:
        os.kill(self.jvm, signal.SIGCONT)

    def wake_in_vain(self) -> str:
        """Wakes the JVM, and waits until its query has failed; what it said."""
        self.wake()
        self.process.wait(timeout=120)
        return self.errors.read_text()


def stopped_of(parent: int) -> list[int]:
    """The processes that a process has started, and that are stopped."""
    return [pid for pid, _ in children(parent) if state(pid) == "T"]


class Drivers:
    """Starts drivers of one query, which have input, outputs and checkpoint in common."""

    master = "local[2]"
    script = HERE / "commanded.py"

    def __init__(
        self, root: Path, jvm_jar: Path, conf: dict[str, str], stack: ExitStack, checkpoint: str = ""
    ) -> None:
        self.root, self.stack, self.started = root, stack, 0
        #: Its place; by default below `root`.
        self.place = checkpoint
        self.conf = {"spark.jars": str(jvm_jar), **HALTING, **conf}

    def start(self, stop: str = "", faults: Iterable[str] = ()) -> Driver:
        """One more driver.

        Parameters
        ----------
        stop : str
            The instant at which it stops, as `HaltingCheckpointFileManager` names it.
        faults : iterable of str
            What happens to this driver only, such as "run.begin.stop".
        """
        self.started += 1
        self._faults.mkdir()
        for fault in faults:
            self.lay(fault)
        conf = self.conf | {"spark.binshift.tests.faults": str(self._faults)}
        # The shell's parent is the JVM, which may come to the instant again after it was woken up.
        once = f"mkdir {self._faults}/stopped 2>/dev/null && kill -STOP $PPID || true"
        name = f"-{self.started}"
        driver = Driver(
            *(self.root, self.master, conf, self.place),
            halt=stop,
            meanwhile=once if stop else "",
            name=name,
            script=self.script,
        )
        self.stack.enter_context(driver)
        return driver

    def lay(self, fault: str) -> Path:
        """Has something happen to the driver that was started last."""
        file = self._faults / fault
        file.touch()
        return file

    def clear(self, fault: str) -> None:
        (self._faults / fault).unlink()

    @property
    def _faults(self) -> Path:
        return self.root.parent / f"faults-{self.started}"

    def wind_back(self, *epochs: int) -> None:
        """Takes the newest epochs out of the logs of a query that nobody runs.

        The source forgets as well, so that each epoch has the input that it had.
        """
        self.delete(f"{log}/{epoch}" for log in ("offsets", "commits", "sources/0") for epoch in epochs)
        first = min(epochs)
        checkpoint = urlsplit(self.place).path or str(self.checkpoint)
        wound_back_to(Path(os.environ["BINSHIFT_TESTS_TRACE"]), checkpoint, offsets=first, commits=first)

    def delete(self, files: Iterable[str]) -> None:
        """Deletes files of the checkpoint, as a person does."""
        for file in files:
            lose(self.checkpoint / file)

    @property
    def checkpoint(self) -> Path:
        return self.root / "checkpoint"


@contextmanager
def drivers_of_a_query(
    root: Path, jvm_jar: Path, conf: dict[str, str], kind: type[Drivers] = Drivers
) -> Iterator[Drivers]:
    with ExitStack() as stack:
        yield kind(root, jvm_jar, conf, stack)
