"""A checkpoint on HDFS: rescaled, stopped, killed at the switch, started again, and looked into."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from cluster.commands import Driver, DriverEndedError

pytestmark = [pytest.mark.field, pytest.mark.timeout(900)]

HALTING = {"spark.sql.streaming.checkpointFileManagerClass": "binshift.tests.HaltingCheckpointFileManager"}


@pytest.fixture
def driver(tmp_path: Path, jvm_jar: Path) -> Iterator[Callable[..., Driver]]:
    with contextlib.ExitStack() as drivers:

        def start(checkpoint: str, halt: str = "", **conf: str) -> Driver:
            settings = {"spark.jars": str(jvm_jar), **conf}
            made = Driver(tmp_path / "run", "local[2,3]", settings, checkpoint, halt=halt)
            return drivers.enter_context(made)

        yield start


def binshift(*arguments: str) -> subprocess.CompletedProcess[str]:
    """The command line."""
    command = [str(Path(sys.executable).parent / "binshift"), *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def answer(*arguments: str) -> str:
    """What the command line prints when all is well."""
    done = binshift(*arguments)
    assert done.returncode == 0, f"{arguments}: {done.stdout[-2000:]}\n{done.stderr[-2000:]}"
    return done.stdout


def test_a_query_is_rescaled_and_stopped_and_its_checkpoint_is_looked_into(driver, hdfs, tmp_path):
    checkpoint = f"{hdfs}/states/rescaled"
    query = driver(checkpoint)
    query("epochs", 2)
    query("rescale", 5, 16, True)
    query("finish")
    query("rescale", 3, 32, False)
    query("finish")
    query.assert_exact(3)
    query.end()
    query = driver(checkpoint)
    query("epochs", 2)
    query.assert_exact(3)
    query("copy_checkpoint", str(tmp_path / "copy"))
    query.end()
    # Without a Hadoop installation's library, the commands say what to do; and they read a copy.
    refused = binshift("status", checkpoint)
    assert refused.returncode == 3, refused.stderr
    assert "libhdfs" in refused.stderr
    assert "hdfs dfs -get" in refused.stderr
    copy = str(tmp_path / "copy")
    assert json.loads(answer("status", copy, "--json"))["routing"]["partitions"] == 3
    assert all(
        json.loads(line)["partition"] < 3 for line in answer("state", "stats", copy, "--json").splitlines()
    )
    answer("fsck", copy)


@pytest.mark.parametrize("instant", ["before:/offsets/3", "before:/commits/3"])
def test_a_driver_that_dies_at_the_very_switch_goes_on_exactly_once(driver, hdfs, instant):
    checkpoint = f"{hdfs}/states/{instant.replace(':/', '-').replace('/', '-')}"
    query = driver(checkpoint, halt=instant, **HALTING)
    query("epochs", 2)
    query("rescale", 5, 24, False)
    with pytest.raises(DriverEndedError):
        query("finish")
    query.kill()
    query = driver(checkpoint)
    query("finish")
    report = query.assert_exact(5)
    assert sum(report["history"]) >= 38
    query.end()
