"""A checkpoint on a real S3 API, by S3A: rescaled, killed, started again, looked into, and given back."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from cluster.commands import Driver
from devtools.servers.jars import jars

pytestmark = pytest.mark.field

KEYS = {"AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": "test", "AWS_DEFAULT_REGION": "us-east-1"}


@pytest.fixture
def settings(s3: str, jvm_jar: Path) -> dict[str, str]:
    a = "spark.hadoop.fs.s3a"
    return {
        # File systems are found by the class path of the driver, before Spark loads `spark.jars`.
        "spark.jars": ",".join(map(str, [jvm_jar, *jars("s3a", for_spark=True)])),
        f"{a}.endpoint": s3,
        # The default one wants more of the SDK.
        f"{a}.input.stream.type": "classic",
        f"{a}.endpoint.region": "us-east-1",
        f"{a}.path.style.access": "true",
        f"{a}.access.key": "test",
        f"{a}.secret.key": "test",
    }


@pytest.fixture
def driver(tmp_path: Path, settings: dict[str, str]) -> Iterator[Callable[..., Driver]]:
    with contextlib.ExitStack() as drivers:

        def start(checkpoint: str, **conf: str) -> Driver:
            return drivers.enter_context(
                Driver(tmp_path / "run", "local[2,3]", {**settings, **conf}, checkpoint)
            )

        yield start


@pytest.fixture
def binshift(s3: str) -> Callable[..., Any]:
    """The command line, which gives JSON."""

    def run(*arguments: str) -> Any:
        command = [str(Path(sys.executable).parent / "binshift"), *arguments]
        environment = {**os.environ, **KEYS, "AWS_ENDPOINT_URL": s3}
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
        assert done.returncode == 0, f"{arguments}: {done.stdout[-2000:]}\n{done.stderr[-2000:]}"
        return json.loads(done.stdout) if "--json" in arguments else done.stdout

    return run


@pytest.mark.parametrize("form", ["1", "2"])
def test_a_query_is_rescaled_stopped_and_started_again(driver, binshift, form):
    checkpoint = f"s3a://states/rescaled-{form}"
    ids = {"spark.sql.streaming.stateStore.checkpointFormatVersion": form}
    query = driver(checkpoint, **ids)
    query("epochs", 2)
    query("rescale", 5, 16, True)
    query("finish")
    query("rescale", 3, 32, False)
    query("finish")
    query.assert_exact(3)
    query.end()
    query = driver(checkpoint, **ids)
    query("epochs", 2)
    query.assert_exact(3)
    query.end()
    for uri in (checkpoint, checkpoint.replace("s3a:", "s3:")):
        assert binshift("status", uri, "--json")["routing"]["partitions"] == 3
    assert binshift("state", "stats", checkpoint)
    binshift("fsck", checkpoint)


@pytest.mark.parametrize("epochs", [1, 2, 3])
def test_a_driver_that_is_killed_while_it_migrates_goes_on_exactly_once(driver, epochs):
    checkpoint = f"s3a://states/killed-{epochs}"
    query = driver(checkpoint)
    query("epochs", 2)
    query("rescale", 5, 12, True)
    query("epochs", epochs)
    query.kill()
    query = driver(checkpoint)
    query("finish")
    query.assert_exact(5)
    query.end()
