"""A server of Spark Connect: the class of `start-connect-server.sh`, from the pip package, with the jar."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import binshift
from binshift.session import CHANGELOG_KEY, PROVIDER, PROVIDER_KEY
from devtools.servers.process import free_ports

__all__ = ["connect_server"]

MAIN = "org.apache.spark.sql.connect.service.SparkConnectServer"
_POLL_SECONDS = 0.1


@contextmanager
def connect_server(
    folder: Path,
    home: Path,
    settings: Mapping[str, str],
    *,
    master: str = "local[2]",
    jars: Sequence[Path] = (),
    seconds: float = 180,
) -> Iterator[str]:
    """The address of a server on the loopback, which lives as long as the context.

    Parameters
    ----------
    folder : Path
        Working directory, which gets the log.
    home : Path
        The installed Spark.
    settings : mapping
        Settings beside those that binshift needs.
    jars : sequence of Path
        Jars beside binshift's.
    """
    [port] = free_ports(1)
    every = {
        "spark.connect.grpc.binding.address": "127.0.0.1",
        "spark.connect.grpc.binding.port": str(port),
        "spark.ui.enabled": "false",
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
        PROVIDER_KEY: PROVIDER,
        CHANGELOG_KEY: "true",
        **settings,
    }
    options = [f"--conf={key}={value}" for key, value in every.items()]
    command = [str(home / "bin/spark-submit"), "--class", MAIN, "--master", master, *options]
    command += ["--jars", ",".join(map(str, [binshift.jar_path(), *jars])), "spark-internal"]
    log = folder / "server.log"
    with log.open("wb") as out:
        process = subprocess.Popen(command, stdout=out, stderr=out, start_new_session=True, cwd=folder)
    try:
        deadline = time.monotonic() + seconds
        while not _listens(port):
            if process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"the server does not serve:\n{log.read_text(errors='replace')[-4000:]}")
            time.sleep(_POLL_SECONDS)
        yield f"sc://127.0.0.1:{port}"
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def _listens(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), timeout=1).close()
    except OSError:
        return False
    return True
