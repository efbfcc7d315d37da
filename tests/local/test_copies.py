"""Copies of bins survive failures, outlast Spark's changelogs, and go on until they have caught up."""

import pytest
from pyspark.sql import functions as F

from binshift import AllAtOnce, Batched, MigrationState
from harness import Fault, until
from local.migrations import (
    NEVER,
    SHIP,
    assert_never_migrated,
    failed_tasks,
    families,
    feed_until,
    finish,
    shift,
    snapshots,
    submit_shift,
    version_of,
)
from local.queries import QUERIES
from local.settings import IDS, JOIN_4, MIN_DELTAS, NEEDS_JOIN_4, ROW_CHECKSUMS

pytestmark = pytest.mark.usefixtures("nothing_left")


@pytest.mark.long
@pytest.mark.parametrize(
    ("name", "conf"),
    [
        ("tumbling-append", {}),
        pytest.param("join-full", JOIN_4 | IDS | ROW_CHECKSUMS, marks=[pytest.mark.matrix, NEEDS_JOIN_4]),
    ],
    ids=["tumbling-append", "join-full"],
)
def test_what_was_taken_in_is_undone_if_the_last_changelog_cannot_be_read(stream, tmp_path, name, conf):
    query = QUERIES[name]
    run = stream(query.build, mode=query.mode, conf=conf).start()
    run.run(0, 1)
    with Fault("switch.changes", "throw", always=True):
        epoch, report = shift(run, 2)
    assert report.bins_from_checkpoint == 64
    # With the master local[2], Spark retries no task.
    assert failed_tasks(run) == 0
    epoch, report = shift(run, epoch)
    assert report.bins_prepared == 64
    run.stop()
    run.start()
    run.run(epoch)
    assert_never_migrated(run, query, epoch + 1, tmp_path, **conf)


@pytest.mark.long
@pytest.mark.parametrize("format", [{}, IDS], ids=["format-1", "format-2"])
def test_copies_may_take_longer_than_changelogs_are_kept(stream, tmp_path, format):
    query = QUERIES["count"]
    conf = format | {
        "spark.sql.streaming.minBatchesToRetain": "2",
        MIN_DELTAS: "2",
        SHIP + "maxBytesPerSecond": "64k",
        SHIP + "chunkBytes": "4k",
    }
    run = stream(query.build, mode=query.mode, conf=conf).start()
    run.run(0, 1, n=9000, keys=9000)
    epoch, report = shift(run, 2)
    assert report.bins_prepared == 64
    assert report.bins_from_checkpoint == report.bins_recopied == 0
    # These are more epochs than Spark keeps; files that were kept for the copies are deleted afterwards.
    assert epoch > 10
    state = run.checkpoint / "state/0/0"
    epoch = feed_until(run, epoch, lambda: min(version_of(f) for f in state.glob("*.changelog")) > 4)


@pytest.mark.long
def test_a_copy_that_fails_while_it_follows_its_source_is_made_anew(counting, tmp_path, spark):
    query, run = counting
    migration = submit_shift(run, Batched(8))
    with Fault("changelog.change", "throw") as fault:
        # No step is due yet: a due step isn't put off, and its bins would be read from the checkpoint.
        with Fault("changelog.read", "block"):
            fall_behind(run, spark)
        epoch = finish(run, migration, 7)
        assert fault.happened
    report = migration.wait(0)
    assert report.bins_prepared == 64
    assert report.bins_recopied > 0
    run.run(epoch)
    assert_never_migrated(run, query, epoch + 1, tmp_path)


def test_a_copy_from_the_checkpoint_that_fails_in_the_middle_is_made_anew(counting, tmp_path):
    query, run = counting
    # The migration has several steps; after the first, the disk fails once.
    migration = submit_shift(run, Batched(16))
    with Fault("export.link", "throw", always=True), Fault("stage.file", "throw") as fault:
        epoch = finish(run, migration, 2)
        assert fault.happened
    report = migration.wait(0)
    assert report.bins_prepared == report.bins_recopied == 64
    run.run(epoch)
    assert_never_migrated(run, query, epoch + 1, tmp_path)


def fall_behind(run, spark):
    """Runs epochs 2 to 6; after the last, the copies of the submitted migration are complete."""
    blocks = spark._jvm.org.apache.spark.sql.execution.streaming.state.binshift.TestBlocks
    with Fault("export.start", "block"):
        run.run(*range(2, 7))
    assert until(lambda: blocks.stagedBytes() > 0 and blocks.chunks() == 0)


def test_a_step_waits_until_its_copies_have_caught_up(counting, tmp_path, spark):
    query, run = counting
    migration = submit_shift(run)
    with Fault("changelog.read", "block"):
        fall_behind(run, spark)
        run.run(*range(7, 10))
        assert migration.status.next_epoch is None
        assert migration.status.state is MigrationState.WAITING
        assert "waits for 64 of 64 copies, of partitions 0 and 1 on executor driver" in migration.status.message
    epoch = finish(run, migration, 10)
    assert migration.wait(0).bins_prepared == 64
    assert_never_migrated(run, query, epoch, tmp_path)


@pytest.mark.matrix
def test_a_step_does_not_wait_for_copies_that_do_not_catch_up(counting, tmp_path, spark):
    query, run = counting
    migration = submit_shift(run)
    with Fault("changelog.read", "block"):
        fall_behind(run, spark)
        epoch = finish(run, migration, 7)
        # The step's tasks read the changelogs that the copies lack.
        assert migration.wait(0).bins_prepared == 64
    assert epoch > 17
    run.run(epoch)
    assert_never_migrated(run, query, epoch + 1, tmp_path)


@pytest.mark.parametrize("point", ["export.link", "none"])
def test_changes_are_taken_for_those_of_the_families_that_their_source_has(stream, tmp_path, point):
    """The partition that was added has other numbers. Rows come from the checkpoint, or are sent."""
    query = QUERIES["tws-jvm"]
    run = stream(query.build, mode=query.mode, conf={MIN_DELTAS: "1"}).start()
    run.run(0, 1)
    with Fault("checkpoint.read", "count") as reads:
        epoch = finish(run, run.attach().rescale(3, strategy=AllAtOnce(), prepare=False), 2)
        assert reads.count > 0
    added, other = (str(run.checkpoint / f"state/0/{partition}") for partition in (2, 0))
    epoch = feed_until(run, epoch, lambda: added in snapshots(run))
    assert families(snapshots(run)[added][-1]) != families(snapshots(run)[other][-1])
    with Fault(point, "throw", always=True), Fault("changelog.change", "count") as changes:
        epoch, report = shift(run, epoch, Batched(16))
        assert changes.count > 0
    assert (report.bins_prepared, report.bins_from_checkpoint) == (64, 0)
    assert report.bins_recopied == (64 if point == "export.link" else 0)
    run.run(epoch)
    assert_never_migrated(run, query, epoch + 1, tmp_path)


def test_a_snapshot_whose_list_cannot_be_read_does_not_give_way_to_one_of_an_earlier_life(stream, tmp_path):
    """The partition was retired and opened again, and has other numbers since."""
    query = QUERIES["tws-jvm"]
    conf = {MIN_DELTAS: "997", "spark.sql.streaming.minBatchesToRetain": "200"}
    run = stream(query.build, mode=query.mode, conf=conf).start()
    run.run(0, 1)
    there = str(run.checkpoint / "state/0/1")
    before = snapshots(run)[there]
    with Fault("snapshot.upload", "throw", always=True):
        epoch = finish(run, run.attach().rescale(1, strategy=AllAtOnce()), 2)
        run.run(epoch)
    controller = run.attach()
    epoch = finish(run, controller.rescale(2, strategy=AllAtOnce(), prepare=False), epoch + 1)
    with Fault("snapshot.upload", "throw", always=True):
        epoch = feed_until(run, epoch, lambda: len(snapshots(run)[there]) > len(before))
        since = snapshots(run)[there]
        assert families(since[-1]) != families(since[-2])
        controller = run.attach()
        home = controller.plan([0] * controller.routing().bins, strategy=Batched(8))
        migration = controller.submit(home)
        with (
            Fault("export.link", "throw", always=True),
            Fault("families.read", "throw") as unreadable,
            Fault("changelog.change", "count") as changes,
        ):
            epoch = finish(run, migration, epoch)
            assert unreadable.happened
            assert changes.count > 0
        assert snapshots(run)[there] == since
    run.run(epoch)
    assert_never_migrated(run, query, epoch + 1, tmp_path)


@pytest.mark.long
def test_all_copies_from_one_source_read_its_changelogs_once(counting, tmp_path):
    query, run = counting
    migration = run.attach().rescale(6, strategy=Batched(8))
    with Fault("changelog.read", "count") as reads:
        epoch = finish(run, migration, 2)
        assert migration.wait(0).bins_from_checkpoint == 0
        # Six targets copy from two sources; one read can serve targets that come later, too.
        assert 0 < reads.count <= 3 * (epoch - 2)
    assert_never_migrated(run, query, epoch, tmp_path)


def test_what_copying_takes_is_said_when_a_plan_is_submitted_and_after(stream, tmp_path, caplog):
    query = QUERIES["count"]
    conf = {SHIP + "maxBytesPerSecond": "10", SHIP + "maxStagedBytes": "500"}
    run = stream(query.build, mode=query.mode, conf=conf).start()
    run.run(0, 1)
    with caplog.at_level("WARNING", logger="binshift"):
        migration = submit_shift(run)
    assert "takes about" in caplog.text
    assert "has room for 500 (ship.maxStagedBytes)" in caplog.text
    with Fault("export.start", "block"):
        run.run(2, 3)
        assert "takes about" in migration.status.message
        migration.cancel()
        run.run(4)


@pytest.mark.matrix
def test_copies_that_cannot_be_made_are_not_taken_for_made(counting, tmp_path):
    query, run = counting
    migration = submit_shift(run, Batched(16))
    with Fault("stage.file", "throw", always=True):
        said = set()

        def is_over():
            said.add(migration.status.message)
            return migration.status.is_over

        epoch = feed_until(run, 2, is_over)
    assert any("bins could not be copied ahead" in message for message in said)
    assert migration.wait(0).bins_from_checkpoint == 64
    assert (
        max(
            op.customMetrics["binshiftBinsGivenUp"] for p in run.query.recentProgress for op in p.stateOperators
        )
        > 0
    )
    assert_never_migrated(run, query, epoch, tmp_path)


@pytest.mark.parametrize("is_ahead", [True, False], ids=["ahead", "at-the-switch"])
def test_what_is_read_of_the_checkpoint_is_paced_unless_an_epoch_waits_for_it(stream, spark, is_ahead):
    meter = spark._jvm.org.apache.spark.sql.execution.streaming.state.binshift.TestMeter
    query = QUERIES["count"]
    # Half a megabyte in each of the two partitions.
    long_keys = F.concat("k", F.repeat(F.lit("x"), 16_000))
    conf = {SHIP + "timeout": NEVER}
    run = stream(lambda df: query.build(df.withColumn("k", long_keys)), mode=query.mode, conf=conf).start()
    run.run(0, 1)
    before = meter.copiedBytes()
    with Fault("export.link", "throw", always=True):
        _, report = shift(run, 2, prepare=is_ahead)
    assert (report.bins_prepared, report.bins_recopied) == (64 if is_ahead else 0, 64)
    copied = meter.copiedBytes() - before
    assert copied >= 2 * (256 << 10) if is_ahead else copied == 0
