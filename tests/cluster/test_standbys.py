"""Executors die without notice, and their partitions continue on their standbys' executors."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from cluster.commands import Driver
from cluster.conftest import HERE
from cluster.standalone import Standalone
from harness import Fault, until
from jvms import FAULTS

CLUSTER = "local-cluster[3,1,1024]"
STORE = "spark.sql.streaming.stateStore."
CONF = {
    "spark.executor.memory": "512m",
    "spark.sql.shuffle.partitions": "4",
    # A partition that went elsewhere would have waited for the executor of its standby.
    "spark.locality.wait": "1min",
    STORE + "minDeltasForSnapshot": "3",
    STORE + "binshift.standbys": "1",
    STORE + "binshift.standbys.interval": "200ms",
}
IDS = {STORE + "checkpointFormatVersion": "2"}
#: No snapshot is uploaded while an executor dies.
NO_SNAPSHOTS = {STORE + "minDeltasForSnapshot": "1000"}
NO_CHANGELOG = {STORE + "rocksdb.changelogCheckpointing.enabled": "false"}


@pytest.fixture
def driver(tmp_path: Path, jvm_jar: Path) -> Iterator[Callable[..., Driver]]:
    with contextlib.ExitStack() as drivers:

        def start(master: str = CLUSTER, **conf: str) -> Driver:
            options = CONF | conf
            return drivers.enter_context(
                Driver(tmp_path / "run", master, options, script=HERE / "standing_by.py")
            )

        yield start


def begun(query: Driver, executors: int = 3) -> tuple[list[str], str]:
    """The executors with the partitions' standbys, and an executor that has partitions."""
    query("await_executors", executors)
    query("epochs", 4)
    ready = query("ready")
    return ready, query("placement")["partitions"][0][0]


def placed(query: Driver) -> list[str]:
    partitions: list[list[str]] = query("placement")["partitions"]
    assert all(len(on) == 1 for on in partitions)
    return [on[0] for on in partitions]


@pytest.mark.long
@pytest.mark.parametrize(
    "conf",
    [
        {},
        NO_SNAPSHOTS,
        pytest.param(IDS, marks=pytest.mark.matrix),
        pytest.param(NO_CHANGELOG, marks=pytest.mark.matrix),
        pytest.param(NO_CHANGELOG | IDS, marks=pytest.mark.matrix),
    ],
)
def test_partitions_of_an_executor_that_dies_go_on_where_their_standbys_are(driver, conf):
    query = driver(**conf)
    ready, victim = begun(query)
    before = placed(query)
    # Each executor has its share of the standbys, none of them for its own partitions.
    assert set(query("shared").values()) <= {1, 2}
    epoch = query("epochs", 0)
    query("kill", victim)
    lost = [p for p, on in enumerate(before) if on == victim]
    query("take_over", len(lost))
    query("epochs", 1)
    now = placed(query)
    assert [now[p] for p in lost] == [ready[p] for p in lost]
    assert [on for p, on in enumerate(now) if p not in lost] == [
        on for p, on in enumerate(before) if p not in lost
    ]
    here, fetched = query("files", epoch)
    assert here >= len(lost)
    # A snapshot that is uploaded between the look and the death has files that no standby has got.
    assert fetched <= here if conf is not NO_SNAPSHOTS else fetched == 0
    # They have standbys on other executors again, and those work as well.
    again = query("ready")
    assert all(e != on for e, on in zip(again, now, strict=True))
    query("kill", now[lost[0]])
    query("epochs", 2)
    query.assert_exact(4)
    query.end()


@pytest.mark.long
def test_partitions_of_an_executor_that_is_drained_go_where_their_standbys_are(driver):
    query = driver(**NO_SNAPSHOTS)
    ready, drained = begun(query)
    before = placed(query)
    epoch = query("epochs", 0)
    query("drain", drained)
    query("finish")
    now = placed(query)
    assert now == [ready[p] if on == drained else on for p, on in enumerate(before)]
    here, fetched = query("files", epoch)
    assert here >= before.count(drained)
    assert fetched == 0
    query.assert_exact(4)
    query.end()


@pytest.mark.long
@pytest.mark.parametrize("fault", [None, "throw", "die"])
def test_without_standbys_files_are_kept_for_partitions_that_move_until_they_have_moved(driver, jvm_jar, fault):
    query = driver(**FAULTS, **{"spark.jars": str(jvm_jar), STORE + "binshift.standbys": "0"})
    query("await_executors", 3)
    epoch = query("epochs", 4)
    drained = placed(query)[0]
    with contextlib.ExitStack() as stack:
        if fault is not None:
            stack.enter_context(Fault("standby.file", fault, always=True))
        query("drain", drained)
        query("finish")
    assert drained not in placed(query)
    here, _ = query("files", epoch)
    # Files that could not be fetched hold up nobody.
    assert here > 0 or fault is not None
    query("forgotten")
    assert {tuple(s) for s in query("standbys").values()} == {(None, None)}
    query.assert_exact(4)
    query.end()


@pytest.mark.long
def test_a_standby_without_files_does_not_get_partitions_of_a_drained_executor(driver, jvm_jar):
    query = driver(**FAULTS, **{"spark.jars": str(jvm_jar), "spark.sql.shuffle.partitions": "2"})
    query("await_executors", 3)
    with Fault("standby.file", "throw", always=True):
        query("epochs", 4)
        *hosts, idle = query("executors")
        query("put", hosts)
        query("finish")
        assert placed(query) == hosts
        query("epochs", 2)
        query("lags", None)
        # At least one of the two standbys is where the other partition runs.
        standbys = [executor for executor, _ in query("standbys").values()]
        p = next(p for p, executor in enumerate(standbys) if executor in hosts)
        query("drain", hosts[p])
        query("finish")
        assert placed(query)[p] == idle
    query.assert_exact(2)
    query.end()


@pytest.mark.long
def test_a_partition_that_is_there_waits_for_no_files(driver, jvm_jar):
    query = driver(**FAULTS, **{"spark.jars": str(jvm_jar)})
    query("await_executors", 3)
    with Fault("standby.file", "block"):
        query("epochs", 4)
        before = placed(query)
        query("put", before)
        query("finish")
    assert placed(query) == before
    query.end()


@pytest.mark.long
def test_a_standby_lacks_what_its_partition_got_from_others_since_its_snapshot(driver, jvm_jar):
    faults = FAULTS | {"spark.jars": str(jvm_jar), "spark.sql.shuffle.partitions": "2"}
    query = driver(**faults)
    begun(query)
    with Fault("snapshot.upload", "throw", always=True):
        query("swap")
        epochs = query("finish")
        switched = query("report")["switches"][-1]
        query("lags", epochs - switched)
        # The next driver doesn't know which partitions got bins.
        query.kill()
        query = driver(**faults)
        query("await_executors", 3)
        epochs = query("epochs", 3)
        query("lags", epochs - switched)
    query("epochs", 4)
    query("ready")
    query.assert_exact(2)
    query.end()


@pytest.mark.matrix
@pytest.mark.parametrize("point", ["standby.file", "standby.changelog", "standby.snapshot", "standby.take"])
def test_an_executor_may_die_at_any_instant_of_a_standby(driver, jvm_jar, point):
    faults = FAULTS | {"spark.jars": str(jvm_jar)}
    query = driver(**faults, **IDS if point == "standby.snapshot" else {})
    if point == "standby.take":
        _, victim = begun(query)
        # The standby's executor dies while it takes over.
        with Fault(point, "kill") as fault:
            query("kill", victim)
            query("epochs", 2)
            assert fault.happened
    else:
        query("await_executors", 3)
        with Fault(point, "kill") as fault:
            query("epochs", 4)
            assert until(lambda: fault.happened)
            query("epochs", 2)
    query("await_executors", 3)
    query("epochs", 2)
    query("ready")
    query.assert_exact(4)
    query.end()


@pytest.mark.matrix
def test_an_executor_that_was_cut_off_and_comes_back_commits_nothing_more(driver):
    query = driver()
    ready, victim = begun(query)
    before = placed(query)
    query("cut_off", victim)
    query("epochs", 2)
    now = placed(query)
    assert [on for p, on in enumerate(now) if before[p] == victim] == [
        on for p, on in enumerate(ready) if before[p] == victim
    ]
    query("resume", victim)
    query("epochs", 3)
    assert placed(query) == now
    query.assert_exact(4)
    query.end()


@pytest.mark.matrix
def test_tasks_that_run_twice_leave_exact_results(driver):
    speculation = {
        "spark.speculation": "true",
        "spark.speculation.interval": "50ms",
        "spark.speculation.multiplier": "1",
        "spark.speculation.quantile": "0.1",
        "spark.speculation.minTaskRuntime": "1ms",
        "spark.locality.wait": "0",
    }
    query = driver(**speculation)
    _, victim = begun(query)
    query("epochs", 5)
    query("kill", victim)
    query("epochs", 4)
    query.assert_exact(4)
    query.end()


@pytest.mark.matrix
def test_standbys_follow_executors_partitions_and_runs(driver, tmp_path):
    query = driver()
    _, victim = begun(query)
    # The dead executor was replaced, and the new one gets standbys.
    query("kill", victim)
    query("await_executors", 3)
    query("epochs", 2)
    assert len(query("shared")) == 3
    # With more partitions, each has a standby of its own.
    query("rescale", 6, 64, True)
    query("finish")
    # A standby lacks what its partition got until the partition has made a snapshot.
    query("epochs", 3)
    assert len(query("ready")) == 6
    query("epochs", 3)
    query("ready")
    # The next driver begins anew.
    query.kill()
    again = driver()
    again("await_executors", 3)
    again("epochs", 3)
    again("ready")
    again.assert_exact(6)
    running, ended = again("left_over")
    assert running > 0
    assert ended == 0
    again.end()


@pytest.mark.matrix
def test_a_machine_of_a_cluster_dies(driver, tmp_path):
    with Standalone(tmp_path / "cluster") as cluster:
        workers = [cluster.join() for _ in range(3)]
        query = driver(cluster.url)
        ready, _ = begun(query)
        before = placed(query)
        epoch = query("epochs", 0)
        # Executors register in any order, so the test can't tell which worker has which.
        cluster.kill(workers[0])
        query("left", 2)
        gone = set(before) - set(query("executors"))
        lost = [p for p, on in enumerate(before) if on in gone]
        query("take_over", len(lost))
        query("epochs", 1)
        now = placed(query)
        assert [now[p] for p in lost] == [ready[p] for p in lost]
        assert query("files", epoch)[1] == 0
        cluster.join()
        query("await_executors", 3)
        query("epochs", 2)
        query("ready")
        query.assert_exact(4)
        query.end()


@pytest.mark.long
def test_without_an_executor_to_spare_there_is_no_standby(driver, tmp_path):
    query = driver("local[2]")
    query("epochs", 2)
    assert {tuple(s) for s in query("standbys").values()} == {(None, None)}
    query.assert_exact(4)
    query.end()
