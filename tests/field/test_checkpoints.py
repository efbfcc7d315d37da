"""A checkpoint in an object store or on HDFS: rescaled, killed, started again, looked into, and given back."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from cluster.commands import Driver, DriverEndedError
from cluster.standalone import Standalone
from field.places import Place, hdfs_place, s3_place

pytestmark = [pytest.mark.field, pytest.mark.timeout(3600)]

FORMAT = "spark.sql.streaming.stateStore.checkpointFormatVersion"
MANAGER = "spark.sql.streaming.checkpointFileManagerClass"
HALTING = {MANAGER: "binshift.tests.HaltingCheckpointFileManager"}
#: Writes a file in one request and aborts that, instead of a rename.
ABORTABLE = {MANAGER: "org.apache.spark.internal.io.cloud.AbortableStreamBasedCheckpointFileManager"}
STOCK = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"


@pytest.fixture(params=["s3", "hdfs"])
def place(request: pytest.FixtureRequest) -> Place:
    made = {"s3": s3_place, "hdfs": hdfs_place}[request.param]
    return made(request.getfixturevalue(request.param))


@pytest.fixture
def driver(tmp_path: Path, place: Place, jvm_jar: Path) -> Iterator[Callable[..., Driver]]:
    with contextlib.ExitStack() as drivers:

        def start(checkpoint: str, master: str = "local[2,3]", halt: str = "", **conf: str) -> Driver:
            settings = {**place.conf(jvm_jar), **conf}
            return drivers.enter_context(Driver(tmp_path / "run", master, settings, checkpoint, halt=halt))

        yield start


@pytest.fixture
def cluster(tmp_path: Path, jvm_jar: Path) -> Iterator[Standalone]:
    with Standalone(tmp_path / "cluster") as cluster:
        yield cluster


def rescaled(driver: Callable[..., Driver], checkpoint: str, **conf: str) -> None:
    """Leaves a checkpoint of three partitions, of a query that was rescaled twice, stopped and started."""
    query = driver(checkpoint, **conf)
    query("epochs", 2)
    query("rescale", 5, 16, True)
    query("finish")
    query("rescale", 3, 32, False)
    query("finish")
    query.assert_exact(3)
    query.end()
    query = driver(checkpoint, **conf)
    query("epochs", 2)
    query.assert_exact(3)
    query.end()


@pytest.mark.parametrize("form", ["1", "2"])
def test_a_query_is_rescaled_stopped_and_started_again_and_its_checkpoint_is_looked_into(
    driver, place, tmp_path, form
):
    checkpoint = f"{place.root}/rescaled-{form}"
    rescaled(driver, checkpoint, **{FORMAT: form})
    if checkpoint.startswith("hdfs:"):
        # Without a Hadoop installation's library, the commands say what to do; and they read a copy.
        refused = place.run("status", checkpoint)
        assert refused.returncode == 3, refused.stderr
        assert "libhdfs" in refused.stderr
        assert "hdfs dfs -get" in refused.stderr
        query = driver(checkpoint, **{FORMAT: form})
        query("copy_checkpoint", str(tmp_path / "copy"))
        query.end()
        checkpoint = str(tmp_path / "copy")
    for uri in {checkpoint, checkpoint.replace("s3a:", "s3:")}:
        assert place.binshift("status", uri, "--json")["routing"]["partitions"] == 3
    assert place.binshift("state", "stats", checkpoint)
    place.binshift("fsck", checkpoint)


def test_a_checkpoint_is_given_back_by_the_command(driver, place):
    checkpoint = f"{place.root}/converted"
    rescaled(driver, checkpoint)
    lib = ["--jars", ",".join(map(str, place.jars))] if place.jars else []
    settings = [word for k, v in place.settings.items() for word in ("--conf", f"{k}={v}")]
    report: Any = place.binshift("convert", checkpoint, "--to", "rocksdb", *lib, *settings, "--json")
    assert report["output"] == f"{checkpoint}-rocksdb"
    query = driver(f"{checkpoint}-rocksdb", **{"spark.binshift.tests.provider": STOCK})
    query("epochs", 2)
    query.assert_outputs()
    query.end()


@pytest.mark.parametrize("epochs", [1, 3])
def test_a_driver_that_is_killed_while_it_migrates_goes_on_exactly_once(driver, place, epochs):
    checkpoint = f"{place.root}/killed-{epochs}"
    query = driver(checkpoint)
    query("epochs", 2)
    query("rescale", 5, 12, True)
    query("epochs", epochs)
    query.kill()
    query = driver(checkpoint)
    query("finish")
    query.assert_exact(5)
    query.end()


@pytest.mark.parametrize(
    ("instant", "form"), [("before:/offsets/3", "1"), ("after:/offsets/3", "2"), ("before:/commits/3", "2")]
)
def test_a_driver_that_dies_at_the_very_switch_goes_on_exactly_once(driver, place, instant, form):
    checkpoint = f"{place.root}/{instant.replace(':/', '-').replace('/', '-')}-{form}"
    query = driver(checkpoint, halt=instant, **HALTING, **{FORMAT: form})
    query("epochs", 2)
    query("rescale", 5, 24, False)
    with pytest.raises(DriverEndedError):
        query("finish")
    query.kill()
    query = driver(checkpoint, **{FORMAT: form})
    query("finish")
    report = query.assert_exact(5)
    assert sum(report["history"]) >= 38
    query.end()


@pytest.mark.parametrize("place", ["s3"], indirect=True)
def test_files_that_are_written_in_one_request_are_as_good_as_those_that_are_renamed(driver, place):
    checkpoint = f"{place.root}/abortable"
    query = driver(checkpoint, **ABORTABLE)
    query("epochs", 2)
    query("rescale", 5, 24, True)
    query("epochs", 2)
    query.kill()
    query = driver(checkpoint, **ABORTABLE)
    query("finish")
    query.assert_exact(5)
    query.end()
    place.binshift("fsck", checkpoint)


@pytest.mark.parametrize("form", ["1", "2"])
@pytest.mark.parametrize("place", ["s3"], indirect=True)
def test_bins_go_between_executors_of_a_cluster_of_which_one_dies_and_then_the_driver(
    driver, place, cluster, form
):
    workers = [cluster.join() for _ in range(3)]
    checkpoint = f"{place.root}/cluster-{form}"
    own = {"master": cluster.url, "spark.executor.memory": "512m", "spark.locality.wait": "1min", FORMAT: form}
    query = driver(checkpoint, **own)
    query("await_executors", 3)
    query("epochs", 2)
    query("rescale", 6, 24, True)
    query("epochs", 2)
    cluster.kill(workers[0])
    query("epochs", 1)
    query.kill()
    query = driver(checkpoint, **own)
    query("finish")
    query.assert_exact(6)
    query.end()
    place.binshift("fsck", checkpoint)
