"""Lives through a life: starts its driver, kills at random instants, and says what did not come out right."""

from __future__ import annotations

import contextlib
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import binshift.inspect as reading
from binshift.inspect.tools.fsck import Severity, fsck
from chaos.life import CLUSTER, Life, committed
from local.settings import JOIN_4, ONE_EPOCH

HERE = Path(__file__).parent
#: A driver that does not come to its end without being killed is stuck.
PATIENCE_S = 600


class UndoneError(Exception):
    """A life that did not come to its end, or not to the right one, and what is known of it."""

    def __init__(self, what: str) -> None:
        super().__init__(what)
        self.facts: dict[str, Any] = {}


def live(life: Life, oracles: Path) -> dict[str, Any]:
    """All of a life. Raises `UndoneError` if anything is not as it was without kills and migrations."""
    expected = oracle(life, oracles)
    life.begin()
    rng = random.Random(f"{life.seed} kills")
    kill = kill_executors if life.killed == "executors" else kill_drivers
    failures: list[str] = []
    facts: dict[str, Any] = {"kills": 0, "failures": failures}
    try:
        with Drivers(life) as drivers:
            for _ in kill(life, drivers, rng, failures):
                facts["kills"] += 1
            facts["starts"] = drivers.starts
        facts |= json.loads((life.root / "history.json").read_text())
        compare(life, expected)
    except UndoneError as undone:
        undone.facts = facts
        raise
    return facts


def kill_drivers(life: Life, drivers: Drivers, rng: random.Random, failures: list[str]) -> Iterator[None]:
    """Kills the driver, once in a run, and lets the last run end; executors may outlive their driver."""
    kills, ended = 0, False
    while not ended:
        driver = drivers.next(another=kills + 1 < life.kills)
        if kills < life.kills and driver.has_started():
            await_instant(life, driver, rng, epochs=rng.choice([0, 0, rng.randint(1, 4)]))
            if driver.is_alive:
                driver.kill()
                kills += 1
                yield
                continue
        ended = end(life, driver, failures)


def kill_executors(life: Life, drivers: Drivers, rng: random.Random, failures: list[str]) -> Iterator[None]:
    """Kills executors under a driver that lives on: one or both, old ones and those that just came."""
    kills, ended = 0, False
    while not ended:
        driver = drivers.next()
        if driver.has_started():
            while kills < life.kills and driver.is_alive:
                if rng.random() < 0.8:
                    driver.has_executors(life.root / "executors")
                await_instant(life, driver, rng, epochs=rng.choice([0, 0, rng.randint(1, 2)]))
                victims = executors(driver.jvm)
                rng.shuffle(victims)
                for pid in victims[: rng.choice([1, 1, 1, 2])] if driver.is_alive else []:
                    os.kill(pid, signal.SIGKILL)
                    kills += 1
                    yield
        ended = end(life, driver, failures)


def executors(jvm: int) -> list[int]:
    """The executors that are children of a driver's JVM, as those of a local cluster are."""
    return sorted(pid for pid, parent, command in processes() if parent == jvm and "CoarseGrained" in command)


def processes() -> Iterator[tuple[int, int, str]]:
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            status = (folder / "stat").read_text().rsplit(")", 1)[1].split()
            yield int(folder.name), int(status[1]), (folder / "cmdline").read_text()
        except (OSError, IndexError):
            continue


class Driver:
    """A driver's process. It gets ready, and starts its query when it is told to go."""

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
        """Waits until its query has; False if it ends without that."""
        return self._until((self.root / f"started-{self.number}").exists)

    def has_executors(self, registered: Path) -> None:
        """Waits until as many executors as there are to be have registered."""
        self._until(lambda: registered.exists() and registered.read_text() == "2")

    def _until(self, condition: Callable[[], bool]) -> bool:
        deadline = time.monotonic() + PATIENCE_S
        while not condition():
            if not self.is_alive or time.monotonic() > deadline:
                return False
            time.sleep(0.02)
        return True

    def kill(self) -> None:
        """At once and without a word. Executors end when they miss their driver."""
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            os.kill(self.jvm, signal.SIGKILL)
        self.process.kill()
        self.process.wait()


class Drivers(contextlib.AbstractContextManager["Drivers"]):
    """The drivers of a life, one after the other; the next one may get ready while one works."""

    def __init__(self, life: Life) -> None:
        self.life = life
        self.all: list[Driver] = []
        self.ready: Driver | None = None

    @property
    def starts(self) -> int:
        return len(self.all) - (self.ready is not None)

    def next(self, another: bool = False) -> Driver:
        """Lets a driver go, and prepares `another` unless it would bring executors of its own."""
        driver = self.ready or self._new()
        driver.go()
        self.ready = self._new() if another and self.life.master != CLUSTER else None
        return driver

    def _new(self) -> Driver:
        self.all.append(Driver(self.life, len(self.all)))
        return self.all[-1]

    def __exit__(self, *error: object) -> None:
        for driver in self.all:
            # Its JVM ends when its standard input does, should it have written no file yet.
            if driver.is_alive:
                driver.kill()


def await_instant(life: Life, driver: Driver, rng: random.Random, epochs: int) -> None:
    """Waits for so many more epochs, and for any instant in the next ones; or until the process ends."""
    last, deadline = committed(life.root) + epochs, time.monotonic() + PATIENCE_S
    while committed(life.root) < last and driver.is_alive and time.monotonic() < deadline:
        time.sleep(0.02)
    with contextlib.suppress(subprocess.TimeoutExpired):
        driver.process.wait(rng.uniform(0, 2))


def end(life: Life, driver: Driver, failures: list[str]) -> bool:
    """Waits for the end of a driver; one that failed is noted and started again, a few times."""
    try:
        code = driver.process.wait(PATIENCE_S)
    except subprocess.TimeoutExpired:
        raise UndoneError(f"the driver is stuck after {PATIENCE_S} s; see {life.root}/log") from None
    if code != 0:
        failures.append((life.root / "log").read_text()[-1500:])
        if len(failures) > 2:
            raise UndoneError(f"the driver failed {len(failures)} times; see {life.root}/log")
    return code == 0


def oracle(life: Life, folder: Path) -> dict[str, Any]:
    """Made once for each operator and form of its state; other settings change neither output nor state."""
    conf = {**ONE_EPOCH, **{k: v for k, v in life.conf.items() if k in JOIN_4}}
    own = replace(life, root=life.root.with_name(f"{life.root.name}-oracle"), conf=conf)
    file = folder / f"{life.operator}{'-4' * (conf != ONE_EPOCH)}-{life.epochs}.json"
    if not file.exists():
        folder.mkdir(parents=True, exist_ok=True)
        own.begin()
        with (own.root / "log").open("ab") as log:
            subprocess.run(
                [sys.executable, str(HERE / "oracle.py"), str(own.root), str(file)], stderr=log, check=True
            )
        shutil.rmtree(own.root)
    return json.loads(file.read_text())


def compare(life: Life, expected: dict[str, Any]) -> None:
    """All outputs of all attempts, the state, and the files of the checkpoint."""
    wrong = []
    outputs = sorted(
        (life.root / "outputs").glob("*-*.json"), key=lambda f: [int(n) for n in f.stem.split("-")]
    )
    for file in outputs:
        epoch, attempt = file.stem.split("-")
        if json.loads(file.read_text()) != expected["outputs"].get(epoch):
            wrong.append(f"output of epoch {epoch} in run {attempt}")
    missing = expected["outputs"].keys() - {f.stem.split("-")[0] for f in outputs}
    wrong += [f"no output of epoch {epoch}" for epoch in sorted(missing, key=int)]
    if json.loads((life.root / "state.json").read_text()) != expected["state"]:
        wrong.append("state")
    with reading.open(str(life.root / "checkpoint")) as opened:
        wrong += [f"fsck: {f}" for f in fsck(opened) if f.severity is Severity.DAMAGE]
    if wrong:
        raise UndoneError("; ".join(wrong[:10]))
