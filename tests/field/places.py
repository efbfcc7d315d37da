"""Where checkpoints of the field are, and how Spark and the command line reach them."""

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
    """A file system.

    Parameters
    ----------
    root : str
        URI below which checkpoints are.
    settings : dict
        Of Spark.
    environment : dict
        Of the command line.
    jars : tuple of Path
        For Spark.
    has_commands : bool
        Whether the command line reads it.
    """

    root: str
    settings: dict[str, str] = field(default_factory=dict)
    environment: dict[str, str] = field(default_factory=dict)
    jars: tuple[Path, ...] = ()
    has_commands: bool = True

    def conf(self, jvm_jar: Path) -> dict[str, str]:
        """All settings of a driver of the tests."""
        return {"spark.jars": ",".join(map(str, [jvm_jar, *self.jars])), **self.settings}

    def run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """The command line."""
        command = [str(Path(sys.executable).parent / "binshift"), *arguments]
        environment = {**os.environ, **self.environment}
        return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)

    def binshift(self, *arguments: str) -> Any:
        """What the command line gives; of JSON, a value for each line, or the only one."""
        done = self.run(*arguments)
        assert done.returncode == 0, f"{arguments}: {done.stdout[-2000:]}\n{done.stderr[-2000:]}"
        if "--json" not in arguments:
            return done.stdout
        try:
            return json.loads(done.stdout)
        except json.JSONDecodeError:
            return [json.loads(line) for line in done.stdout.splitlines()]


def s3_place(endpoint: str) -> Place:
    """By S3A."""
    a = "spark.hadoop.fs.s3a"
    settings = {
        f"{a}.endpoint": endpoint,
        # The default one wants more of the SDK.
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
    """By Hadoop's own client, which pyspark carries."""
    return Place(root=f"{uri}/states", has_commands=False)
