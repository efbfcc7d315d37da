"""Bins are copied to their new owners before a step takes effect; the copies equal what was committed."""

import os
from pathlib import Path

import pytest

from binshift import AllAtOnce, Batched, Fluid, MigrationState, OnDemand
from harness import STOCK, Fault, StreamRun, assert_same_results, until
from local.queries import QUERIES

MAX_EPOCHS = 60
SHIP = "spark.sql.streaming.stateStore.binshift.ship."
CHECKSUMS = "spark.sql.streaming.stateStore.rowChecksum.enabled"
IDS = "spark.sql.streaming.stateStore.checkpointFormatVersion"
NEVER = "1h"
"""A timeout at which a test fails that waits for it."""
JOIN = "spark.sql.streaming.join.stateFormatVersion"


def shifted(controller):
    """A table in which each partition's bins go to the next one."""
    table = controller.routing()
    return [(owner + 1) % table.partitions for owner in table.assignment]


def finish(run, migration, epoch):
    """Feeds epochs until the migration is over; returns the epoch after the last."""
    while not migration.status.is_over:
        assert epoch < MAX_EPOCHS, str(migration.status)
        run.run(epoch)
        epoch += 1
    return epoch


def shift(run, epoch, strategy=None, prepare=True):
    controller = run.attach()
    plan = controller.plan(assignment=shifted(controller), strategy=strategy or AllAtOnce())
    migration = controller.submit(plan, prepare=prepare)
    return finish(run, migration, epoch), migration.wait(0)


def assert_never_migrated(run, query, epochs, tmp_path, **conf):
    """What came out and what is kept equal those of the stock provider on the same input."""
    oracle = StreamRun(
        run.spark, tmp_path / "oracle", query.build, mode=query.mode, provider=STOCK, conf=conf
    ).start()
    oracle.run(*range(epochs))
    oracle.stop()
    assert_same_results(run, oracle, query.state)


@pytest.fixture(autouse=True)
def nothing_left(spark):
    """Whatever becomes of a migration, nothing that was staged outlives its query."""
    # An executor that another test killed leaves its directories to the cluster that ran it.
    before = set(staged_dirs())
    yield
    assert until(lambda: before.issuperset(staged_dirs())), staged_dirs()
    blocks = spark._jvm.org.apache.spark.sql.execution.streaming.state.binshift.TestBlocks
    assert until(lambda: blocks.shipments() == 0)
    assert until(lambda: blocks.stagedBytes() == 0)


def staged_dirs():
    scratch = Path(os.environ["BINSHIFT_TESTS_TMP"])
    return [*scratch.glob("spark-*/binshift-staged-*"), *scratch.glob("spark-*/binshift-export-*")]


@pytest.fixture
def counting(stream):
    """A query without a watermark, so that an input file is one epoch."""
    query = QUERIES["count"]
    run = stream(query.build, mode=query.mode, conf={SHIP + "maxEpochsToWait": "2"}).start()
    run.run(0, 1)
    return query, run


@pytest.fixture
def tumbling(stream):
    query = QUERIES["tumbling-append"]
    run = stream(query.build, mode=query.mode).start()
    run.run(0, 1)
    return query, run


@pytest.mark.parametrize(
    "strategy",
    [AllAtOnce(), pytest.param(Batched(8), marks=pytest.mark.matrix), Fluid()],
    ids=lambda s: type(s).__name__,
)
def test_a_prepared_rescale_moves_every_bin_by_its_copy(stream, tmp_path, strategy):
    query = QUERIES["tumbling-append"]
    bins = "8" if isinstance(strategy, Fluid) else "64"
    conf = {"spark.sql.streaming.stateStore.binshift.bins": bins}
    run = stream(query.build, mode=query.mode, conf=conf).start()
    run.run(0, 1)
    migration = run.attach().rescale(3, strategy)
    epoch = finish(run, migration, 2)
    report = migration.wait(0)
    assert report.bins_prepared == report.bins_moved == len(migration.plan.moves)
    assert report.bins_shipped == report.bins_from_checkpoint == report.bins_recopied == 0
    run.run(epoch)
    assert_never_migrated(run, query, epoch + 1, tmp_path)


@pytest.mark.parametrize(
    ("name", "conf"),
    [
        pytest.param("session-fixed", {}, marks=pytest.mark.matrix),
        pytest.param("dedup-watermark", {CHECKSUMS: "true"}, marks=pytest.mark.matrix),
        pytest.param("join-full", {}, marks=pytest.mark.matrix),
        ("join-full", {JOIN: "4", IDS: "2", CHECKSUMS: "true"}),
        pytest.param("join-semi", {JOIN: "3"}, marks=pytest.mark.matrix),
        pytest.param("jvm-with-state", {IDS: "2"}, marks=pytest.mark.matrix),
        pytest.param("tws-jvm", {IDS: "2"}, marks=pytest.mark.matrix),
        pytest.param("tws-rows", {}, marks=pytest.mark.matrix),
    ],
    ids=str,
)
def test_copies_follow_every_operator_while_it_goes_on(stream, tmp_path, name, conf):
    query = QUERIES[name]
    run = stream(query.build, mode=query.mode, conf=conf).start()
    run.run(0, 1)
    migration = run.attach().rescale(4, AllAtOnce())
    epoch = finish(run, migration, 2)
    assert migration.wait(0).bins_from_checkpoint == 0
    epoch, report = shift(run, epoch, Batched(40))
    assert report.bins_prepared > 0
    assert report.bins_from_checkpoint == report.bins_shipped == 0
    epoch = finish(run, run.attach().rescale(3, AllAtOnce()), epoch)
    run.run(epoch)
    # All partitions from their files, with the switches replayed.
    run.stop()
    run.start()
    run.run(epoch + 1)
    assert_never_migrated(run, query, epoch + 2, tmp_path, **conf)


def test_without_preparation_the_old_owners_executor_sends_the_bins(tumbling, tmp_path):
    query, run = tumbling
    epoch, report = shift(run, 2, prepare=False)
    assert report.bins_shipped == report.bins_moved == 64
    run.run(epoch)
    assert_never_migrated(run, query, epoch + 1, tmp_path)


@pytest.mark.parametrize(
    "name",
    [
        "count",
        pytest.param("session-fixed", marks=pytest.mark.matrix),
        pytest.param("dedup-within-watermark", marks=pytest.mark.matrix),
        pytest.param("join-full", marks=pytest.mark.matrix),
        "tws-jvm",
    ],
)
def test_bins_that_come_on_demand_are_there_when_they_are_touched(stream, tmp_path, name):
    query = QUERIES[name]
    run = stream(query.build, mode=query.mode).start()
    run.run(0, 1)
    epoch = finish(run, run.attach().rescale(4, OnDemand()), 2)
    epoch, report = shift(run, epoch, OnDemand())
    assert report.bins_shipped > 0
    assert report.bins_from_checkpoint == report.bins_prepared == 0
    epoch = finish(run, run.attach().rescale(3, OnDemand()), epoch)
    run.stop()
    run.start()
    run.run(epoch)
    assert_never_migrated(run, query, epoch + 1, tmp_path)


def test_an_epoch_on_demand_takes_only_the_bins_that_it_touches(stream, tmp_path):
    query = QUERIES["count"]
    run = stream(query.build, mode=query.mode).start()
    run.run(0, 1)
    controller = run.attach()
    migration = controller.submit(controller.plan(assignment=shifted(controller), strategy=OnDemand()))
    run.run(2)
    with Fault("fetch.chunk", "block"):
        run.feed([])
        run.query.processAllAvailable()
        at_switch = run.progress(3).stateOperators[0].customMetrics
        assert at_switch["binshiftBinsAwaited"] == 64
        assert not migration.status.is_over
    epoch = finish(run, migration, 3)
    # The epoch without rows is one of the oracle's, too.
    assert run.outputs.pop(3) == []
    run.outputs = {e - (e > 3): rows for e, rows in run.outputs.items()}
    assert_never_migrated(run, query, epoch, tmp_path)


def test_a_bin_that_is_asked_for_comes_before_the_others(stream, tmp_path):
    query = QUERIES["count"]
    # At this pace, nothing comes that is not asked for.
    run = stream(query.build, mode=query.mode, conf={SHIP + "maxBytesPerSecond": "1"}).start()
    run.run(0, 1)
    controller = run.attach()
    controller.submit(controller.plan(assignment=shifted(controller), strategy=OnDemand()))
    run.run(2)
    run.run(3, n=2)
    metrics = run.progress(3).stateOperators[0].customMetrics
    # The two that were touched, and one from each partition before the pace told.
    assert 1 <= metrics["binshiftBinsShipped"] <= 4
    assert metrics["binshiftBinsFromCheckpoint"] == 0
    assert metrics["binshiftBinsAwaited"] > 50
    run.stop()
    run.start()
    run.run(4)
    oracle = StreamRun(run.spark, tmp_path / "oracle", query.build, mode=query.mode, provider=STOCK).start()
    oracle.run(0, 1, 2)
    oracle.run(3, n=2)
    oracle.run(4)
    oracle.stop()
    assert_same_results(run, oracle, query.state)


def test_the_rows_of_a_single_bin_that_leaves_on_demand_are_counted_where_they_are(stream, tmp_path):
    query = QUERIES["count"]
    run = stream(query.build, mode=query.mode).start()
    run.run(0, 1)
    controller = run.attach()
    owners = list(controller.routing().assignment)
    held = controller.stats().to_pylist()
    owners[next(r["bin"] for r in held if r["bin"] > 0 and r["keys"] > 0 and r["partition"] == 0)] = 1
    migration = controller.submit(controller.plan(assignment=owners, strategy=OnDemand()))
    epoch = finish(run, migration, 2)
    assert migration.wait(0).bins_shipped == 1
    assert_never_migrated(run, query, epoch, tmp_path)


@pytest.mark.parametrize("point", ["export.start", "stage.file"])
def test_bins_that_never_come_on_demand_are_read_from_the_checkpoint(stream, tmp_path, point):
    query = QUERIES["count"]
    run = stream(query.build, mode=query.mode, conf={SHIP + "timeout": NEVER}).start()
    run.run(0, 1)
    with Fault(point, "throw", always=True):
        epoch, report = shift(run, 2, OnDemand())
    # By the task that needs them, or where they can be kept until it does, in the background.
    assert report.bins_recopied + report.bins_from_checkpoint == 64
    run.stop()
    run.start()
    run.run(epoch)
    assert_never_migrated(run, query, epoch + 1, tmp_path)


@pytest.mark.parametrize("action", ["damage", pytest.param("cut", marks=pytest.mark.matrix)])
def test_a_damaged_shipment_is_read_from_the_checkpoint(tumbling, tmp_path, action):
    query, run = tumbling
    with Fault("export.chunk", action) as fault:
        epoch, report = shift(run, 2)
        assert fault.happened
    assert report.bins_prepared == 64
    assert report.bins_recopied == 32
    run.run(epoch)
    assert_never_migrated(run, query, epoch + 1, tmp_path)


@pytest.mark.parametrize("point", ["export.start", "export.chunk"])
def test_a_shipment_that_never_comes_is_read_from_the_checkpoint(stream, tmp_path, point):
    query = QUERIES["tumbling-append"]
    run = stream(query.build, mode=query.mode, conf={SHIP + "timeout": NEVER}).start()
    run.run(0, 1)
    with Fault(point, "throw", always=True):
        epoch, report = shift(run, 2)
    assert report.bins_prepared == report.bins_recopied == 64
    epoch, report = shift(run, epoch)
    assert report.bins_prepared == 64
    assert_never_migrated(run, query, epoch, tmp_path)


def test_bins_that_find_no_room_are_read_from_the_checkpoint_at_the_switch(tumbling, tmp_path):
    query, run = tumbling
    with Fault("stage.file", "throw", always=True):
        epoch, report = shift(run, 2)
    assert report.bins_from_checkpoint == 64
    run.run(epoch)
    assert_never_migrated(run, query, epoch + 1, tmp_path)


@pytest.mark.parametrize("point", ["switch.ingest", "switch.done"])
def test_a_task_that_fails_in_the_middle_of_a_switch_is_retried(tumbling, tmp_path, point):
    query, run = tumbling
    with Fault(point, "throw") as fault:
        epoch, report = shift(run, 2)
        assert fault.happened
    assert report.bins_prepared > 0
    assert report.bins_prepared + report.bins_from_checkpoint == 64
    run.run(epoch)
    assert_never_migrated(run, query, epoch + 1, tmp_path)


def test_a_step_that_waited_long_enough_takes_effect_without_copies(counting, tmp_path):
    query, run = counting
    controller = run.attach()
    migration = controller.submit(controller.plan(assignment=shifted(controller), strategy=AllAtOnce()))
    with Fault("export.start", "block"):
        run.run(2, 3, 4)
        assert migration.status.state is MigrationState.WAITING
        assert "64 copies of bins are awaited" in migration.status.message
        run.run(5)
        assert migration.status.next_epoch == 6
    epoch = finish(run, migration, 6)
    assert migration.wait(0).bins_shipped == 64
    assert_never_migrated(run, query, epoch, tmp_path)


def test_nothing_that_was_staged_is_left_behind(tumbling, spark):
    _, run = tumbling
    epoch, _ = shift(run, 2, Batched(16))
    run.run(epoch)
    assert not (run.checkpoint / "binshift/shipping.json").exists()
    blocks = spark._jvm.org.apache.spark.sql.execution.streaming.state.binshift.TestBlocks
    assert until(lambda: blocks.shipments() == 0)
    assert until(lambda: blocks.stagedBytes() == 0)


def test_a_restart_while_bins_are_copied_copies_them_again(tumbling, tmp_path):
    query, run = tumbling
    with Fault("stage.file", "block"):
        migration = run.attach().rescale(4, AllAtOnce())
        run.run(2, 3, 4)
        assert not migration.status.is_over
        run.stop()
    run.start()
    migration = run.attach().migration
    epoch = finish(run, migration, 5)
    assert migration.wait(0).bins_prepared == 32
    run.run(epoch)
    assert_never_migrated(run, query, epoch + 1, tmp_path)


def test_a_migration_that_is_cancelled_while_bins_are_copied_moves_none(tumbling, tmp_path):
    query, run = tumbling
    controller = run.attach()
    before = controller.routing().assignment
    with Fault("stage.file", "block"):
        migration = controller.submit(controller.plan(assignment=shifted(controller), strategy=AllAtOnce()))
        run.run(2, 3)
        migration.cancel()
        run.run(4)
    assert migration.status.state is MigrationState.CANCELLED
    run.run(5)
    assert controller.routing().assignment == before
    assert not (run.checkpoint / "binshift/shipping.json").exists()
    # The next migration is not disturbed by what was ordered before.
    epoch, report = shift(run, 6)
    assert report.bins_prepared == 64
    assert_never_migrated(run, query, epoch, tmp_path)


def test_bins_that_move_on_before_any_snapshot_are_recovered_along_the_chain(stream, tmp_path):
    query = QUERIES["tumbling-append"]
    conf = {"spark.sql.streaming.stateStore.minDeltasForSnapshot": "1000"}
    run = stream(query.build, mode=query.mode, conf=conf).start()
    run.run(0, 1)
    epoch = finish(run, run.attach().rescale(3, AllAtOnce()), 2)
    for _ in range(3):
        epoch, report = shift(run, epoch)
        assert report.bins_prepared == 64
    run.stop()
    # No snapshot is left, but for the first one of the partition that was opened empty.
    for partition in (run.checkpoint / "state/0").glob("[0-9]*"):
        snapshots = sorted(partition.glob("*.zip"), key=lambda f: int(f.stem))
        for snapshot in snapshots[1:] if partition.name == "2" else snapshots:
            snapshot.unlink()
    run.start()
    run.run(epoch)
    assert_never_migrated(run, query, epoch + 1, tmp_path)


def test_what_was_lent_is_kept_until_its_adopters_have_snapshots(stream, tmp_path, spark):
    query = QUERIES["tumbling-append"]
    conf = {
        "spark.sql.streaming.stateStore.minDeltasForSnapshot": "3",
        "spark.sql.streaming.minBatchesToRetain": "2",
        "spark.sql.streaming.stateStore.maintenanceInterval": "100ms",
        "spark.sql.streaming.stateStore.maintenanceProcessingTimeout": "30s",
    }
    run = stream(query.build, mode=query.mode, conf=conf).start()
    run.run(0, 1)
    epoch, _ = shift(run, 2)
    for _ in range(8):
        run.run(epoch)
        epoch += 1
    run.stop()
    run.start()
    run.run(epoch)
    assert_never_migrated(run, query, epoch + 1, tmp_path)


def test_the_state_of_partitions_that_are_gone_is_deleted_and_they_may_come_back(stream, tmp_path):
    query = QUERIES["count"]
    conf = {
        "spark.sql.streaming.stateStore.minDeltasForSnapshot": "2",
        "spark.sql.streaming.minBatchesToRetain": "2",
    }
    run = stream(query.build, mode=query.mode, conf=conf).start()
    run.run(0, 1)
    epoch = finish(run, run.attach().rescale(4, AllAtOnce()), 2)
    epoch = finish(run, run.attach().rescale(2, AllAtOnce()), epoch)
    state = run.checkpoint / "state/0"
    assert {p.name for p in state.glob("[0-9]*")} == {"0", "1", "2", "3"}
    while {p.name for p in state.glob("[0-9]*")} != {"0", "1"}:
        assert epoch < MAX_EPOCHS
        run.run(epoch)
        epoch += 1
    epoch = finish(run, run.attach().rescale(4, AllAtOnce()), epoch)
    run.stop()
    run.start()
    run.run(epoch)
    assert_never_migrated(run, query, epoch + 1, tmp_path)
