"""Queries with checkpoints in object stores or HDFS: rescaled, killed, restarted, inspected, converted back."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from cluster.commands import Driver, DriverEndedError
from cluster.standalone import Standalone
from field.places import Place
from harness import STOCK
from local.settings import EAGER

pytestmark = [pytest.mark.field, pytest.mark.timeout(3600)]

FORMAT = "spark.sql.streaming.stateStore.checkpointFormatVersion"
MANAGER = "spark.sql.streaming.checkpointFileManagerClass"
HALTING = {MANAGER: "binshift.tests.HaltingCheckpointFileManager"}
#: Writes a file by one request, which it can abort, instead of by a rename.
ABORTABLE = {MANAGER: "org.apache.spark.internal.io.cloud.AbortableStreamBasedCheckpointFileManager"}


@pytest.fixture
def driver(
    request: pytest.FixtureRequest, tmp_path: Path, place: Place, jvm_jar: Path
) -> Iterator[Callable[..., Driver]]:
    def die_when_written(path: str, made: Driver) -> None:
        store = request.getfixturevalue("s3_store")
        store.when_written[f"*{path}"] = lambda: os.killpg(made.process.pid, signal.SIGKILL)

    with contextlib.ExitStack() as drivers:

        def start(checkpoint: str, master: str = "local[2,3]", halt: str = "", **conf: str) -> Driver:
            settings = {**place.conf(jvm_jar), **conf}
            instant, _, path = halt.partition(":")
            # No file manager sees a file that binshift creates by one request.
            is_created = place.root.startswith("s3a:") and path.startswith("/binshift/routing/")
            made = Driver(tmp_path / "run", master, settings, checkpoint, halt="" if is_created else halt)
            drivers.enter_context(made)
            if is_created:
                assert instant == "after"
                die_when_written(path, made)
            return made

        yield start


@pytest.fixture
def cluster(tmp_path: Path, jvm_jar: Path) -> Iterator[Standalone]:
    with Standalone(tmp_path / "cluster") as cluster:
        yield cluster


def begun(query: Driver, partitions: int, bins_per_step: int, *, is_prepared: bool, epochs: int = 2) -> Driver:
    """A query with the state of some epochs; a rescale has just been submitted."""
    query("epochs", epochs)
    query("rescale", partitions, bins_per_step, is_prepared)
    return query


def goes_on(query: Driver, partitions: int) -> list[int]:
    """Restarts a query, which finishes its migration with exact results; returns the steps' epochs."""
    query("finish")
    report = query.assert_exact(partitions)
    query.end()
    return report["switches"]


@pytest.mark.parametrize("form", ["1", "2"])
def test_a_query_goes_on_from_a_fork_of_a_savepoint(driver, place, form):
    checkpoint, fork, ids = f"{place.root}/saved-{form}", f"{place.root}/forked-{form}", {FORMAT: form}
    query = driver(checkpoint, **ids)
    query("epochs", 3)
    made = place.binshift("savepoint", "create", checkpoint, "kept", "--json")
    query("epochs", 3)
    copy = place.binshift("fork", checkpoint, fork, "--savepoint", "kept", "--json")
    assert (copy["epoch"], copy["linked"]) == (made["epoch"], 0)
    version = made["epoch"] + 1
    assert place.binshift("state", "diff", f"{fork}@{version}", f"{checkpoint}@{version}", "--json") == []
    assert place.binshift("fsck", fork, "--json") == []
    query.end()
    query = driver(fork, **ids)
    query("epochs", 1)
    query.assert_exact(2)
    query.end()


@pytest.mark.parametrize("form", ["1", "2"])
def test_a_fork_and_its_source_rescale_and_clean_up_and_do_not_notice_each_other(driver, place, form):
    checkpoint, target = f"{place.root}/source-{form}", f"{place.root}/fork-{form}"
    conf = {FORMAT: form, **EAGER}
    source = begun(driver(checkpoint, **conf), 4, 8, is_prepared=False)
    source("epochs", 3)
    first = place.binshift("fork", checkpoint, target, "--json")["epoch"] + 1
    source("finish")
    fork = driver(target, **conf, **{"spark.binshift.tests.outputs": "fork"})
    for query, other, partitions in (
        (source, fork, 2),
        (fork, source, 5),
        (source, fork, 5),
        (fork, source, 1),
    ):
        query("follow")
        query("rescale", partitions, 16, partitions % 2 == 0)
        query("finish")
        query("epochs", 2)
        assert other("follow") == query("follow")
    assert source("follow") > first + 20
    source.assert_exact(5)
    fork.assert_exact(1, first, "fork")
    source.end()
    fork.end()
    for uri in (checkpoint, target):
        assert [f for f in place.binshift("fsck", uri, "--json") if f["severity"] == "damage"] == []


@pytest.mark.parametrize("form", ["1", "2"])
def test_a_query_is_rescaled_stopped_and_started_and_its_checkpoint_is_looked_into_and_given_back(
    driver, place, tmp_path, form
):
    checkpoint, ids = f"{place.root}/rescaled-{form}", {FORMAT: form}
    query = begun(driver(checkpoint, **ids), 5, 16, is_prepared=True)
    query("finish")
    query("rescale", 3, 32, False)
    goes_on(query, 3)
    query = driver(checkpoint, **ids)
    query("epochs", 2)
    query.assert_exact(3)
    query.end()
    for uri in {checkpoint, checkpoint.replace("s3a:", "s3:")}:
        assert place.binshift("status", uri, "--json")["routing"]["partitions"] == 3
        stats = place.binshift("state", "stats", uri, "--json")
        assert {row["partition"] for row in stats} == {0, 1, 2}
        place.binshift("fsck", uri)
    given_back(driver, place, checkpoint, ids)


def given_back(driver: Callable[..., Driver], place: Place, checkpoint: str, ids: dict[str, str]) -> None:
    """Converts the checkpoint, and checks that a query with Spark's own provider continues from it."""
    lib = ["--jars", ",".join(map(str, place.jars))] if place.jars else []
    settings = [word for k, v in place.settings.items() for word in ("--conf", f"{k}={v}")]
    report: Any = place.binshift("convert", checkpoint, "--to", "rocksdb", *lib, *settings, "--json")
    assert report["output"] == f"{checkpoint}-rocksdb"
    query = driver(report["output"], **ids, **{"spark.binshift.tests.provider": STOCK})
    query("epochs", 2)
    query.assert_outputs()
    query.end()


@pytest.mark.parametrize(("form", "is_prepared"), [("1", True), ("2", False)])
def test_a_driver_that_is_killed_while_bins_move_goes_on_exactly_once(driver, place, form, is_prepared):
    checkpoint, ids = f"{place.root}/killed-{form}", {FORMAT: form}
    query = begun(driver(checkpoint, **ids), 5, 8, is_prepared=is_prepared)
    query("epochs", 2)
    query.kill()
    assert len(goes_on(driver(checkpoint, **ids), 5)) >= 38 // 8


@pytest.mark.parametrize(
    ("instant", "form", "switch"),
    [
        # Spark has not logged the epoch, so the step is carried out one epoch later.
        ("before:/offsets/3", "1", 4),
        ("after:/offsets/3", "2", 3),
        ("before:/commits/3", "1", 3),
    ],
)
def test_a_driver_that_dies_at_the_very_switch_goes_on_exactly_once(driver, place, instant, form, switch):
    checkpoint, ids = f"{place.root}/{instant.replace(':/', '-').replace('/', '-')}", {FORMAT: form}
    query = begun(driver(checkpoint, halt=instant, **HALTING, **ids), 5, 24, is_prepared=False)
    with pytest.raises(DriverEndedError):
        query("finish")
    query.kill()
    assert goes_on(driver(checkpoint, **ids), 5)[0] == switch


def test_a_driver_that_dies_at_the_very_switch_to_copies_goes_on_exactly_once(driver, place):
    checkpoint, ids = f"{place.root}/copies", {FORMAT: "2"}
    # No partition is opened, so the first table of an epoch with two digits is that of a step.
    query = driver(checkpoint, halt="after:/binshift/routing/1*", **HALTING, **ids)
    begun(query, 1, 24, is_prepared=True, epochs=9)
    with pytest.raises(DriverEndedError):
        query("finish")
    query.kill()
    assert goes_on(driver(checkpoint, **ids), 1)[0] >= 10


@pytest.mark.parametrize("form", ["1", "2"])
@pytest.mark.parametrize("place", ["s3"], indirect=True)
def test_files_that_are_written_in_one_request_are_as_good_as_those_that_are_renamed(driver, place, form):
    checkpoint, conf = f"{place.root}/abortable-{form}", {**ABORTABLE, FORMAT: form}
    query = begun(driver(checkpoint, **conf), 5, 16, is_prepared=True)
    query("epochs", 2)
    query.kill()
    query = driver(checkpoint, **conf)
    query("finish")
    query("rescale", 3, 32, False)
    goes_on(query, 3)
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
    begun(query, 6, 24, is_prepared=True)
    query("epochs", 2)
    cluster.kill(workers[0])
    query("epochs", 1)
    query.kill()
    goes_on(driver(checkpoint, **own), 6)
    place.binshift("fsck", checkpoint)
