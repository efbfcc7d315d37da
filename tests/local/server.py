"""A server of Spark Connect, started by the class of `start-connect-server.sh`, with nothing but the jar."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import binshift
from binshift.session import CHANGELOG_KEY, PROVIDER, PROVIDER_KEY
from harness import until
from jvms import SPARK_HOME, quick

MAIN = "org.apache.spark.sql.connect.service.SparkConnectServer"


@contextmanager
def connect_server(folder: Path) -> Iterator[str]:
    """The address of a server, which lives as long as the context."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    settings = {
        **quick(),
        "spark.connect.grpc.binding.address": "127.0.0.1",
        "spark.connect.grpc.binding.port": str(port),
        "spark.ui.enabled": "false",
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
        PROVIDER_KEY: PROVIDER,
        CHANGELOG_KEY: "true",
    }
    options = [f"--conf={key}={value}" for key, value in settings.items()]
    command = [str(SPARK_HOME / "bin" / "spark-submit"), "--class", MAIN, "--master", "local[2]", *options]
    command += ["--jars", str(binshift.jar_path()), "spark-internal"]
    log = folder / "server.log"
    with log.open("wb") as out:
        process = subprocess.Popen(command, stdout=out, stderr=out, start_new_session=True, cwd=folder)
    try:
        assert until(lambda: process.poll() is not None or _listens(port), 180), (
            "the server did not start in time"
        )
        assert process.poll() is None, log.read_text()[-4000:]
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
