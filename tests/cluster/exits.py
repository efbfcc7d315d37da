"""Measures how long the JVMs of a program outlive it, and finds the files that they leave behind."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from harness import until

#: A JVM with a deadlock at its exit never ends; on a busy machine, a healthy one takes some seconds.
PATIENCE_SECONDS = 10.0
PROGRAM = Path(__file__).with_name("ending.py")
#: The directories of stores, of copies for them, and of Spark's blocks.
LEFT = ("StateStoreId*", "binshift-*", "blockmgr-*")
LOCAL = "local[2]"
CLUSTER = "local-cluster[2,1,1024]"


@dataclass(frozen=True)
class Exit:
    """How the processes of a program have ended."""

    how: str
    seed: int
    processes: int
    seconds: float
    stuck: int
    left: list[str]

    @property
    def is_clean(self) -> bool:
        return not self.stuck and not self.left


def end_program(folder: Path, how: str, seed: int = 0, master: str = LOCAL) -> Exit:
    """Runs a program to its end, watches its JVMs, and kills those that are still alive."""
    folder.mkdir(parents=True, exist_ok=True)
    local = folder / "local"
    local.mkdir()
    environment = {**os.environ, "SPARK_LOCAL_DIRS": str(local), "TMPDIR": str(local)}
    command = [sys.executable, str(PROGRAM), str(folder), how, f"--seed={seed}", f"--master={master}"]
    # No pipes, as a JVM that lives on would keep them open.
    with (folder / "out").open("w") as out, (folder / "err").open("w") as err:
        program = subprocess.Popen(
            command, env=environment, stdin=subprocess.PIPE, stdout=out, stderr=err, cwd=folder
        )
        said = folder / "out"
        try:
            is_told = until(lambda: said.read_text().endswith("\n") or program.poll() is not None, 300)
            assert is_told
            assert said.read_text(), (folder / "err").read_text()[-4000:]
            told = json.loads(said.read_text())
            ended = until(lambda: not _living(told["ends"]), PATIENCE_SECONDS)
            stuck = [] if ended else _living(told["ends"])
            seconds = time.monotonic() - told["at"]
            for pid in stuck:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
        finally:
            program.kill()
            program.communicate()
    left = [str(p.relative_to(local)) for name in LEFT for p in local.rglob(name)]
    # A worker deletes the directories of its executors, unless it was killed as well.
    return Exit(how, seed, len(told["ends"]), round(seconds, 1), len(stuck), left if master == LOCAL else [])


def _living(pids: list[int]) -> list[int]:
    def lives(pid: int) -> bool:
        try:
            stat = Path(f"/proc/{pid}/stat").read_text()
        except OSError:
            return False
        return stat.rsplit(")", 1)[1].split()[0] != "Z"

    return [pid for pid in pids if lives(pid)]
