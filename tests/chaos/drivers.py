"""The driver processes of a life, and the executors that belong to them."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from chaos.life import CLUSTER, Life

HERE = Path(__file__).parent
#: A driver that isn't killed and doesn't end in this time is stuck.
PATIENCE_S = 600


class Driver:
    """A driver process. It prepares itself, and starts its query when it is told to."""

    def __init__(self, life: Life, number: int) -> None:
        self.root, self.number = life.root, number
        command = [sys.executable, str(HERE / "victim.py"), str(life.root), str(number)]
        with (life.root / "log").open("ab") as log:
            self.process = subprocess.Popen(command, start_new_session=True, stdout=log, stderr=log)

    @property
    def is_alive(self) -> bool:
        return self.process.poll() is None

    @property
    def jvm(self) -> int:
        return int((self.root / f"jvm-{self.number}").read_text())

    def go(self) -> None:
        (self.root / f"go-{self.number}").touch()

    def has_started(self) -> bool:
        """Waits until the driver's query has started; False if the driver ends before."""
        return self._until((self.root / f"started-{self.number}").exists)

    def has_executors(self, registered: Path) -> None:
        """Waits until all expected executors have registered."""
        self._until(lambda: registered.exists() and registered.read_text() == "2")

    def _until(self, condition: Callable[[], bool]) -> bool:
        deadline = time.monotonic() + PATIENCE_S
        while not condition():
            if not self.is_alive or time.monotonic() > deadline:
                return False
            time.sleep(0.02)
        return True

    def freeze(self) -> None:
        """Stops all processes of the driver, as if its host were paused; `thaw` lets them go on."""
        os.killpg(self.process.pid, signal.SIGSTOP)

    def thaw(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGCONT)

    def kill(self) -> None:
        """Kills the driver with SIGKILL. Its executors end when they notice that it is gone."""
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            os.kill(self.jvm, signal.SIGKILL)
        self.process.kill()
        self.process.wait()


class Drivers(contextlib.AbstractContextManager["Drivers"]):
    """The drivers of a life, one after the other; the next can prepare itself while one works."""

    def __init__(self, life: Life) -> None:
        self.life = life
        self.all: list[Driver] = []
        self.ready: Driver | None = None

    @property
    def starts(self) -> int:
        return len(self.all) - (self.ready is not None)

    def next(self, another: bool = False) -> Driver:
        """Starts a driver's query, and prepares `another` driver unless it would have its own executors."""
        driver = self.ready or self._new()
        driver.go()
        self.ready = self._new() if another and self.life.master != CLUSTER else None
        return driver

    def _new(self) -> Driver:
        self.all.append(Driver(self.life, len(self.all)))
        return self.all[-1]

    def __exit__(self, *error: object) -> None:
        for driver in self.all:
            # If it has written no file yet, its JVM ends when standard input is closed.
            if driver.is_alive:
                driver.kill()


def executors(jvm: int) -> list[int]:
    """The executors of a local cluster, which are children of the driver's JVM."""
    return sorted(pid for pid, parent, command in processes() if parent == jvm and "CoarseGrained" in command)


def processes() -> Iterator[tuple[int, int, str]]:
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            status = (folder / "stat").read_text().rsplit(")", 1)[1].split()
            yield int(folder.name), int(status[1]), (folder / "cmdline").read_text()
        except (OSError, IndexError):
            continue
