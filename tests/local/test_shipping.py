"""Bins are copied to their new owners before a step takes effect; the copies equal what was committed."""

import time
from contextlib import ExitStack, contextmanager
from functools import partial

import pytest
from pyspark import InheritableThread

from binshift import AllAtOnce, Batched, Fluid, MigrationState
from harness import Fault, end_maintenance, until
from local.migrations import (
    NEVER,
    SHIP,
    assert_never_migrated,
    begun,
    feed_until,
    finish,
    shift,
    shifted,
    submit_shift,
)
from local.queries import QUERIES
from local.settings import IDS, JOIN_3, JOIN_4, MIN_DELTAS, NEEDS_JOIN_4, ROW_CHECKSUMS, STORE

pytestmark = pytest.mark.usefixtures("nothing_left")


@pytest.fixture
def tumbling(stream):
    return begun(stream, "tumbling-append")


@pytest.mark.long
@pytest.mark.few
@pytest.mark.parametrize(
    "strategy",
    [AllAtOnce(), pytest.param(Batched(8), marks=pytest.mark.matrix), Fluid()],
    ids=lambda s: type(s).__name__,
)
def test_a_prepared_rescale_moves_every_bin_by_its_copy(stream, tmp_path, strategy):
    query = QUERIES["tumbling-append"]
    bins = "8" if isinstance(strategy, Fluid) else "64"
    conf = {STORE + "binshift.bins": bins}
    run = stream(query.build, mode=query.mode, conf=conf).start()
    run.run(0, 1)
    migration = run.attach().rescale(3, strategy=strategy)
    epoch = finish(run, migration, 2)
    report = migration.wait(0)
    assert report.bins_prepared == report.bins_moved == len(migration.plan.moves)
    assert report.bins_shipped == report.bins_from_checkpoint == report.bins_recopied == 0
    run.run(epoch)
    assert_never_migrated(run, query, epoch + 1, tmp_path)


@pytest.mark.long
@pytest.mark.parametrize(
    ("name", "conf"),
    [
        pytest.param("session-fixed", {}, marks=pytest.mark.matrix),
        pytest.param("dedup-watermark", ROW_CHECKSUMS, marks=pytest.mark.matrix),
        pytest.param("join-full", {}, marks=pytest.mark.matrix),
        pytest.param("join-full", JOIN_4 | IDS | ROW_CHECKSUMS, marks=NEEDS_JOIN_4),
        pytest.param("join-semi", JOIN_3, marks=pytest.mark.matrix),
        pytest.param("jvm-with-state", IDS, marks=pytest.mark.matrix),
        pytest.param("tws-jvm", IDS, marks=pytest.mark.matrix),
        pytest.param("tws-rows", {}, marks=pytest.mark.matrix),
    ],
    ids=str,
)
def test_copies_follow_every_operator_while_it_goes_on(stream, tmp_path, name, conf):
    query, run = begun(stream, name, **conf)
    migration = run.attach().rescale(4, strategy=AllAtOnce())
    epoch = finish(run, migration, 2)
    assert migration.wait(0).bins_from_checkpoint == 0
    epoch, report = shift(run, epoch, Batched(40))
    assert report.bins_prepared > 0
    assert report.bins_from_checkpoint == report.bins_shipped == 0
    epoch = finish(run, run.attach().rescale(3, strategy=AllAtOnce()), epoch)
    run.run(epoch)
    # All partitions are loaded from their files, and replay the switches.
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


@pytest.mark.long
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


@pytest.mark.long
def test_an_old_owner_does_not_wait_for_a_new_one_that_reads_the_checkpoint(stream, tmp_path):
    query = QUERIES["tumbling-append"]
    # After the copy has failed, most chunks that are sent to it find no room.
    conf = {SHIP + "chunkBytes": "1", SHIP + "maxBytesInFlight": "1k", SHIP + "timeout": NEVER}
    run = stream(query.build, mode=query.mode, conf=conf).start()
    run.run(0, 1)
    with Fault("export.chunk", "damage") as fault:
        epoch, report = shift(run, 2)
        assert fault.happened
    assert (report.bins_prepared, report.bins_recopied) == (64, 32), report
    run.run(epoch)
    assert_never_migrated(run, query, epoch + 1, tmp_path)


@pytest.mark.long
@pytest.mark.parametrize(
    "point", ["export.link", pytest.param("export.start", marks=pytest.mark.matrix), "export.chunk"]
)
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


def test_an_epoch_waits_until_the_version_that_is_copied_is_kept(counting, tmp_path, spark):
    query, run = counting
    threads = spark._jvm.org.apache.spark.sql.execution.streaming.state.binshift.TestThreads
    migration = submit_shift(run)
    with Fault("export.link", "block"):
        run.run(2)
        assert not threads.isIn("awaitLinks")
        epoch = InheritableThread(target=run.run, args=[3])
        epoch.start()
        assert until(lambda: threads.isIn("awaitLinks"))
    epoch.join()
    end = finish(run, migration, 4)
    assert migration.wait(0).bins_prepared == 64
    assert_never_migrated(run, query, end, tmp_path)


@contextmanager
def held_up(run):
    """Starts a migration whose copies of all bins have begun; no piece is adopted until the context ends."""
    with Fault("fetch.chunk", "block"):
        migration = submit_shift(run)
        run.run(2, 3)
        yield migration


@pytest.mark.long
def test_pieces_that_are_lost_on_the_way_are_read_from_the_checkpoint(stream, tmp_path, spark):
    query = QUERIES["tumbling-append"]
    run = stream(query.build, mode=query.mode, conf={SHIP + "chunkBytes": "1"}).start()
    run.run(0, 1)
    blocks = spark._jvm.org.apache.spark.sql.execution.streaming.state.binshift.TestBlocks
    with held_up(run) as migration:
        # The first pieces of each partition are being fetched; the others wait.
        assert until(lambda: blocks.chunks() > 40)
        assert blocks.loseChunks() > 40
    epoch = finish(run, migration, 4)
    report = migration.wait(0)
    assert report.bins_prepared == 64
    assert report.bins_recopied >= 32
    run.run(epoch)
    assert_never_migrated(run, query, epoch + 1, tmp_path)


@pytest.mark.long
def test_copies_come_though_pieces_of_many_others_do_not(stream, tmp_path):
    query = QUERIES["tumbling-append"]
    conf = {"spark.sql.shuffle.partitions": "5", SHIP + "timeout": NEVER}
    run = stream(query.build, mode=query.mode, conf=conf).start()
    run.run(0, 1)
    hanging = [f"fetch.chunk.{source}" for source in range(4)]
    with ExitStack() as faults, ExitStack() as last:
        counts = [faults.enter_context(Fault(point, "count")) for point in hanging]
        for point in hanging:
            faults.enter_context(Fault(point, "block"))
        last.enter_context(Fault("fetch.chunk.4", "block"))
        migration = submit_shift(run)
        run.run(2, 3)
        assert until(lambda: all(fault.count for fault in counts))
        last.close()
        others = sum(move.source != 4 for move in migration.plan.moves)

        def awaited():
            return run.query.lastProgress.stateOperators[0].customMetrics["binshiftBinsAwaited"]

        epoch = feed_until(run, 4, lambda: awaited() == others)
    epoch = finish(run, migration, epoch)
    report = migration.wait(0)
    assert (report.bins_prepared, report.bins_recopied) == (len(migration.plan.moves), 0), report
    assert_never_migrated(run, query, epoch, tmp_path)


def test_the_driver_hears_of_no_piece(stream, tmp_path, spark):
    query = QUERIES["tumbling-append"]
    run = stream(query.build, mode=query.mode, conf={SHIP + "chunkBytes": "1"}).start()
    run.run(0, 1)
    blocks = spark._jvm.org.apache.spark.sql.execution.streaming.state.binshift.TestBlocks
    context = spark.sparkContext._jsc.sc()
    blocks.beginToCountMessages(context)
    with held_up(run) as migration:
        assert until(lambda: blocks.chunks() > 40)
        # Each of the two partitions is known to send.
        assert blocks.known() == 2
    epoch = finish(run, migration, 4)
    assert migration.wait(0).bins_prepared == 64
    # The order is closed when the epoch after its last step is planned.
    run.run(epoch)
    assert until(lambda: blocks.shipments() == 0)
    # Each of the two reports its beginning and its end.
    assert blocks.countedMessages(context) <= 4
    assert_never_migrated(run, query, epoch + 1, tmp_path)


@pytest.mark.long
@pytest.mark.parametrize("chunk_bytes", ["1", "300"])
def test_no_more_waits_than_may_be_in_flight_and_all_of_it_comes(stream, tmp_path, spark, chunk_bytes):
    threads = spark._jvm.org.apache.spark.sql.execution.streaming.state.binshift.TestThreads
    query = QUERIES["tumbling-append"]
    conf = {SHIP + "chunkBytes": chunk_bytes, SHIP + "maxBytesInFlight": "1k", SHIP + "timeout": "10min"}
    run = stream(query.build, mode=query.mode, conf=conf).start()
    run.run(0, 1)
    blocks = spark._jvm.org.apache.spark.sql.execution.streaming.state.binshift.TestBlocks
    with held_up(run) as migration:
        # The first partition has no room, and the second waits for it.
        assert until(lambda: threads.isIn("awaitRoom"))
        assert 0 < blocks.chunkBytes() <= 1024
    epoch = finish(run, migration, 4)
    report = migration.wait(0)
    assert (report.bins_prepared, report.bins_recopied) == (64, 0), report
    assert_never_migrated(run, query, epoch, tmp_path)


def test_what_a_stopped_query_sends_keeps_no_other_query_waiting(stream, spark):
    threads = spark._jvm.org.apache.spark.sql.execution.streaming.state.binshift.TestThreads
    end_maintenance(spark)
    try:
        # Nothing closes its stores.
        conf = {SHIP + "chunkBytes": "1", SHIP + "maxBytesInFlight": "1k", STORE + "maintenanceInterval": "1h"}
        query = QUERIES["tumbling-append"]
        run = stream(query.build, mode=query.mode, conf=conf).start()
        run.run(0, 1)
        with held_up(run):
            assert until(lambda: threads.isIn("awaitRoom"))
            run.stop()
            assert until(lambda: not threads.isIn("awaitRoom"))
    finally:
        end_maintenance(spark)


@pytest.mark.long
def test_bins_that_find_no_room_are_read_from_the_checkpoint_at_the_switch(tumbling, tmp_path):
    query, run = tumbling
    with Fault("stage.file", "throw", always=True):
        epoch, report = shift(run, 2)
    assert report.bins_from_checkpoint == 64
    run.run(epoch)
    assert_never_migrated(run, query, epoch + 1, tmp_path)


@pytest.mark.long
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


def test_a_step_that_waited_long_enough_takes_effect_without_copies(stream, tmp_path):
    query = QUERIES["count"]
    run = stream(query.build, mode=query.mode, conf={SHIP + "maxEpochsToWait": "2"}).start()
    run.run(0, 1)
    migration = submit_shift(run)
    with Fault("export.start", "block"):
        run.run(2, 3, 4)
        assert migration.status.state is MigrationState.WAITING
        assert "the next step waits for 64 of 64 copies" in migration.status.message
        run.run(5)
        assert migration.status.next_epoch == 6
    epoch = finish(run, migration, 6)
    assert migration.wait(0).bins_shipped == 64
    assert_never_migrated(run, query, epoch, tmp_path)


@pytest.mark.long
def test_a_step_waits_as_long_as_something_of_its_copies_comes(stream, tmp_path, spark):
    query = QUERIES["count"]
    blocks = spark._jvm.org.apache.spark.sql.execution.streaming.state.binshift.TestBlocks
    conf = {SHIP + "maxEpochsToWait": "8", SHIP + "chunkBytes": "1"}
    run = stream(query.build, mode=query.mode, conf=conf).start()
    run.run(0, 1)
    migration = submit_shift(run)
    with Fault("fetch.chunk", "turnstile"):
        run.run(2, 3)
        for epoch in range(4, 20):
            with Fault("fetch.chunk", "pass") as one:
                assert until(partial(getattr, one, "happened"))
            run.run(epoch)
            assert migration.status.next_epoch is None
    # The rest comes at once, but epochs without any of it are counted again.
    assert until(lambda: blocks.chunks() == 0)
    epoch = finish(run, migration, 20)
    assert migration.wait(0).bins_prepared == 64
    operators = [run.progress(epoch).stateOperators[0] for epoch in range(3, 20)]
    copied = [operator.customMetrics["binshiftBytesCopied"] for operator in operators]
    assert copied == sorted(copied)
    assert copied[-1] > copied[0]
    assert_never_migrated(run, query, epoch, tmp_path)


def test_new_partitions_are_opened_and_copied_to_in_the_same_epoch(counting, tmp_path, spark):
    query, run = counting
    blocks = spark._jvm.org.apache.spark.sql.execution.streaming.state.binshift.TestBlocks
    migration = run.attach().rescale(3, strategy=AllAtOnce())
    assert migration.status.earliest_epoch == 5
    # The first epoch has the order, and the second opens the new partition.
    run.run(2, 3)
    assert until(lambda: blocks.stagedBytes() > 0 and blocks.chunks() == 0)
    run.run(4)
    assert migration.status.earliest_epoch in {5, 6}
    epoch = finish(run, migration, 5)
    report = migration.wait(0)
    # It is an epoch earlier if the copies were complete before the opening epoch's tasks ended.
    assert report.last_epoch in {5, 6}
    assert report.bins_prepared == report.bins_moved
    assert_never_migrated(run, query, epoch, tmp_path)


@pytest.mark.long
def test_all_new_partitions_are_opened_in_one_epoch_that_bears_it(stream, tmp_path):
    query = QUERIES["count"]
    # With long epochs or pauses between them, all partitions are opened at once.
    run = stream(query.build, mode=query.mode).start(processingTime="1 second")
    run.run(0, 1)
    controller = run.attach()
    plan = controller.plan(6, strategy=AllAtOnce())
    assert plan.earliest_epoch == 5
    assert controller.plan(6, strategy=AllAtOnce(), prepare=False).earliest_epoch == 3
    assert str(plan).endswith("takes effect: epoch 5 at the earliest, if submitted now")
    migration = controller.submit(plan)
    assert migration.status.earliest_epoch == 5
    assert controller.plan(4).earliest_epoch is None
    # The first epoch has the order; the second opens partitions, none of which has a copy when the tasks end.
    with Fault("export.start", "block"):
        run.run(2, 3)
        assert run.progress(3).stateOperators[0].numShufflePartitions == 6
        assert run.progress(3).stateOperators[0].customMetrics["binshiftBinsAwaited"] == len(plan.moves)
    epoch = finish(run, migration, 4)
    report = migration.wait(0)
    assert report.bins_prepared == report.bins_moved
    assert_never_migrated(run, query, epoch, tmp_path)


@pytest.mark.parametrize(
    ("epoch_ms", "slack_ms", "cores", "store_ms", "in_all", "stores", "expected"),
    [
        (200, 0, 2, 100, 4, 1, 2),
        (400, 0, 2, 100, 4, 1, 4),
        (200, 0, 2, 50, 4, 1, 4),
        (1_000, 0, 2, 100, 100, 1, 25),
        (1_000, 0, 2, 100, 100, 5, 25),
        (0, 0, 1, 100, 1, 1, 1),
        (2_000, 58_000, 4, 100, 100, 2, 100),
        (2_000, 58_000, 4, 60_000, 100, 2, 25),
        (0, 0, 2, 0, 4, 1, 1),
    ],
)
def test_as_many_partitions_are_opened_at_once_as_an_epoch_bears(
    spark, epoch_ms, slack_ms, cores, store_ms, in_all, stores, expected
):
    pace = spark._jvm.org.apache.spark.sql.binshift.migration.OpeningPace(epoch_ms, slack_ms, cores, store_ms)
    assert pace.partitionsAtOnce(in_all, stores) == expected


@pytest.mark.long
def test_bins_are_copied_also_while_tasks_take_all_cores(counting, tmp_path, spark):
    query, run = counting
    blocks = spark._jvm.org.apache.spark.sql.execution.streaming.state.binshift.TestBlocks
    assert until(blocks.hasFreeCore)
    migration = submit_shift(run)
    busy = tmp_path / "busy"
    busy.mkdir()

    def task(number):
        # This function runs in a process without the tests' modules.
        file, deadline = busy / str(number), time.monotonic() + 60
        file.touch()
        while file.exists() and time.monotonic() < deadline:
            time.sleep(0.05)

    with Fault("export.start", "block"):
        run.run(2, 3)
        tasks = InheritableThread(target=lambda: spark.sparkContext.parallelize(range(2), 2).foreach(task))
        tasks.start()
        assert until(lambda: len(list(busy.iterdir())) == 2)
        assert not blocks.hasFreeCore()
    assert until(lambda: blocks.stagedBytes() > 0)
    for file in busy.iterdir():
        file.unlink()
    tasks.join()
    epoch = finish(run, migration, 4)
    assert migration.wait(0).bins_prepared == 64
    assert_never_migrated(run, query, epoch, tmp_path)


@pytest.mark.long
def test_copies_for_which_there_is_no_room_are_not_made(stream, tmp_path, spark):
    query = QUERIES["count"]
    blocks = spark._jvm.org.apache.spark.sql.execution.streaming.state.binshift.TestBlocks
    # A partition gets all bins of a step from one other partition, as one file.
    conf = {SHIP + "maxStagedBytes": "200", "spark.sql.shuffle.partitions": "1"}
    run = stream(query.build, mode=query.mode, conf=conf).start()
    run.run(0, 1)
    migration = run.attach().rescale(2, strategy=AllAtOnce())
    epoch = finish(run, migration, 2)
    report = migration.wait(0)
    assert report.bins_prepared == 0
    assert report.bins_from_checkpoint == report.bins_moved == 32
    assert until(lambda: blocks.stagedBytes() == 0)
    run.run(epoch)
    assert_never_migrated(run, query, epoch + 1, tmp_path)


def test_nothing_that_was_staged_is_left_behind(tumbling, spark):
    _, run = tumbling
    epoch, _ = shift(run, 2, Batched(16))
    run.run(epoch)
    assert not (run.checkpoint / "binshift/shipping.json").exists()
    blocks = spark._jvm.org.apache.spark.sql.execution.streaming.state.binshift.TestBlocks
    assert until(lambda: blocks.shipments() == 0)
    assert until(lambda: blocks.stagedBytes() == 0)


@pytest.mark.long
def test_a_restart_while_bins_are_copied_copies_them_again(tumbling, tmp_path):
    query, run = tumbling
    with Fault("stage.file", "block"):
        migration = run.attach().rescale(4, strategy=AllAtOnce())
        run.run(2, 3, 4)
        assert not migration.status.is_over
        run.stop()
    run.start()
    migration = run.attach().migration()
    epoch = finish(run, migration, 5)
    assert migration.wait(0).bins_prepared == 32
    run.run(epoch)
    assert_never_migrated(run, query, epoch + 1, tmp_path)


@pytest.mark.long
def test_a_migration_that_is_cancelled_while_bins_are_copied_moves_none(tumbling, tmp_path):
    query, run = tumbling
    controller = run.attach()
    before = controller.routing().assignment
    with Fault("stage.file", "block"):
        migration = controller.submit(controller.plan(shifted(controller), strategy=AllAtOnce()))
        run.run(2, 3)
        migration.cancel()
        run.run(4)
    assert migration.status.state is MigrationState.CANCELLED
    run.run(5)
    assert controller.routing().assignment == before
    assert not (run.checkpoint / "binshift/shipping.json").exists()
    # Earlier orders don't disturb the next migration.
    epoch, report = shift(run, 6)
    assert report.bins_prepared == 64
    assert_never_migrated(run, query, epoch, tmp_path)


@pytest.mark.long
def test_copies_come_while_a_checkpoint_is_read_for_a_migration_that_was_cancelled(tumbling, tmp_path):
    query, run = tumbling
    with Fault("checkpoint.read", "count") as reads, Fault("checkpoint.read", "block"):
        with Fault("export.chunk", "damage", always=True):
            migration = submit_shift(run)
            run.run(2, 3)
            # Each of the two partitions reads once.
            assert until(lambda: reads.count == 2)
        migration.cancel()
        run.run(4)
        epoch, report = shift(run, 5)
        assert (report.bins_prepared, report.bins_recopied) == (64, 0), report
    assert_never_migrated(run, query, epoch, tmp_path)


@pytest.mark.long
def test_a_checkpoint_is_read_no_further_for_a_migration_that_was_cancelled(tumbling, tmp_path, spark):
    query, run = tumbling
    threads = spark._jvm.org.apache.spark.sql.execution.streaming.state.binshift.TestThreads
    with Fault("export.chunk", "damage", always=True), Fault("stage.file", "count") as files:
        with Fault("stage.file", "block"):
            # A file for each of several steps.
            migration = submit_shift(run, Batched(16))
            run.run(2, 3)
            assert until(lambda: files.count == 2)
            migration.cancel()
            run.run(4)
        assert until(lambda: not threads.isIn("foreachStoredRow"))
        assert files.count == 2
    run.run(5)
    assert_never_migrated(run, query, 6, tmp_path)


@pytest.mark.long
def test_bins_that_move_on_before_any_snapshot_are_recovered_along_the_chain(stream, tmp_path):
    query = QUERIES["tumbling-append"]
    conf = {MIN_DELTAS: "1000"}
    run = stream(query.build, mode=query.mode, conf=conf).start()
    run.run(0, 1)
    epoch = finish(run, run.attach().rescale(3, strategy=AllAtOnce()), 2)
    for _ in range(3):
        epoch, report = shift(run, epoch)
        assert report.bins_prepared == 64
    run.stop()
    # The only snapshot left is the first one of the partition that was opened empty.
    for partition in (run.checkpoint / "state/0").glob("[0-9]*"):
        snapshots = sorted(partition.glob("*.zip"), key=lambda f: int(f.stem))
        for snapshot in snapshots[1:] if partition.name == "2" else snapshots:
            snapshot.unlink()
    run.start()
    run.run(epoch)
    assert_never_migrated(run, query, epoch + 1, tmp_path)


@pytest.mark.long
def test_a_recovery_reads_along_the_way_of_its_bins_alone(stream, tmp_path, spark):
    """Both partitions give and get bins at each of four steps; only the logged changes are read."""
    query = QUERIES["count"]
    run = stream(query.build, mode=query.mode, conf={MIN_DELTAS: "1000"}).start()
    run.run(0, 1)
    controller = run.attach()
    epoch = 2
    for step in range(4):
        owners = controller.routing().assignment
        swapped = [1 - owner if bin % 5 == step else owner for bin, owner in enumerate(owners)]
        migration = controller.submit(controller.plan(swapped, strategy=AllAtOnce()), prepare=False)
        epoch = finish(run, migration, epoch)
    run.stop()
    end_maintenance(spark)
    for snapshot in (run.checkpoint / "state/0").glob("[0-9]*/*.zip"):
        snapshot.unlink()
    run.start()
    with Fault("checkpoint.read", "count") as reads:
        run.run(epoch)
        assert reads.count == 0
    assert_never_migrated(run, query, epoch + 1, tmp_path)


@pytest.mark.long
def test_versions_that_others_read_are_kept_until_its_adopters_have_snapshots(stream, tmp_path, spark):
    query = QUERIES["tumbling-append"]
    conf = {
        MIN_DELTAS: "3",
        "spark.sql.streaming.minBatchesToRetain": "2",
        STORE + "maintenanceInterval": "100ms",
        STORE + "maintenanceProcessingTimeout": "30s",
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


@pytest.mark.long
def test_the_state_of_partitions_that_are_gone_is_deleted_and_they_may_come_back(stream, tmp_path):
    query = QUERIES["count"]
    conf = {
        MIN_DELTAS: "2",
        "spark.sql.streaming.minBatchesToRetain": "2",
    }
    run = stream(query.build, mode=query.mode, conf=conf).start()
    run.run(0, 1)
    epoch = finish(run, run.attach().rescale(4, strategy=AllAtOnce()), 2)
    epoch = finish(run, run.attach().rescale(2, strategy=AllAtOnce()), epoch)
    state = run.checkpoint / "state/0"
    assert {p.name for p in state.glob("[0-9]*")} == {"0", "1", "2", "3"}
    epoch = feed_until(run, epoch, lambda: {p.name for p in state.glob("[0-9]*")} == {"0", "1"})
    epoch = finish(run, run.attach().rescale(4, strategy=AllAtOnce()), epoch)
    run.stop()
    run.start()
    run.run(epoch)
    assert_never_migrated(run, query, epoch + 1, tmp_path)
