"""File systems of the field tests' checkpoints, and how Spark and the command line reach them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from devtools.servers.jars import jars

_KEYS = {"AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": "test", "AWS_DEFAULT_REGION": "us-east-1"}


@dataclass(frozen=True, kw_only=True)
class Place:
    """A file system for checkpoints.

    Parameters
    ----------
    root : str
        The URI of the folder of checkpoints.
    settings : dict
        Spark's settings.
    environment : dict
        The environment of the command line.
    jars : tuple of Path
        Jars for Spark.
    prefix : tuple of str
        What commands begin with, such as one that runs them on another host.
    """

    root: str
    settings: dict[str, str] = field(default_factory=dict)
    environment: dict[str, str] = field(default_factory=dict)
    jars: tuple[Path, ...] = ()
    prefix: tuple[str, ...] = ()

    def conf(self, jvm_jar: Path) -> dict[str, str]:
        """All settings of a driver for this file system."""
        return {"spark.jars": ",".join(map(str, [jvm_jar, *self.jars])), **self.settings}

    def run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Runs a command."""
        command = [*self.prefix, str(Path(sys.executable).parent / "binshift"), *arguments]
        environment = {**os.environ, **self.environment}
        return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)

    def binshift(self, *arguments: str) -> Any:
        """Runs a command and returns its JSON output: the list of the lines' values, or the only value."""
        done = self.run(*arguments)
        assert done.returncode == 0, f"{arguments}: {done.stdout[-2000:]}\n{done.stderr[-2000:]}"
        if "--json" not in arguments:
            return done.stdout
        try:
            return json.loads(done.stdout)
        except json.JSONDecodeError:
            return [json.loads(line) for line in done.stdout.splitlines()]


def s3_place(endpoint: str) -> Place:
    """An S3 API, which Spark reaches by S3A."""
    a = "spark.hadoop.fs.s3a"
    settings = {
        f"{a}.endpoint": endpoint,
        # The default stream needs more parts of the SDK.
        f"{a}.input.stream.type": "classic",
        # Otherwise local files go by the SDK's asynchronous client. The tests' server says `100 Continue`
        # twice, and that client takes the second one for the answer.
        f"{a}.optimized.copy.from.local.enabled": "false",
        f"{a}.endpoint.region": "us-east-1",
        f"{a}.path.style.access": "true",
        f"{a}.access.key": "test",
        f"{a}.secret.key": "test",
    }
    environment = {**_KEYS, "AWS_ENDPOINT_URL": endpoint}
    lib = tuple(jars("s3a", for_spark=True))
    return Place(root="s3a://states", settings=settings, environment=environment, jars=lib)


def hdfs_place(uri: str) -> Place:
    """HDFS, which Spark reaches by Hadoop's client; pyspark contains it."""
    return Place(root=f"{uri}/states")
