"""Families that are read in order, such as timers, leave with their bins; rows that stay are not read.

The rows that leave are void where they are, and are swept in the background. Faults keep the sweep from that.
"""

import json

import pytest

import binshift.inspect
from binshift import AllAtOnce, MigrationPlan, Move, OnDemand, Step
from binshift.inspect.tools.fsck import fsck
from harness import STOCK, Fault, assert_same_results, end_maintenance, until
from local.migrations import (
    assert_never_migrated,
    begun,
    failed_tasks,
    feed_until,
    finish,
    shift,
    snapshots,
    submit_shift,
    version_of,
)
from local.queries import with_a_point_in_rows
from local.settings import IDS, JOIN_4, MIN_DELTAS, NEEDS_JOIN_4, SNAPSHOTS

pytestmark = pytest.mark.usefixtures("nothing_left")


def unswept():
    """Keeps background threads from deleting rows of released bins."""
    return Fault("sweep", "throw", always=True)


@pytest.mark.long
@pytest.mark.parametrize(
    ("name", "conf"),
    [("tws-jvm", {}), pytest.param("join-full", JOIN_4, marks=[NEEDS_JOIN_4, pytest.mark.matrix])],
    ids=str,
)
def test_a_prepared_step_looks_through_no_family(stream, tmp_path, name, conf):
    query, run = begun(stream, name, **conf)
    with (
        Fault("switch.scan", "count") as scans,
        Fault("switch.sweep", "count") as waits,
        Fault("sweep", "count") as sweeps,
    ):
        epoch = finish(run, run.attach().rescale(3, strategy=AllAtOnce()), 2)
        epoch, report = shift(run, epoch)
        assert report.bins_prepared == 64
        assert scans.count == 0
        assert until(lambda: sweeps.count > 0)
        # The second step brings back none of the bins that left with the first.
        assert waits.count == 0
    run.run(epoch)
    assert_never_migrated(run, query, epoch + 1, tmp_path, **conf)


@pytest.mark.parametrize(
    ("name", "conf"),
    [
        ("tws-jvm", {}),
        ("tws-jvm", IDS),
        pytest.param("join-full", JOIN_4, marks=NEEDS_JOIN_4),
        pytest.param("join-full", JOIN_4 | IDS, marks=[NEEDS_JOIN_4, pytest.mark.matrix]),
    ],
    ids=str,
)
def test_bins_that_come_back_find_none_of_their_rows_from_before(stream, tmp_path, name, conf):
    query, run = begun(stream, name, **conf)
    with unswept():
        epoch, _ = shift(run, 2)
        # Some of the timers that left fire at their new owner, which removes them there.
        run.run(*range(epoch, epoch + 3))
        # A timer that fired where its bin was before would fail that task; the next attempt would have none.
        assert failed_tasks(run) == 0
        with Fault("switch.sweep", "count") as sweeps:
            epoch, report = shift(run, epoch + 3)
            assert report.bins_prepared == 64
            assert sweeps.count > 0
        run.run(epoch)
        run.stop()
        run.start()
        run.run(*range(epoch + 1, epoch + 4))
    assert_never_migrated(run, query, epoch + 4, tmp_path, **conf)


def test_a_sweep_starts_over_when_more_bins_leave(stream, tmp_path):
    query, run = begun(stream, "tws-jvm")
    # More rows in each store than are looked at in one go.
    run.run(2, n=6000, keys=6000)
    controller = run.attach()
    before = list(controller.routing().assignment)
    mine = [b for b, owner in enumerate(before) if owner == 0]

    def moved(bins, epoch):
        owners = [1 if b in bins else owner for b, owner in enumerate(before)]
        return finish(run, controller.submit(controller.plan(owners, strategy=AllAtOnce())), epoch)

    with Fault("sweep", "count") as turns, Fault("sweep", "turnstile"):
        epoch = moved(mine[:-4:2], 3)
        assert until(lambda: turns.count == 1)
        with Fault("sweep", "pass"):
            assert until(lambda: turns.count == 2)
        # The rows that were looked at have some of these bins.
        epoch = moved(mine[:-4], epoch)
    # Some timers fire at their new owner.
    run.run(*range(epoch, epoch + 4))
    epoch = moved([], epoch + 4)
    run.run(*range(epoch, epoch + 3))
    assert failed_tasks(run) == 0
    oracle = stream(query.build, "oracle", mode=query.mode, provider=STOCK).start()
    oracle.run(0, 1)
    oracle.run(2, n=6000, keys=6000)
    oracle.run(*range(3, epoch + 3))
    assert_same_results(run, oracle, query.state)


@pytest.mark.parametrize("conf", [SNAPSHOTS, SNAPSHOTS | IDS, {MIN_DELTAS: "1"}], ids=["", "ids", "each"])
def test_a_snapshot_has_none_of_the_rows_that_left(stream, tmp_path, conf):
    query, run = begun(stream, "tws-jvm", **conf)
    with unswept():
        epoch, _ = shift(run, 2)
        last = epoch + 6
        run.run(*range(epoch, last))
        assert until(lambda: min(version_of(files[-1]) for files in snapshots(run).values()) > epoch)
        run.stop()
    end_maintenance(run.spark)
    with binshift.inspect.open(run.checkpoint) as checkpoint:
        assert [list(fsck(checkpoint, version)) for version in range(epoch + 1, last + 1)] == [[]] * 6
    run.start()
    run.run(last)
    assert_never_migrated(run, query, last + 1, tmp_path, **conf)


def test_what_is_written_while_bins_are_copied_leaves_as_well(stream):
    query, run = begun(stream, "tws-jvm")
    with Fault("switch.scan", "count") as scans, Fault("switch.flush", "count") as flushes:
        with Fault("stage.done", "block"):
            migration = submit_shift(run)
            run.run(2, 3, n=6000, keys=6000)
        epoch = finish(run, migration, 4)
        assert migration.wait(0).bins_prepared == 64
        assert scans.count == 0
        # Ingested files don't wait for data that either store has in memory.
        assert flushes.count == 2
    run.run(epoch)
    oracle = stream(query.build, "oracle", mode=query.mode, provider=STOCK).start()
    oracle.run(0, 1)
    oracle.run(2, 3, n=6000, keys=6000)
    oracle.run(*range(4, epoch + 1))
    assert_same_results(run, oracle, query.state)


@pytest.mark.parametrize("prepare", [True, False])
def test_a_task_that_fails_while_rows_are_unswept_loses_nothing(stream, tmp_path, prepare):
    query, run = begun(stream, "tws-jvm", build=with_a_point_in_rows)
    with unswept():
        epoch, _ = shift(run, 2, prepare=prepare)
        with Fault("query.row", "throw") as fault:
            run.run(epoch)
            assert fault.happened
        assert failed_tasks(run) == 1
        epoch, _ = shift(run, epoch + 1)
        run.run(epoch)
    assert_never_migrated(run, query, epoch + 1, tmp_path)


def test_on_demand_each_store_looks_through_a_family_once(stream, tmp_path):
    query, run = begun(stream, "tws-jvm")
    with Fault("export.scan", "count") as looks, Fault("switch.scan", "count") as scans:
        epoch, report = shift(run, 2, OnDemand())
        # The families are those of timers and of the index of TTLs.
        assert 0 < looks.count <= 2 * 2
        assert scans.count == 0
    assert report.bins_shipped == 64
    run.run(epoch)
    assert_never_migrated(run, query, epoch + 1, tmp_path)


@pytest.mark.matrix
def test_a_task_of_the_switch_that_is_tried_again_leaves_nothing_behind(stream, tmp_path):
    query, run = begun(stream, "tws-jvm")
    with unswept(), Fault("switch.done", "throw") as fault:
        epoch, report = shift(run, 2)
        assert fault.happened
    assert report.bins_prepared == 64
    run.run(epoch)
    assert_never_migrated(run, query, epoch + 1, tmp_path)


def test_a_store_that_was_loaded_again_since_looks_through_no_family_either(stream, tmp_path):
    query, run = begun(stream, "tws-jvm", build=with_a_point_in_rows)
    with Fault("switch.scan", "count") as scans:
        with Fault("stage.done", "block"):
            migration = submit_shift(run)
            run.run(2, 3)
            with Fault("query.row", "throw") as fault:
                run.run(4)
                assert fault.happened
            assert failed_tasks(run) == 1
        epoch = finish(run, migration, 5)
        assert migration.wait(0).bins_prepared == 64
        assert scans.count == 0
    run.run(epoch)
    assert_never_migrated(run, query, epoch + 1, tmp_path)


def test_what_is_written_after_an_opening_leaves_with_a_step_that_was_ordered_before_it(stream, tmp_path):
    query, run = begun(stream, "tws-jvm")
    controller = run.attach()
    table = controller.routing()

    def moves(bins, target):
        return tuple(Move(b, table.assignment[b], target(table.assignment[b])) for b in bins)

    # The second step moves bins between existing partitions, while the third step's partition is opened.
    steps = (
        Step(moves(range(8), lambda owner: 1 - owner), partitions=2),
        Step(moves(range(8, 40), lambda owner: 1 - owner), partitions=4),
        Step(moves(range(40, 64), lambda owner: owner + 2), partitions=4),
    )
    migration = controller.submit(MigrationPlan(table, steps=steps, strategy="my own"))

    def is_over():
        # No step is copied twice.
        ordered = steps_ordered(run)
        assert len(set(ordered)) == len(ordered)
        return migration.status.is_over

    with Fault("switch.scan", "count") as scans:
        epoch = feed_until(run, 2, is_over)
        assert scans.count == 0
    assert migration.wait(0).bins_prepared == 64
    # Timers that stayed behind would fire.
    run.run(*range(epoch, epoch + 4))
    assert_never_migrated(run, query, epoch + 4, tmp_path)


def steps_ordered(run):
    """The steps of the open orders."""
    file = run.checkpoint / "binshift/shipping.json"
    orders = json.loads(file.read_text())["orders"] if file.exists() else []
    return [order["first_step"] + i for order in orders for i in range(len(order["steps"]))]
