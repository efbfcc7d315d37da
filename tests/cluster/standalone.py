"""A standalone cluster whose master and workers are separate processes, by default on the loopback."""

from __future__ import annotations

import os
import re
import signal
import subprocess
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from harness import until
from jvms import SPARK_HOME

MASTER = "org.apache.spark.deploy.master.Master"
WORKER = "org.apache.spark.deploy.worker.Worker"
#: A busy machine takes minutes to start a JVM.
_PATIENCE_SECONDS = 240.0


@dataclass(frozen=True, kw_only=True)
class Seat:
    """Where a process of the cluster runs: its address, what its command begins with, and its environment."""

    address: str = "127.0.0.1"
    prefix: tuple[str, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict)


class Standalone:
    """Starts the master with the cluster, and a worker with each `join`.

    Parameters
    ----------
    folder : Path
        Gets the logs, and the directories of the workers' applications.
    settings : mapping
        Spark settings of master and workers; applications have to have those of authentication, too.
    seat : callable
        From `master` or `worker-N` to where that runs.
    """

    def __init__(
        self,
        folder: Path,
        settings: Mapping[str, str] | None = None,
        seat: Callable[[str], Seat] = lambda _: Seat(),
    ) -> None:
        self.folder = folder
        self.seat = seat
        self.settings = {"spark.master.rest.enabled": "false", **(settings or {})}
        self.url = ""
        self.workers: list[subprocess.Popen[bytes]] = []
        #: Workers that were decommissioned. They live, and get no executor.
        self.leaving: list[subprocess.Popen[bytes]] = []
        self._master: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Standalone:
        self.folder.mkdir(parents=True, exist_ok=True)
        self._master = self._start("master", MASTER)
        self.url = self._said("master", r"Starting Spark master at (spark://\S+)")
        return self

    def __exit__(self, *error: object) -> None:
        for process in [*self.workers, self._master]:
            if process is not None and process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()

    def join(self, cores: int = 1, *, is_awaited: bool = True) -> subprocess.Popen[bytes]:
        """Starts a worker; unless told otherwise, waits until it has registered with the master."""
        name = f"worker-{len(self.workers)}"
        work = ("--work-dir", str(self.folder / name), "--cores", str(cores), "--memory", "1g")
        worker = self._start(name, WORKER, *work, self.url)
        self.workers.append(worker)
        if is_awaited:
            self._said(name, r"(Successfully registered with master)")
        return worker

    def kill(self, worker: subprocess.Popen[bytes]) -> None:
        """Kills a worker and its executors without notice, as if their machine were lost."""
        os.killpg(worker.pid, signal.SIGKILL)
        worker.wait()

    def decommission(self, worker: subprocess.Popen[bytes]) -> None:
        """Decommissions a worker; its executors tell the driver."""
        worker.send_signal(signal.SIGPWR)
        self.leaving.append(worker)

    def _start(self, name: str, main: str, *arguments: str) -> subprocess.Popen[bytes]:
        seat = self.seat(name)
        options = " ".join(f"-D{key}={value}" for key, value in self.settings.items())
        environment = {
            **os.environ,
            "SPARK_HOME": str(SPARK_HOME),
            "SPARK_DAEMON_JAVA_OPTS": f"-XX:TieredStopAtLevel=1 -XX:+UseSerialGC {options}",
            "SPARK_DAEMON_MEMORY": "256m",
            **seat.environment,
        }
        at = ("--host", seat.address, "--port", "0", "--webui-port", "0")
        command = [*seat.prefix, str(SPARK_HOME / "bin" / "spark-class"), main, *at, *arguments]
        with (self.folder / f"{name}.log").open("wb") as log:
            return subprocess.Popen(
                command, env=environment, stdout=log, stderr=log, start_new_session=True, cwd=self.folder
            )

    def _said(self, name: str, pattern: str) -> str:
        """Waits until a process's log has the pattern, and returns the match; a failure shows the log."""
        log = self.folder / f"{name}.log"
        found: list[str] = []

        def look() -> bool:
            found.extend(re.findall(pattern, log.read_text(errors="replace"))[:1])
            return bool(found)

        is_ready = until(look, _PATIENCE_SECONDS)
        assert is_ready, f"{name} did not start:\n{log.read_text(errors='replace')[-4000:]}"
        return found[0]
