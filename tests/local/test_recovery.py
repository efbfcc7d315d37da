"""A store is loaded from the checkpoint as if its bins had never moved, however often they did."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import DataFrame

from binshift import AllAtOnce, Fluid
from harness import Fault, StreamRun, end_maintenance, until
from local.migrations import (
    assert_never_migrated,
    damage,
    families,
    feed_until,
    finish,
    shift,
    snapshots,
)
from local.queries import QUERIES, with_a_point_in_rows
from local.settings import IDS, JOIN_3, JOIN_4, MIN_DELTAS, NEEDS_JOIN_4, ROW_CHECKSUMS, STORE

KEEP = {"spark.sql.streaming.minBatchesToRetain": "200"}
# The lineage of a changelog begins at the newest snapshot; looking beyond it is Spark's repair of snapshots.
NEEDS_REPAIR = pytest.mark.needs_spark("4.2", reason="a lineage ends at the newest snapshot before")


def as_if_killed(run: StreamRun, uploaded: set[Path]) -> None:
    """Ends the query, and leaves only those of its snapshots that were `uploaded`."""
    run.stop()
    end_maintenance(run.spark)
    for files in snapshots(run).values():
        for file in set(files) - uploaded:
            file.unlink()


def moved(run: StreamRun, bins: range, epoch: int) -> int:
    """Moves each of the bins to the other partition, in a step of its own."""
    controller = run.attach()
    owners = controller.routing().assignment
    swapped = [1 - owner if bin in bins else owner for bin, owner in enumerate(owners)]
    plan = controller.plan(swapped, strategy=Fluid())
    assert len(plan.steps) == len(bins)
    return finish(run, controller.submit(plan, prepare=False), epoch)


@pytest.mark.long
@pytest.mark.parametrize("steps", [(1, 4), pytest.param((1, 4, 40), marks=pytest.mark.matrix)], ids=str)
def test_a_recovery_loads_no_more_after_many_steps_than_after_one(stream, tmp_path, steps):
    query = QUERIES["count"]
    run = stream(query.build, mode=query.mode, conf={MIN_DELTAS: "2"} | KEEP).start()
    epoch = feed_until(run, 0, lambda: len(snapshots(run)) == 2)
    uploaded = {file for files in snapshots(run).values() for file in files}
    loads = []
    for number in steps:
        epoch = moved(run, range(number), epoch)
        as_if_killed(run, uploaded)
        run.start()
        with Fault("checkpoint.read", "count") as reads:
            run.run(epoch)
            loads.append(reads.count)
        epoch += 1
    # One database for each source of bins; the first bin went from one partition to the other.
    assert loads[0] <= 2
    assert set(loads[1:]) == {2}
    assert_never_migrated(run, query, epoch, tmp_path)


@pytest.mark.long
@pytest.mark.parametrize(
    ("name", "conf"),
    [
        pytest.param("count", {}, marks=pytest.mark.matrix),
        pytest.param("count", IDS, marks=[pytest.mark.matrix, NEEDS_REPAIR]),
        pytest.param("tumbling-append", IDS | ROW_CHECKSUMS, marks=[pytest.mark.matrix, NEEDS_REPAIR]),
        pytest.param("join-full", JOIN_4 | ROW_CHECKSUMS, marks=[pytest.mark.matrix, NEEDS_JOIN_4]),
        pytest.param("tws-jvm", IDS | ROW_CHECKSUMS, marks=NEEDS_REPAIR),
        pytest.param("tws-jvm", {}, marks=pytest.mark.matrix),
        pytest.param("session-fixed", IDS, marks=[pytest.mark.matrix, NEEDS_REPAIR]),
    ],
    ids=str,
)
@pytest.mark.parametrize("kept", [1, pytest.param(2, marks=pytest.mark.matrix)])
def test_bins_that_moved_on_came_back_and_outlived_their_partition(stream, tmp_path, name, conf, kept):
    query = QUERIES[name]
    conf = {MIN_DELTAS: "3"} | KEEP | conf
    run = stream(query.build, mode=query.mode, conf=conf).start()
    run.run(0, 1)
    epoch = finish(run, run.attach().rescale(3, strategy=AllAtOnce()), 2)
    for _ in range(3):
        epoch, _ = shift(run, epoch, prepare=False)
    epoch = finish(run, run.attach().rescale(2, strategy=AllAtOnce(), prepare=False), epoch)
    run.run(epoch)
    as_if_killed(run, {file for files in snapshots(run).values() for file in files[:kept]})
    run.start()
    run.run(epoch + 1)
    assert_never_migrated(run, query, epoch + 2, tmp_path, **conf)


def test_families_have_the_same_numbers_whichever_have_rows_when_bins_come(stream):
    """Another attempt of the task may find other rows first, and continue from a snapshot of this one."""

    def rows_on_the_right(df):
        left = df.where("v < 0").selectExpr("k AS l", "v AS lv")
        return left.join(df, left.l == df.k)

    run = stream(rows_on_the_right, mode="append", conf=JOIN_3 | {MIN_DELTAS: "1"}).start()
    run.run(0, 1)
    with Fault("checkpoint.read", "count") as reads:
        epoch = finish(run, run.attach().rescale(3, strategy=AllAtOnce(), prepare=False), 2)
        assert reads.count > 0
    here = str(run.checkpoint / "state/0/2")
    feed_until(run, epoch, lambda: here in snapshots(run))
    numbers = families(snapshots(run)[here][0])
    assert len(numbers) >= 4
    assert sorted(numbers, key=lambda name: numbers[name]) == sorted(numbers)


@pytest.mark.parametrize("damaged", ["zip", "MANIFEST", "end of an SST", "rows of an SST"])
def test_a_snapshot_that_is_damaged_gives_way_to_an_older_one(stream, tmp_path, damaged):
    """Also one that can be fetched, but that RocksDB refuses to open or to read."""
    query = QUERIES["count"]
    # With its own repair, Spark would need no second load.
    conf = {MIN_DELTAS: "2", STORE + "autoSnapshotRepair.enabled": "false"} | KEEP
    run = stream(query.build, mode=query.mode, conf=conf).start()
    retired = str(run.checkpoint / "state/0/1")
    epoch = feed_until(run, 0, lambda: len(snapshots(run).get(retired, [])) >= 2)
    epoch = finish(run, run.attach().rescale(1, strategy=AllAtOnce(), prepare=False), epoch)
    as_if_killed(run, set(snapshots(run)[retired]) | set(snapshots(run)[str(run.checkpoint / "state/0/0")][:1]))
    older, newer = snapshots(run)[retired][-2:]
    damage(newer, damaged, of_none_in=older)
    run.start()
    with Fault("checkpoint.read", "count") as reads:
        run.run(epoch)
        assert reads.count == 2
    assert_never_migrated(run, query, epoch + 1, tmp_path)


@pytest.mark.long
def test_bins_that_came_back_are_those_of_before_if_the_snapshot_between_cannot_be_read(stream, tmp_path):
    query = QUERIES["count"]
    run = stream(query.build, mode=query.mode, conf={MIN_DELTAS: "2"} | KEEP).start()
    here, there = (str(run.checkpoint / "state/0" / partition) for partition in "01")
    epoch = feed_until(run, 0, lambda: len(snapshots(run)) == 2)
    before = snapshots(run)[here]
    controller = run.attach()
    home = controller.routing().assignment
    away = [1] * len(home)
    epoch = finish(run, controller.submit(controller.plan(away, strategy=AllAtOnce()), prepare=False), epoch)
    held = len(snapshots(run)[there])
    epoch = feed_until(run, epoch, lambda: len(snapshots(run)[there]) > held)
    epoch = finish(run, controller.submit(controller.plan(home, strategy=AllAtOnce()), prepare=False), epoch)
    as_if_killed(run, {*before, *snapshots(run)[there]})
    run.start()
    with Fault("checkpoint.read", "throw") as unreadable:
        run.run(epoch)
        assert unreadable.happened
    assert_never_migrated(run, query, epoch + 1, tmp_path)


@pytest.mark.few
def test_the_snapshot_of_an_adopter_does_not_wait_for_maintenance(stream, spark):
    end_maintenance(spark)
    query = QUERIES["count"]
    try:
        conf = {MIN_DELTAS: "997", STORE + "maintenanceInterval": "1h"}
        run = stream(query.build, mode=query.mode, conf=conf).start()
        run.run(0, 1)
        epoch, report = shift(run, 2, prepare=False)
        # The partitions' snapshots take turns within ten versions, and none is at the switch itself.
        run.run(*range(epoch, epoch + 10))

        def made() -> list[int]:
            return sorted(int(f.stem) for files in snapshots(run).values() for f in files)

        assert until(lambda: len(made()) == 2), made()
        assert report.last_epoch + 1 < made()[0] < made()[1] <= report.last_epoch + 11
        run.stop()
    finally:
        end_maintenance(spark)


@pytest.mark.few
def test_a_task_that_was_interrupted_leaves_no_changelog_to_the_next_one(stream, spark, tmp_path):
    query = QUERIES["tws-jvm"]

    def build(df: DataFrame) -> DataFrame:
        return with_a_point_in_rows(query.build(df))

    # There are only changelogs, so that the next attempt replays them.
    run = stream(build, mode=query.mode, conf={MIN_DELTAS: "997"}).start()
    run.run(0, 1, 2)
    run.stop()
    end_maintenance(spark)
    run.start()
    # This query outputs rows before its store commits.
    with Fault("query.row", "interrupt") as interrupted:
        run.run(3)
        assert interrupted.happened
    run.stop()
    assert_never_migrated(run, query, 4, tmp_path)


@pytest.mark.long
def test_of_a_snapshot_only_the_files_with_wanted_bins_are_fetched(spark, tmp_path):
    snapshots = spark._jvm.org.apache.spark.sql.execution.streaming.state.binshift.recovery.TestPartialSnapshot
    fetched = [list(snapshots.fetched(str(tmp_path / str(seed)), seed)) for seed in range(12)]
    assert [seed for seed, (_, _, is_right) in enumerate(fetched) if not is_right] == []
    # Files with the newest changes, which contain few bins each, are left out if those bins aren't wanted.
    assert sum(some for _, some, _ in fetched) < 0.7 * sum(every for every, _, _ in fetched)


@pytest.mark.parametrize(
    ("records", "max_bytes", "in_file"), [(0, 0, 0), (1, 0, 1), (100, 0, 1), (100, 5000, 1), (100, 1 << 20, 0)]
)
def test_changes_that_memory_does_not_hold_come_out_of_a_file(spark, tmp_path, records, max_bytes, in_file):
    test = spark._jvm.org.apache.spark.sql.execution.streaming.state.binshift.recovery.TestHeldChanges
    held = list(test.held(str(tmp_path), 7, records, max_bytes))
    # Records that came out, whether all are the same, whether some were in a file; files during and after.
    assert held == [records, 1, in_file, in_file, 0]


@pytest.mark.long
def test_a_recovery_reads_ahead_no_more_of_an_epoch_than_memory_holds(stream):
    query = QUERIES["count"]
    run = stream(query.build, mode=query.mode, conf={MIN_DELTAS: "1000"}).start()
    with Fault("snapshot.upload", "throw", always=True):
        run.run(0, 1, n=30_000, keys=30_000)
        controller = run.attach()
        turned = [1 - owner for owner in controller.routing().assignment]
        controller.submit(controller.plan(turned, strategy=AllAtOnce()), prepare=False)
        run.run(2, 3)
        run.stop()
        end_maintenance(run.spark)
        run.start()
        with Fault("recovery.file", "count") as files:
            run.run(4)
            assert files.count >= 4  # two epochs of two partitions
    counted = sorted((*key, *value) for key, value in run.state())
    assert counted == sorted((r.k, r.n, r.total) for r in query.build(run.batch()).collect())
