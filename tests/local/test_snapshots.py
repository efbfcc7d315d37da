"""Partitions take turns with their snapshots."""

from __future__ import annotations

import threading

import pytest
from pyspark.sql import DataFrame

from harness import Fault, end_maintenance, until
from local.migrations import shift
from local.queries import QUERIES, count_by_key, counted, counted_at_once
from local.settings import IDS, MIN_DELTAS, ONE_EPOCH


@pytest.fixture(autouse=True)
def alone(spark):
    """Closes the stores of earlier tests; their late uploads would be counted, held or failed instead."""
    end_maintenance(spark)


@pytest.fixture
def opened(spark, tmp_path):
    """Opens stores that make a snapshot after a number of versions."""
    stores = []

    def open_store(every: int, is_shared: bool = False, partition: int | None = None):
        turns = spark._jvm.org.apache.spark.sql.execution.streaming.state.binshift.TestTurn
        place = len(stores) if partition is None else partition
        stores.append(turns.open(str(tmp_path / str(len(stores))), place, every, is_shared))
        return stores[-1]

    yield open_store
    for store in stores:
        store.close()


def snapshots(store, commits: int, is_whole: bool = True) -> list[int]:
    """Tells which of the next commits make a snapshot."""
    return [i for i in range(commits) if store.commit(is_whole, False)]


def test_each_store_has_a_turn_of_its_own(opened):
    made = [snapshots(opened(3), 12) for _ in range(3)]
    assert sorted(made) == [[0, 3, 6, 9], [1, 4, 7, 10], [2, 5, 8, 11]]


def test_all_stores_of_real_time_mode_have_the_same_turn(opened):
    made = [snapshots(opened(3, is_shared=True), 12) for _ in range(3)]
    assert made == [[2, 5, 8, 11]] * 3


def test_another_attempt_makes_its_snapshots_at_the_same_versions_whatever_else_is_open(opened):
    made = snapshots(opened(5, partition=7), 12)
    opened(5), opened(5)
    assert snapshots(opened(5, partition=7), 12) == made


def test_a_store_that_misses_its_turns_makes_a_snapshot_as_soon_as_it_can(opened):
    store = opened(4)
    [turn] = snapshots(store, 4)
    assert snapshots(store, turn + 5, is_whole=False) == []
    assert snapshots(store, 8) == [0, 3, 7]


def test_a_store_that_never_makes_a_snapshot_of_itself_has_a_turn_too(opened):
    assert snapshots(opened(2**31 - 1), 5) == []


def test_a_store_that_adopted_bins_has_a_snapshot_within_ten_versions(opened):
    store = opened(1000)
    assert snapshots(store, 5) == []
    assert [store.commit(True, adopted) for adopted in [True] + 9 * [False]].count(True) == 1
    assert snapshots(store, 30) == []


@pytest.mark.long
def test_partitions_that_adopted_bins_have_snapshots_soon_but_not_all_at_the_switch(stream):
    query = QUERIES["count"]
    run = stream(query.build, mode=query.mode, conf={MIN_DELTAS: "998"}).start()
    run.run(0, 1)
    after, report = shift(run, 2)
    run.run(*range(after, after + 10))
    switch = report.last_epoch
    partitions = [run.checkpoint / "state/0" / str(p) for p in range(2)]

    def versions(partition):
        return {int(file.stem) for file in partition.glob("*.zip") if int(file.stem) > switch}

    assert until(lambda: all(versions(p) for p in partitions))
    assert len({max(versions(p)) for p in partitions}) > 1


@pytest.fixture
def uploading(stream):
    """A query whose stores have adopted bins; one store is held when it uploads its snapshot."""
    query = QUERIES["count"]
    run = stream(query.build, mode=query.mode, conf={MIN_DELTAS: "998"}).start()
    run.run(0, 1)
    with Fault("snapshot.upload", "count") as uploads, Fault("snapshot.upload", "block") as held:
        after, _ = shift(run, 2)
        run.run(*range(after, after + 10))
        assert until(lambda: uploads.count > 0)
        yield run, held


def ended_after(held: Fault, end) -> None:
    """Runs `end` in a thread, first while uploads are held, and then to its end."""
    ending = threading.Thread(target=end)
    ending.start()
    # It may wait or not; without binshift's precautions it would not, and would have done harm by now.
    until(lambda: not ending.is_alive(), seconds=3)
    held.file.unlink()
    ending.join(timeout=60)
    assert not ending.is_alive()


@pytest.mark.long
def test_a_store_that_is_closed_while_its_snapshot_is_uploaded_waits_until_that_is_whole(uploading, spark):
    run, held = uploading
    before = set(run.checkpoint.glob("state/0/*/*.zip"))
    stores = getattr(spark._jvm.org.apache.spark.sql.execution.streaming.state, "StateStore$")
    ended_after(held, getattr(stores, "MODULE$").unloadAll)
    assert until(lambda: set(run.checkpoint.glob("state/0/*/*.zip")) > before)
    run.run(20)
    batch = {(r.k, r.n, r.total) for r in run.build(run.batch()).collect()}
    assert {(*key, *value) for key, value in run.state()} == batch


@pytest.mark.long
@pytest.mark.needs_spark("4.3", reason="no second thread of maintenance waits for a store before")
def test_maintenance_ends_while_its_threads_wait_for_a_store_that_uploads(uploading, spark):
    run, held = uploading
    threads = spark._jvm.org.apache.spark.sql.execution.streaming.state.binshift.TestThreads
    assert until(lambda: threads.blocked("state-store-maintenance") > 0)
    ended_after(held, lambda: end_maintenance(spark))
    assert threads.blocked("state-store-maintenance") == 0
    run.run(20)
    batch = {(r.k, r.n, r.total) for r in run.build(run.batch()).collect()}
    assert {(*key, *value) for key, value in run.state()} == batch


#: Under format 2, a changelog names what led to it, back to a snapshot. Here, a load begins with no older one.
NAMED = (
    ONE_EPOCH
    | IDS
    | {
        MIN_DELTAS: "1",
        "spark.sql.streaming.stateStore.autoSnapshotRepair.enabled": "false",
        "spark.sql.shuffle.partitions": "1",
    }
)


def test_a_snapshot_that_was_not_uploaded_to_its_end_leaves_the_base_to_the_one_before(stream):
    files = {"spark.sql.streaming.checkpointFileManagerClass": "org.apache.spark.sql.binshift.TestZips"}
    run = stream(count_by_key, conf=NAMED | files).start()
    run.run(0, 1)
    assert until(lambda: len(list(run.checkpoint.glob("state/0/0/2_*.zip"))) == 1)
    with Fault("snapshot.zip", "count") as uploads, Fault("snapshot.zip", "throw", always=True):
        run.run(2)
        assert until(lambda: uploads.count > 0)
        run.run(3, 4)
        run.stop()
        end_maintenance(run.spark)
    run.start()
    run.run(5)
    assert counted(run) == counted_at_once(run)


def test_a_snapshot_of_an_attempt_that_does_not_count_leaves_a_base_to_the_one_that_does(stream):
    run = stream(count_by_key, conf=NAMED).start()
    run.run(0, 1)

    def uploaded(version: int) -> list[str]:
        return [f.stem.split("_")[1] for f in run.checkpoint.glob(f"state/0/0/{version}_*.zip")]

    assert until(lambda: len(uploaded(2)) == 1)
    keep = run._keep

    def run_twice(batch: DataFrame, epoch: int) -> None:
        if epoch == 2:
            # Of the attempts of one job after the other, Spark commits the first.
            with Fault("snapshot.upload", "throw") as first:
                batch.collect()
                assert until(lambda: first.happened)
            held.__enter__()
        keep(batch, epoch)

    run.stop()
    run._keep = run_twice
    run.start()
    with Fault("snapshot.upload", "count") as uploads:
        held = Fault("snapshot.upload", "block")
        run.run(2)
        assert until(lambda: uploads.count > 1)
        with Fault("snapshot.upload", "throw", always=True):
            run.run(3)
            held.__exit__()
            assert until(lambda: len(uploaded(3)) == 1)
            assert uploaded(3)[0] not in (run.checkpoint / "commits/2").read_text()
            run.run(4)
            run.stop()
            end_maintenance(run.spark)
    run.start()
    run.run(5)
    assert counted(run) == counted_at_once(run)
