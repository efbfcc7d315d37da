"""A server in a JVM of its own."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Sequence
from pathlib import Path

__all__ = ["Jvm", "free_ports"]

_POLL_SECONDS = 0.1


class Jvm:
    """Runs the main class of some jars while the context lasts.

    Parameters
    ----------
    jars : sequence of Path
        The class path.
    folder : Path
        Working directory, which gets the log.
    """

    def __init__(self, jars: Sequence[Path], folder: Path, *, memory: str = "512m") -> None:
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        flags = ["-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", f"-Xmx{memory}"]
        self._java = ["java", *flags, "-cp", ":".join(map(str, jars))]
        self._process: subprocess.Popen[bytes] | None = None

    def run(self, main: str, *arguments: str) -> None:
        """Runs a main class to its end."""
        done = subprocess.run(
            [*self._java, main, *arguments], cwd=self.folder, capture_output=True, text=True, check=False
        )
        if done.returncode != 0:
            raise RuntimeError(f"{main} failed:\n{done.stdout[-2000:]}\n{done.stderr[-2000:]}")

    def start(self, main: str, *arguments: str, is_ready: Callable[[], bool], seconds: float = 600) -> None:
        """Starts a main class, and waits until it serves."""
        with (self.folder / "log").open("wb") as log:
            self._process = subprocess.Popen(
                [*self._java, main, *arguments], cwd=self.folder, stdout=log, stderr=log, start_new_session=True
            )
        deadline = time.monotonic() + seconds
        while not is_ready():
            if self._process.poll() is not None or time.monotonic() > deadline:
                said = (self.folder / "log").read_text(errors="replace")[-3000:]
                self.end()
                raise RuntimeError(f"{main} does not serve:\n{said}")
            time.sleep(_POLL_SECONDS)

    def end(self) -> None:
        """Kills it; its files are not needed any more."""
        if self._process is not None and self._process.poll() is None:
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()


def free_ports(count: int) -> list[int]:
    """Ports of the loopback at which nobody listens."""
    sockets = [socket.socket() for _ in range(count)]
    try:
        for s in sockets:
            s.bind(("127.0.0.1", 0))
        return [int(s.getsockname()[1]) for s in sockets]
    finally:
        for s in sockets:
            s.close()
