"""What a step takes over can be rebuilt from the checkpoint, also where somebody has deleted files of it."""

from __future__ import annotations

import pytest

from harness import Fault, StreamRun, end_maintenance, entries, lose, until
from local.migrations import feed_until, finish, snapshots, submit_shift, version_of
from local.queries import count_by_key, counted, counted_at_once
from local.settings import IDS, MIN_DELTAS, ONE_EPOCH

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


def assert_rebuilt(run: StreamRun, epoch: int) -> None:
    """Each store is loaded from the checkpoint."""
    run.stop()
    end_maintenance(run.spark)
    run.start()
    run.run(epoch)
    assert counted(run) == counted_at_once(run)


@pytest.mark.parametrize("conf", FORMATS)
def test_a_step_whose_source_has_lost_a_file_waits_until_there_is_a_snapshot(stream, conf):
    run = stream(count_by_key, conf=SELDOM | conf).start()
    run.run(0, 1, 2)
    lose_changelog(run, 2)
    migration = submit_shift(run, prepare=False)
    run.run(3)
    assert list(entries(run.checkpoint)) == [0]
    assert "the next step waits: partition 0 cannot be rebuilt" in str(migration.status)
    after = finish(run, migration, 4)
    assert migration.status.steps_done == 1
    assert snapshots_of(run, 0)[0] >= 4
    assert_rebuilt(run, after)


@pytest.mark.parametrize("conf", FORMATS)
def test_a_snapshot_of_which_a_file_is_gone_is_made_anew_with_all_of_its_files(stream, conf):
    run = stream(count_by_key, conf=ONE_EPOCH | {MIN_DELTAS: "1"} | conf).start()
    run.run(0, 1)
    assert until(lambda: snapshots_of(run, 0)[-1:] == [2])
    run.stop()
    end_maintenance(run.spark)
    run.spark.conf.set(MIN_DELTAS, "1000")
    run.start()
    run.run(2)
    lose_database_files(run)
    migration = submit_shift(run, prepare=False)
    run.run(3)
    assert "of partition 0" in str(migration.status)
    after = finish(run, migration, 4)
    assert_rebuilt(run, after)


def test_a_step_goes_on_though_the_checkpoint_does_not_say_for_some_epochs_what_it_has(stream):
    run = stream(count_by_key, conf=SELDOM).start()
    run.run(0, 1)
    with Fault("sources.look", "throw", always=True):
        migration = submit_shift(run, prepare=False)
        run.run(2, 3)
        assert list(entries(run.checkpoint)) == [0]
        assert "it is being looked" in str(migration.status)
        finish(run, migration, 4)
    assert migration.status.steps_done == 1
    assert counted(run) == counted_at_once(run)


@pytest.mark.long
def test_a_store_that_finds_a_file_gone_when_it_cleans_up_makes_a_snapshot_and_deletes_nothing(stream):
    run = stream(count_by_key, conf=ONE_EPOCH | NO_BATCHES | {MIN_DELTAS: "1", RETAIN: "2"}).start()
    run.run(0, 1, 2, 3)
    assert until(lambda: snapshots_of(run, 0)[-1:] == [4])
    run.stop()
    end_maintenance(run.spark)
    run.spark.conf.set(MIN_DELTAS, "1000")
    with Fault("versions.deleted", "block"):
        run.start()
        run.run(4, 5)
        lose_changelog(run, 6)
    made = snapshots_of(run, 0)[-1]
    after = feed_until(run, 6, lambda: snapshots_of(run, 0)[-1] > made)
    assert_rebuilt(run, after)
