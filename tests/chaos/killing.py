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
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import binshift.inspect as reading
from binshift.inspect.tools.fsck import Severity, fsck
from binshift.planning.limits import undone_by
from chaos.drivers import HERE, PATIENCE_S, Driver, Drivers, executors
from chaos.life import Life, committed
from chaos.limits import ends
from chaos.winding import wind_back
from local.settings import JOIN_4, ONE_EPOCH
from traces.checker import RejectedError, check

#: How long a driver that was replaced may take to notice, once it goes on.
NOTICES_S = 60


class UndoneError(Exception):
    """A life that didn't reach its end, or reached a wrong one, with the facts that are known."""

    def __init__(self, what: str) -> None:
        super().__init__(what)
        self.facts: dict[str, Any] = {}


def live(life: Life, oracles: Path) -> dict[str, Any]:
    """Runs a whole life. Raises `UndoneError` if anything differs from a run without kills and migrations."""
    expected = oracle(life, oracles)
    life.begin()
    rng = random.Random(f"{life.seed} kills")
    kill = {"driver": kill_drivers, "executors": kill_executors, "frozen": freeze_drivers}[life.killed]
    failures: list[str] = []
    facts: dict[str, Any] = {"kills": 0, "failures": failures}
    try:
        with Drivers(life) as drivers:
            for _ in kill(life, drivers, rng, failures):
                facts["kills"] += 1
            facts["starts"] = drivers.starts
        facts |= json.loads((life.root / "history.json").read_text()) | done(life) | traced(life) | ended(life)
        compare(life, expected)
    except UndoneError as undone:
        undone.facts = facts
        raise
    return facts


def traced(life: Life) -> dict[str, Any]:
    """Replays what all processes have written down, and tells which ways of state met."""
    try:
        verdict = check(life.trace)
    except RejectedError as rejected:
        raise UndoneError(str(rejected)) from None
    return {
        "events": verdict.accepted,
        "unchecked": sorted(verdict.unchecked.values()),
        "pairs": verdict.pairs,
    }


def done(life: Life) -> dict[str, Any]:
    """How often each kind of change was submitted, and refused."""
    file = life.root / "plans.jsonl"
    notes = [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []
    return {"did": dict(Counter(n.get("did", "refused") for n in notes if "did" in n or "refused" in n))}


def ended(life: Life) -> dict[str, Any]:
    """How its migrations have ended, if they had deadlines."""
    if not life.deadlines:
        return {}
    try:
        return {"ended": dict(sorted(ends(life).items()))}
    except ValueError as error:
        raise UndoneError(str(error)) from None


def kill_drivers(life: Life, drivers: Drivers, rng: random.Random, failures: list[str]) -> Iterator[None]:
    """Kills the driver, once in a run, and lets the last run end; executors may outlive their driver."""
    kills, ended = 0, False
    while not ended:
        driver = drivers.next(another=kills + 1 < life.kills)
        if kills < life.kills and driver.has_started():
            if life.deadlines and rng.random() < 0.6:
                await_end(life, driver, rng)
            else:
                await_instant(life, driver, rng, epochs=rng.choice([0, 0, rng.randint(1, 4)]))
            if driver.is_alive:
                driver.kill()
                kills += 1
                if life.winds_back and rng.random() < 0.3:
                    wind_back(life, rng)
                yield
                continue
        ended = end(life, driver, failures)


def freeze_drivers(life: Life, drivers: Drivers, rng: random.Random, failures: list[str]) -> Iterator[None]:
    """Freezes the driver at any instant, lets another one go on, and then wakes the first one up."""
    freezes, ended = 0, False
    while not ended:
        driver = drivers.next(another=freezes < life.kills)
        while freezes < life.kills:
            if rng.random() < 0.4:
                # At an instant while its query starts, or before that.
                await_instant(life, driver, rng, epochs=0)
            elif driver.has_started():
                await_instant(life, driver, rng, epochs=rng.choice([0, 0, rng.randint(1, 4)]))
            if not driver.is_alive:
                break
            driver.freeze()
            frozen, driver = driver, drivers.next(another=freezes + 1 < life.kills)
            freezes += 1
            if driver.has_started():
                await_instant(life, driver, rng, epochs=rng.choice([0, 1, 1, rng.randint(2, 4)]))
            frozen.thaw()
            with contextlib.suppress(subprocess.TimeoutExpired):
                frozen.process.wait(NOTICES_S)
            # If it has nothing left to write, there is nothing at which it could fail.
            if frozen.is_alive and committed(life.root) < life.epochs - 1 and driver.is_alive:
                raise UndoneError(f"a driver that was replaced went on for {NOTICES_S} s; see {life.root}/log")
            frozen.kill()
            yield
        ended = end(life, driver, failures)


def kill_executors(life: Life, drivers: Drivers, rng: random.Random, failures: list[str]) -> Iterator[None]:
    """Kills executors under a driver that lives on: one or both, old ones and those that just came.

    Some are only frozen for a while, so that they come late with what they had begun.
    """
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
                    with contextlib.suppress(ProcessLookupError):
                        if rng.random() < 0.25:
                            os.kill(pid, signal.SIGSTOP)
                            await_instant(life, driver, rng, epochs=0)
                            os.kill(pid, signal.SIGCONT)
                        else:
                            os.kill(pid, signal.SIGKILL)
                    kills += 1
                    yield
        ended = end(life, driver, failures)


def await_instant(life: Life, driver: Driver, rng: random.Random, epochs: int) -> None:
    """Waits for so many more epochs, and for any instant in the next ones; or until the process ends."""
    last, deadline = committed(life.root) + epochs, time.monotonic() + PATIENCE_S
    while committed(life.root) < last and driver.is_alive and time.monotonic() < deadline:
        time.sleep(0.02)
    with contextlib.suppress(subprocess.TimeoutExpired):
        driver.process.wait(rng.uniform(0, 2))


def await_end(life: Life, driver: Driver, rng: random.Random) -> None:
    """Waits until a migration is stopped by its limit, or undone, and for any instant in what follows."""
    first, plans = committed(life.root), life.root / "checkpoint" / "binshift" / "plans"

    def is_ending() -> bool:
        with contextlib.suppress(OSError, ValueError):
            files = plans.glob("*.json")
            return any(undone_by(f.stem) or json.loads(f.read_text()).get("stopped") for f in files)
        return False

    deadline = time.monotonic() + PATIENCE_S
    while not is_ending() and committed(life.root) < first + 6 and time.monotonic() < deadline:
        if not driver.is_alive:
            return
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
    """Made once for each operator, form of its state and input; other settings change nothing."""
    conf = {**ONE_EPOCH, **{k: v for k, v in life.conf.items() if k in JOIN_4}}
    own = replace(life, root=life.root.with_name(f"{life.root.name}-oracle"), conf=conf)
    file = folder / f"{life.operator}{'-4' * (conf != ONE_EPOCH)}-{life.epochs}-{life.rows}.json"
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
    given_back = life.root / "given-back.json"
    if life.gives_back and json.loads(given_back.read_text()) != expected["state"]:
        wrong.append("state that was given back to Spark's provider")
    with reading.open(str(life.root / "checkpoint")) as opened:
        wrong += [f"fsck: {f}" for f in fsck(opened) if f.severity is Severity.DAMAGE]
    if wrong:
        raise UndoneError("; ".join(wrong[:10]))
