"""Migrations that are undone: by hand, at a deadline, and by a guard."""

import time

import pytest

import binshift
from binshift import AllAtOnce, Batched, Fluid, MigrationError, MigrationState, OnDemand
from harness import Fault, until
from local.migrations import assert_never_migrated, feed_until, finish
from local.queries import QUERIES, count_by_key

FOREVER = 10_000


@pytest.fixture
def run(stream):
    started = stream(count_by_key).start()
    started.run(0)
    return started


def undone(run, migration, epoch):
    """Feeds epochs until the migration is undone; returns its report."""
    finish(run, migration, epoch)
    report = migration.wait(60)
    assert migration.status.state is MigrationState.ROLLED_BACK
    return report


def assert_undone(run, table, report, *, steps):
    """The owners are those of `table`, and the report says how that came."""
    now = run.attach().routing()
    assert (now.partitions, now.assignment) == (table.partitions, table.assignment)
    assert report.undone is not None
    assert report.steps == steps
    assert (report.rollback.steps if report.rollback else 0) == steps
    assert run.attach().migration() is None


@pytest.mark.parametrize("name", ["count", "join-full", "tws-jvm"])
@pytest.mark.parametrize(
    ("to", "strategy", "prepare"), [(5, Batched(16), True), (1, Batched(20), False), (4, OnDemand(), False)]
)
def test_a_rescale_that_is_undone_leaves_no_trace(stream, tmp_path, name, to, strategy, prepare):
    query = QUERIES[name]
    run = stream(query.build, mode=query.mode).start()
    run.run(0, 1)
    before = run.attach().routing()
    migration = run.attach().rescale(to, strategy=strategy, prepare=prepare)
    epoch = feed_until(run, 2, lambda: migration.status.steps_done >= 1)
    done = migration.status.steps_done
    migration.rollback()
    report = undone(run, migration, epoch)
    assert done <= report.steps <= done + 1
    assert_undone(run, before, report, steps=report.steps)
    assert "somebody asked for it" in report.undone
    epochs = len(list(run.input.glob("*.json")))
    assert_never_migrated(run, query, epochs, tmp_path)


@pytest.mark.parametrize(("first", "to"), [(2, 5), (4, 2)])
def test_a_migration_that_has_finished_can_be_undone_too(stream, first, to):
    run = stream(count_by_key, conf={"spark.sql.shuffle.partitions": str(first)}).start()
    run.run(0)
    before = run.attach().routing()
    migration = run.attach().rescale(to, strategy=Batched(16))
    epoch = finish(run, migration, 1)
    assert run.attach().routing().partitions == to
    assert migration.wait(60).undone is None
    migration.rollback()
    report = undone(run, migration, epoch)
    assert_undone(run, before, report, steps=len(migration.plan.steps))
    # It was undone already.
    migration.rollback()
    assert migration.status.state is MigrationState.ROLLED_BACK


def test_what_has_changed_since_cannot_be_undone(run):
    first = run.attach().rescale(4, strategy=AllAtOnce(), prepare=False)
    epoch = finish(run, first, 1)
    second = run.attach().rescale(3, strategy=AllAtOnce(), prepare=False)
    finish(run, second, epoch)
    with pytest.raises(MigrationError, match=f"has changed since.*{second.id}") as raised:
        first.rollback()
    assert raised.value.condition == "ROLLBACK_IMPOSSIBLE"


@pytest.mark.parametrize("end", ["keep", "rollback"])
def test_a_deadline_ends_a_migration_by_what_it_says(run, end):
    before = run.attach().routing()
    migration = run.attach().rescale(
        4, strategy=Fluid(gap=1), prepare=False, deadline="6 epochs", on_timeout=end
    )
    finish(run, migration, 1)
    report = migration.wait(60)
    assert 1 <= report.steps < len(migration.plan.steps)
    if end == "rollback":
        assert "its deadline of 6 epochs passed after" in report.undone
        assert_undone(run, before, report, steps=report.steps)
    else:
        assert (report.cancelled, report.undone) == (True, None)
        assert sum(
            a != b for a, b in zip(before.assignment, run.attach().routing().assignment, strict=True)
        ) == (report.bins_moved)


def test_a_migration_that_ends_before_its_deadline_stays(run):
    migration = run.attach().rescale(4, strategy=AllAtOnce(), deadline=3600, on_timeout="rollback")
    finish(run, migration, 1)
    assert migration.wait(60).undone is None
    assert run.attach().routing().partitions == 4


def test_partitions_that_were_only_opened_are_closed_again(run):
    before = run.attach().routing()
    migration = run.attach().rescale(5, strategy=AllAtOnce(), start_epoch=FOREVER)
    epoch = feed_until(run, 1, lambda: run.attach().routing().partitions == 5)
    migration.rollback()
    report = undone(run, migration, epoch)
    now = run.attach().routing()
    assert (now.partitions, now.assignment) == (2, before.assignment)
    assert (report.steps, report.bins_moved) == (0, 0)


def test_a_rollback_that_has_not_begun_can_be_taken_back(run):
    migration = run.attach().rescale(4, strategy=Fluid(), prepare=False)
    epoch = feed_until(run, 1, lambda: migration.status.next_epoch is not None)
    migration.rollback()
    migration.cancel()
    finish(run, migration, epoch)
    assert migration.status.state is MigrationState.CANCELLED
    assert migration.wait(60).undone is None


@pytest.mark.parametrize("instant", ["while it is stopped", "when the rollback is written", "in the middle"])
def test_another_driver_goes_on_with_a_rollback(run, stream, instant):
    before = run.attach().routing()
    seconds = 6 if instant == "while it is stopped" else 3600
    due = time.monotonic() + seconds
    migration = run.attach().rescale(
        4, strategy=Fluid(), prepare=False, deadline=seconds, on_timeout="rollback"
    )
    epoch = feed_until(run, 1, lambda: migration.status.steps_done >= 2)
    if instant == "when the rollback is written":
        with Fault("rollback.begun", "throw"):
            migration.rollback()
            with pytest.raises(Exception, match="fails on purpose"):
                run.run(*range(epoch, epoch + 10))
            epoch = len(list(run.input.glob("*.json")))
            assert len(list((run.checkpoint / "binshift/plans").glob("*.json"))) == 2
    elif instant == "in the middle":
        migration.rollback()
        epoch = feed_until(run, epoch, lambda: migration.status.state is MigrationState.ROLLING_BACK)
        run.run(epoch, epoch + 1)
        epoch += 2
    run.stop()
    if instant == "while it is stopped":
        assert until(lambda: time.monotonic() > due)
    run.start()
    # The first epoch may be one that was logged before.
    run.run(epoch)
    assert run.attach().migration() is not None
    feed_until(run, epoch + 1, lambda: run.attach().migration() is None)
    now = run.attach().routing()
    assert (now.partitions, now.assignment) == (before.partitions, before.assignment)


def test_a_guard_lets_no_step_be_taken_after_long_epochs_and_then_undoes(run):
    before = run.attach().routing()
    guard = binshift.Guard(longest_epoch_s=0.001)
    # Epochs from before don't count, so the first step may be taken at once.
    migration = run.attach().rescale(4, strategy=Fluid(), prepare=False, guard=guard)
    report = undone(run, migration, 1)
    assert "3 epochs took longer than the 0.001 s of its guard" in report.undone
    assert_undone(run, before, report, steps=report.steps)
    assert report.steps <= 1


def test_a_guard_that_sees_short_epochs_only_watches(run):
    migration = run.attach().rescale(
        4, strategy=AllAtOnce(), prepare=False, guard=binshift.Guard(longest_epoch_s=3600)
    )
    finish(run, migration, 1)
    assert migration.wait(60).undone is None
    assert run.attach().routing().partitions == 4


def test_what_is_asked_twice_or_taken_back_is_answered_as_it_is(run):
    before = run.attach().routing()
    migration = run.attach().rescale(4, strategy=Batched(16), prepare=False)
    epoch = finish(run, migration, 1)
    migration.rollback()
    # It is the rollback that is cancelled.
    migration.cancel()
    epoch = feed_until(run, epoch, lambda: run.attach().migration() is None)
    assert migration.status.state is MigrationState.CANCELLED
    # As it had taken no step, it may be asked for again.
    migration.rollback()
    going_back = run.attach().migration()
    with pytest.raises(MigrationError, match="it is a rollback itself"):
        going_back.rollback()
    report = undone(run, migration, epoch)
    assert_undone(run, before, report, steps=2)
    run.stop()
    run.start()
    epoch = len(list(run.input.glob("*.json")))
    run.run(epoch)
    # After another migration, a driver that has not seen the first one finds out what became of it.
    other = run.attach().rescale(3, strategy=AllAtOnce(), prepare=False)
    finish(run, other, epoch + 1)
    again = binshift.Migration(run.attach(), migration.id, migration.plan)
    assert again.status.state is MigrationState.ROLLED_BACK
