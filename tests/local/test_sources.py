"""Bins that a step moves can be rebuilt from the checkpoint, even if somebody has deleted files of it."""

from __future__ import annotations

from threading import Thread

import pytest
from pyspark.sql import functions as F

from binshift import AllAtOnce, Migration
from harness import Fault, StreamRun, end_maintenance, entries, held_up_at, lose, until
from local.migrations import (
    assert_never_migrated,
    feed_until,
    finish,
    shift,
    snapshots,
    submit_shift,
    version_of,
)
from local.queries import QUERIES, count_by_key, counted, counted_at_once
from local.settings import IDS, MIN_DELTAS, ONE_EPOCH, STORE

FORMATS = [pytest.param({}, id="format 1"), pytest.param(IDS, id="format 2")]
SELDOM = ONE_EPOCH | {MIN_DELTAS: "1000"}
RETAIN = "spark.sql.streaming.minBatchesToRetain"
NO_BATCHES = {"spark.sql.streaming.ratioExtraSpaceAllowedInCheckpoint": "0.0"}


def lose_changelog(run: StreamRun, version: int, partition: int = 0) -> None:
    """Deletes a file by hand that every recovery of the partition reads."""
    folder = run.checkpoint / "state/0" / str(partition)
    (changelog,) = [f for f in folder.glob("*.changelog") if version_of(f) == version]
    lose(changelog)


def lose_database_files(run: StreamRun) -> None:
    """Deletes the files that snapshots of a partition consist of, and leaves the snapshots."""
    files = list((run.checkpoint / "state/0/0/SSTs").glob("*.sst"))
    assert files
    for file in files:
        lose(file)


def snapshots_of(run: StreamRun, partition: int) -> list[int]:
    return [version_of(f) for f in snapshots(run).get(str(run.checkpoint / f"state/0/{partition}"), [])]


def begin_without_snapshots(run: StreamRun) -> None:
    """Starts the query anew, with stores that make none of their own accord."""
    run.stop()
    end_maintenance(run.spark)
    run.spark.conf.set(MIN_DELTAS, "1000")
    run.start()


def assert_rebuilt(run: StreamRun, epoch: int) -> None:
    """Each store is loaded from the checkpoint."""
    run.stop()
    end_maintenance(run.spark)
    run.start()
    run.run(epoch)
    assert counted(run) == counted_at_once(run)


def await_cleanups(run: StreamRun) -> None:
    """Waits until each store has been cleaned up by a round of maintenance that began after this call."""
    with Fault("versions.deleted", "count") as cleanups:
        assert until(lambda: cleanups.count >= 2 * run.attach().routing().partitions)


@pytest.mark.parametrize("conf", FORMATS)
def test_a_step_whose_source_has_lost_a_file_waits_until_there_is_a_snapshot(stream, conf):
    run = stream(count_by_key, conf=SELDOM | conf).start()
    run.run(0, 1, 2)
    lose_changelog(run, 2)
    migration = submit_shift(run, prepare=False)
    run.run(3)
    assert list(entries(run.checkpoint)) == [0]
    assert "the next step waits: partition 0 cannot be rebuilt" in str(migration.status)
    # A deprecated key of `status --json`.
    assert f"waits: {migration._progress()['waits_because']}" == migration._progress()["waits"]
    after = finish(run, migration, 4)
    assert migration.status.steps_done == 1
    assert snapshots_of(run, 0)[0] >= 4
    assert_rebuilt(run, after)


@pytest.mark.parametrize("conf", FORMATS)
def test_a_snapshot_of_which_a_file_is_gone_is_made_anew_with_all_of_its_files(stream, conf):
    run = stream(count_by_key, conf=ONE_EPOCH | {MIN_DELTAS: "1"} | conf).start()
    run.run(0, 1)
    assert until(lambda: snapshots_of(run, 0)[-1:] == [2])
    begin_without_snapshots(run)
    run.run(2)
    lose_database_files(run)
    migration = submit_shift(run, prepare=False)
    run.run(3)
    assert "of partition 0" in str(migration.status)
    after = finish(run, migration, 4)
    assert_rebuilt(run, after)


def test_a_snapshot_that_no_load_finds_without_a_deleted_one_is_not_relied_on(stream):
    """Under format 2, Spark begins with a snapshot that the newest changelog names, and with no older one."""
    no_repair = {"spark.sql.streaming.stateStore.autoSnapshotRepair.enabled": "false"}
    run = stream(count_by_key, conf=ONE_EPOCH | IDS | no_repair | {MIN_DELTAS: "1"}).start()
    run.run(0, 1)
    assert until(lambda: snapshots_of(run, 0)[-1:] == [2])
    run.run(2, 3)
    assert until(lambda: snapshots_of(run, 0)[-1:] == [4])
    begin_without_snapshots(run)
    run.run(4, 5)
    lose(max((run.checkpoint / "state/0/0").glob("*.zip"), key=version_of))
    migration = submit_shift(run, prepare=False)
    run.run(6)
    assert "the next step waits: partition 0 cannot be rebuilt" in str(migration.status)
    after = finish(run, migration, 7)
    assert_rebuilt(run, after)


@pytest.mark.long
def test_a_snapshot_is_missed_that_only_says_which_column_families_there_were(stream, tmp_path):
    """Bins come to a partition after its only snapshot, and leave it, so only its changelogs are read."""
    query = QUERIES["tws-jvm"]
    run = stream(query.build, mode=query.mode, conf=SELDOM).start()
    run.run(0, 1)
    controller = run.attach()
    two = list(controller.routing().assignment)
    most = [1 if bin == two.index(1) else 0 for bin in range(len(two))]

    def submit(table: list[int]) -> Migration:
        return controller.submit(controller.plan(table, strategy=AllAtOnce()), prepare=False)

    moved = finish(run, submit(most), 2)
    after = feed_until(run, moved, lambda: snapshots_of(run, 0)[-1] > moved)
    with Fault("snapshot.upload", "throw", always=True):
        after = finish(run, submit(two), after)
        after = finish(run, submit(most), after)
    (only,) = snapshots(run)[str(run.checkpoint / "state/0/1")]
    lose(only)
    migration = submit(two)
    run.run(after)
    assert "partition 0 cannot be rebuilt" in str(migration.status)
    assert "column families" in str(migration.status)
    after = finish(run, migration, after + 1)
    assert migration.status.steps_done == 1
    after = feed_until(run, after, lambda: snapshots_of(run, 1) != [])
    run.stop()
    end_maintenance(run.spark)
    run.start()
    run.run(after)
    assert_never_migrated(run, query, after + 1, tmp_path, **SELDOM)


def test_a_step_goes_on_though_the_checkpoint_does_not_say_for_some_epochs_what_it_has(stream):
    run = stream(count_by_key, conf=SELDOM).start()
    run.run(0, 1)
    with Fault("sources.look", "throw", always=True):
        migration = submit_shift(run, prepare=False)
        run.run(2, 3)
        assert list(entries(run.checkpoint)) == [0]
        assert "the driver still checks" in str(migration.status)
        finish(run, migration, 4)
    assert migration.status.steps_done == 1
    assert counted(run) == counted_at_once(run)


@pytest.mark.long
@pytest.mark.parametrize("conf", FORMATS)
def test_a_file_that_somebody_deletes_is_missed_though_no_step_needs_it(stream, conf):
    """It is one of a former owner, so the store whose rows it has looks at it in no cleanup."""
    run = stream(count_by_key, conf=SELDOM | conf | {STORE + "maintenanceInterval": "50ms"}).start()
    run.run(0, 1)
    with Fault("snapshot.upload", "throw", always=True):
        after, _ = shift(run, 2)
        run.run(*range(after, after + 10))
    assert snapshots_of(run, 1) == []
    lose_changelog(run, 2)
    after = feed_until(run, after + 10, lambda: snapshots_of(run, 1) != [])
    # All partitions are looked at in epoch 20. Spark wants a snapshot of stores without any from version 50 on.
    assert 20 <= snapshots_of(run, 1)[0] < 50
    assert_rebuilt(run, after)


@pytest.mark.long
def test_a_store_that_finds_a_file_gone_when_it_cleans_up_makes_a_snapshot_and_deletes_nothing(stream):
    run = stream(count_by_key, conf=ONE_EPOCH | NO_BATCHES | {MIN_DELTAS: "1", RETAIN: "2"}).start()
    # A cleanup has nothing to delete without an older snapshot. Maintenance uploads the last of several alone.
    run.run(0, 1)
    assert until(lambda: snapshots_of(run, 0)[-1:] == [2])
    run.run(2, 3)
    assert until(lambda: snapshots_of(run, 0)[-1:] == [4])
    begin_without_snapshots(run)
    run.run(4, 5)
    lose_changelog(run, 6)
    run.run(6)
    # Something to delete, without which a cleanup looks for nothing.
    old = run.checkpoint / "state/0/0/1.changelog"
    old.touch()
    await_cleanups(run)
    # Version 8 has a snapshot, and cleanups go by version 7 until epoch 8 loads it.
    run.run(7)
    await_cleanups(run)
    assert old.exists()
    run.run(8)
    await_cleanups(run)
    assert [version for version in snapshots_of(run, 0) if version > 4] == [8]
    assert not old.exists()
    assert_rebuilt(run, 9)


def test_a_query_none_of_whose_bins_have_state_takes_its_steps_at_once(stream):
    def total(df):
        return df.groupBy().agg(F.count("*").alias("n"))

    run = stream(total, conf=ONE_EPOCH).start()
    run.run(0, 1)
    migration = submit_shift(run, prepare=False)
    run.run(2, 3)
    assert list(entries(run.checkpoint)) == [0, 3]
    assert migration.status.steps_done == 1
    assert [tuple(row) for row in run.outputs[3]] == counted_at_once(run, total)


def test_a_loss_is_found_though_the_version_that_was_looked_at_is_not_retained_any_more(stream):
    run = stream(count_by_key, conf=SELDOM | {RETAIN: "1"}).start()
    run.run(0, 1, 2)
    lose_changelog(run, 2)
    submitted: list[Migration] = []
    submission = Thread(target=lambda: submitted.append(submit_shift(run, prepare=False)))
    with held_up_at("sources.look", submission.start):
        run.run(3)
    submission.join()
    run.run(4)
    (migration,) = submitted
    assert "the next step waits: partition 0 cannot be rebuilt" in str(migration.status)
    assert_rebuilt(run, finish(run, migration, 5))
