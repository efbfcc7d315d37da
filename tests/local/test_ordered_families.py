"""Families that are read in order, such as timers, leave with their bins; rows that stay are not read."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from binshift import AllAtOnce, MigrationPlan, Move, OnDemand, Step
from harness import STOCK, Fault, assert_same_results
from local.migrations import assert_never_migrated, begun, failed_tasks, feed_until, finish, shift, submit_shift
from local.queries import with_a_point_in_rows
from local.settings import JOIN_4, NEEDS_JOIN_4

pytestmark = pytest.mark.usefixtures("nothing_left")


@pytest.mark.long
@pytest.mark.parametrize(
    ("name", "conf"),
    [("tws-jvm", {}), pytest.param("join-full", JOIN_4, marks=[NEEDS_JOIN_4, pytest.mark.matrix])],
    ids=str,
)
def test_a_prepared_step_looks_through_no_family(stream, tmp_path, name, conf):
    query, run = begun(stream, name, **conf)
    with Fault("switch.scan", "count") as scans, Fault("switch.removal", "count") as removals:
        epoch = finish(run, run.attach().rescale(3, strategy=AllAtOnce()), 2)
        epoch, report = shift(run, epoch)
        assert report.bins_prepared == 64
        assert scans.count == 0
        assert removals.count > 0
    run.run(epoch)
    assert_never_migrated(run, query, epoch + 1, tmp_path, **conf)


@pytest.mark.parametrize("action", ["count", "throw"])
def test_what_is_written_while_bins_are_copied_has_files_of_deletions_too(stream, action):
    query, run = begun(stream, "tws-jvm")
    with (
        Fault("switch.scan", "count") as scans,
        Fault("export.later", action, always=action == "throw") as later,
        Fault("switch.flush", "count") as flushes,
    ):
        with Fault("stage.done", "block"):
            migration = submit_shift(run)
            run.run(2, 3, n=6000, keys=6000)
        epoch = finish(run, migration, 4)
        assert migration.wait(0).bins_prepared == 64
        assert scans.count == 0
        # Ingested files don't wait for data that either store has in memory.
        assert flushes.count == 2
        # Without a file to ingest, rows are deleted one by one.
        assert action == "throw" or later.count > 0
    run.run(epoch)
    oracle = stream(query.build, "oracle", mode=query.mode, provider=STOCK).start()
    oracle.run(0, 1)
    oracle.run(2, 3, n=6000, keys=6000)
    oracle.run(*range(4, epoch + 1))
    assert_same_results(run, oracle, query.state)


@pytest.mark.long
def test_files_of_deletions_that_cannot_be_used_cost_a_look(stream, tmp_path):
    assert shift_with_a_look(stream, tmp_path, "switch.removal").bins_prepared == 64


def test_files_of_deletions_that_cannot_be_written_cost_a_look_and_no_copy(stream, tmp_path):
    assert shift_with_a_look(stream, tmp_path, "export.removal").bins_prepared == 64


def test_on_demand_each_store_looks_through_a_family_once(stream, tmp_path):
    query, run = begun(stream, "tws-jvm")
    with Fault("export.scan", "count") as looks:
        epoch, report = shift(run, 2, OnDemand())
        # The families are those of timers and of the index of TTLs.
        assert 0 < looks.count <= 2 * 2
    assert report.bins_shipped == 64
    run.run(epoch)
    assert_never_migrated(run, query, epoch + 1, tmp_path)


@pytest.mark.matrix
def test_a_task_of_the_switch_that_is_tried_again_has_no_files_left(stream, tmp_path):
    shift_with_a_look(stream, tmp_path, "switch.done")


def test_a_store_that_was_loaded_again_since_looks_through_the_family(stream, tmp_path):
    # Its writes may differ from those that another attempt of its task has committed.
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
        # The failed task has scanned.
        assert migration.wait(0).bins_prepared == 64
        assert scans.count > 0
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


def shift_with_a_look(stream, tmp_path, point):
    """Moves bins, fails once at `point`, and then has a family scanned."""
    query, run = begun(stream, "tws-jvm")
    with Fault("switch.scan", "count") as scans, Fault(point, "throw") as fault:
        epoch, report = shift(run, 2)
        assert fault.happened
        assert scans.count > 0
    run.run(epoch)
    assert_never_migrated(run, query, epoch + 1, tmp_path)
    return report


key = st.integers(0, 5)
step = st.one_of(key.map("+{}".format), key.map("-{}".format), st.sampled_from(["c", "l", "s"]))


@given(history=st.lists(step, max_size=40))
@settings(max_examples=200, deadline=None)
def test_no_key_that_was_committed_is_forgotten(spark, history):
    committed, written = set(), set()
    ever = set()
    for what in history:
        if what == "c":
            committed = set(written)
        elif what in "ls":
            written = set(committed)
        elif what[0] == "+":
            written.add(what[1:])
            ever.add(what[1:])
        else:
            written.discard(what[1:])
    known = set(jvm(spark).play(" ".join(history)).split())
    assert written <= known <= ever


def test_keys_are_forgotten_when_they_are_removed_and_when_they_are_too_many(spark):
    assert jvm(spark).playMany(10_000, True) == "/0"
    assert jvm(spark).playMany(10_000, False) == "too many/0"


def test_of_two_orders_for_a_step_only_the_one_that_hears_of_writes_knows_what_leaves(spark):
    assert jvm(spark).playTwoOrders() == "unknown/7"


def jvm(spark):
    return spark._jvm.org.apache.spark.sql.execution.streaming.state.binshift.TestDepartingKeys
