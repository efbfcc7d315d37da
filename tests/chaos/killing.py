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
from collections.abc import Generator, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import binshift.inspect as reading
from binshift.inspect.tools.fsck import Severity, fsck
from chaos.life import Life, committed
from local.settings import JOIN_4, ONE_EPOCH

HERE = Path(__file__).parent
#: A driver that does not come to its end without being killed is stuck.
PATIENCE_S = 600


class UndoneError(Exception):
    """A life that did not come to its end, or not to the right one, after so many kills."""

    kills = 0


def live(life: Life, oracles: Path) -> dict[str, Any]:
    """All of a life. Raises `UndoneError` if anything is not as it was without kills and migrations."""
    expected = oracle(life, oracles)
    life.begin()
    rng = random.Random(f"{life.seed} kills")
    kill = kill_executors if life.killed == "executors" else kill_drivers
    failures: list[str] = []
    kills = 0
    with contextlib.closing(kill(life, rng, failures)) as killed:
        try:
            for _ in killed:
                kills += 1
            compare(life, expected)
        except UndoneError as undone:
            undone.kills = kills
            raise
    history = json.loads((life.root / "history.json").read_text())
    return {"kills": kills, "failures": failures, "starts": len(list(life.root.glob("started-*"))), **history}


def kill_drivers(life: Life, rng: random.Random, failures: list[str]) -> Generator[None, None, None]:
    """Kills the driver, once in a run, and lets the last run end; executors may outlive their driver."""
    kills, ended = 0, False
    while not ended:
        with driver(life) as (process, started):
            if kills < life.kills and appears(started, process):
                await_instant(life, process, rng, epochs=rng.choice([0, rng.randint(1, 8)]))
                if process.poll() is None:
                    os.kill(int((life.root / "jvm").read_text()), signal.SIGKILL)
                    process.kill()
                    kills += 1
                    yield
                    continue
            ended = end(life, process, failures)


def kill_executors(life: Life, rng: random.Random, failures: list[str]) -> Generator[None, None, None]:
    """Kills executors under a driver that lives on."""
    kills, ended = 0, False
    while not ended:
        with driver(life) as (process, started):
            if appears(started, process):
                jvm = int((life.root / "jvm").read_text())
                while kills < life.kills and process.poll() is None:
                    await_instant(life, process, rng, epochs=rng.choice([0, rng.randint(1, 4)]))
                    if (pids := executors(jvm)) and process.poll() is None:
                        os.kill(rng.choice(pids), signal.SIGKILL)
                        kills += 1
                        yield
            ended = end(life, process, failures)


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


@contextlib.contextmanager
def driver(life: Life) -> Iterator[tuple[subprocess.Popen[bytes], Path]]:
    """A driver, and the file that it makes once it has started the query; it does not outlive the context."""
    started = life.root / f"started-{len(list(life.root.glob('started-*')))}"
    command = [sys.executable, str(HERE / "victim.py"), str(life.root)]
    with (life.root / "log").open("ab") as log:
        process = subprocess.Popen(command, start_new_session=True, stdout=log, stderr=log)
    try:
        yield process, started
    finally:
        # Its JVM ends when its standard input does; executors end when they miss their driver.
        process.kill()
        process.wait()


def appears(file: Path, process: subprocess.Popen[bytes]) -> bool:
    """Waits for a file of a process; False if the process ends without it."""
    deadline = time.monotonic() + PATIENCE_S
    while not file.exists():
        if process.poll() is not None or time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    return True


def await_instant(life: Life, process: subprocess.Popen[bytes], rng: random.Random, epochs: int) -> None:
    """Waits for so many more epochs, and for any instant in the next ones; or until the process ends."""
    last, deadline = committed(life.root) + epochs, time.monotonic() + PATIENCE_S
    while committed(life.root) < last and process.poll() is None and time.monotonic() < deadline:
        time.sleep(0.02)
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(rng.uniform(0, 2))


def end(life: Life, process: subprocess.Popen[bytes], failures: list[str]) -> bool:
    """Waits for the end of a driver; one that failed is noted and started again, a few times."""
    try:
        code = process.wait(PATIENCE_S)
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
