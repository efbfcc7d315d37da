"""A query that is stopped before, at and after a switch carries on with exact results."""

import json

import pytest

import binshift
from binshift import AllAtOnce, Batched, MigrationError, MigrationState
from harness import STOCK, assert_same_results, entries, plans, rows
from local.migrations import feed_until
from local.queries import QUERIES, count_by_key
from local.sinks import fail_once_at


def batch_result(run):
    return {(r.k, r.n, r.total) for r in count_by_key(run.batch()).collect()}


def state_of(run):
    return {(*key, *value) for key, value in run.state()}


@pytest.mark.long
@pytest.mark.parametrize(
    "epochs_before_stop", [pytest.param(n, marks=[pytest.mark.matrix] * (n != 2)) for n in range(4)]
)
def test_a_migration_carries_on_after_a_stop_at_any_of_its_epochs(stream, epochs_before_stop):
    build, mode = QUERIES["tumbling-update"].build, QUERIES["tumbling-update"].mode
    run, oracle = stream(build, mode=mode), stream(build, "oracle", mode=mode, provider=STOCK)
    run.start()
    run.run(0, 1)
    migration = run.attach().rescale(5, strategy=Batched(20), prepare=False)
    epochs = list(range(2, 2 + epochs_before_stop))
    run.run(*epochs)
    run.stop()
    assert migration.status.state in (MigrationState.STOPPED, MigrationState.FINISHED)
    run.start()
    run.run(*range(2 + epochs_before_stop, 10))
    again = run.attach()
    assert again.migration() is None
    assert again.routing().partitions == 5
    assert again.history().column("migration_id").unique().to_pylist() == [migration.id]
    oracle.start()
    oracle.run(*range(10))
    assert_same_results(run, oracle)


def test_waiting_on_a_stopped_query_says_that_the_migration_carries_on(stream):
    run = stream(count_by_key).start()
    run.run(0)
    migration = run.attach().rescale(4, prepare=False)
    run.stop()
    assert "carries on when it is started again" in migration.status.message
    with pytest.raises(MigrationError, match="has ended"):
        migration.wait(timeout=60)


def test_an_entry_whose_epoch_was_logged_with_another_n_is_void_and_its_step_taken_later(stream):
    run = stream(count_by_key).start()
    run.run(0)
    run.attach().rescale(4, strategy=AllAtOnce(), prepare=False)
    run.run(1)
    run.stop()
    # Epoch 1 is committed and made the entry for epoch 2 durable; the next run logs epoch 2 with the
    # number of partitions that epoch 1 was logged with.
    assert 2 in entries(run.checkpoint)
    run.start()
    run.run(2)
    assert run.progress(2).stateOperators[0].numShufflePartitions == 2
    run.run(3)
    assert run.progress(3).stateOperators[0].numShufflePartitions == 4
    assert run.attach().history().column("epoch").to_pylist() == [3]
    assert state_of(run) == batch_result(run)


def test_an_entry_whose_epoch_is_logged_with_its_n_is_taken_over(stream):
    run = stream(count_by_key).start()
    run.run(0)
    controller = run.attach()
    turned = [1 - owner for owner in controller.routing().assignment]
    controller.submit(controller.plan(turned, strategy=AllAtOnce()), prepare=False)
    run.run(1)
    run.stop()
    run.start()
    run.run(2, 3)
    assert run.attach().history().column("epoch").to_pylist() == [2]
    assert run.attach().routing().assignment == tuple(turned)
    assert state_of(run) == batch_result(run)


@pytest.mark.few
def test_an_uncommitted_switch_epoch_is_run_again_with_the_same_routing(stream):
    run = stream(count_by_key).start()
    run.run(0)
    run.attach().rescale(4, strategy=AllAtOnce(), prepare=False)
    run.run(1, 2)
    run.stop()
    before = run.outputs[2]
    run.forget(2)
    run.start()
    run.run(3)
    assert run.progress(2).stateOperators[0].customMetrics["binshiftBinsAdopted"] > 0
    assert run.outputs[2] == before
    assert state_of(run) == batch_result(run)


def test_a_query_that_fails_at_the_switch_epoch_goes_on_after_a_restart(stream):
    run = stream(count_by_key)
    mend = fail_once_at(run, 2)
    run.start()
    run.run(0)
    run.attach().rescale(4, strategy=AllAtOnce(), prepare=False)
    run.run(1)
    run.feed(rows(2))
    with pytest.raises(Exception, match="fails on purpose"):
        run.query.processAllAvailable()
    with pytest.raises(MigrationError, match="has ended with an error"):
        run.attach()
    failed = run.outputs[2]
    mend()
    run.start()
    run.run(3)
    assert run.outputs[2] == failed
    assert run.attach().routing().partitions == 4
    assert state_of(run) == batch_result(run)


def test_a_migration_that_is_over_is_so_after_its_query_has_ended_too(stream):
    run = stream(count_by_key).start()
    run.run(0)
    migration = run.attach().rescale(4, strategy=AllAtOnce(), prepare=False)
    run.run(1, 2)
    run.stop()
    assert migration.wait(timeout=60).steps == 1
    assert migration.status.state is MigrationState.FINISHED


def test_an_ended_run_can_no_longer_cancel_what_its_successor_carries_on(stream):
    run = stream(count_by_key).start()
    run.run(0)
    stale = run.attach().rescale(4, strategy=Batched(8), prepare=False)
    run.run(1)
    run.stop()
    run.start()
    run.run(2)
    with pytest.raises(MigrationError, match="has ended"):
        stale.cancel()
    feed_until(run, 3, lambda: plans(run.checkpoint) == [])
    assert run.attach().routing().partitions == 4
    assert run.attach().migration() is None


def test_a_cancelled_migration_stays_cancelled_after_a_restart(stream):
    run = stream(count_by_key).start()
    run.run(0)
    migration = run.attach().rescale(4, strategy=Batched(4), prepare=False)
    run.run(1, 2)
    migration.cancel()
    run.run(3)
    report = migration.wait(timeout=60)
    assert report.cancelled
    # The step in flight at the cancellation was finished, and no other began.
    assert (report.steps, report.bins_moved) == (2, 8)
    table = run.attach().routing()
    run.stop()
    run.start()
    run.run(4, 5)
    assert run.attach().migration() is None
    assert run.attach().routing() == table
    assert state_of(run) == batch_result(run)


def test_a_restart_in_a_session_with_another_number_of_bins_is_refused(stream):
    run = stream(count_by_key).start()
    run.run(0)
    run.stop()
    run.spark.conf.set("spark.sql.streaming.stateStore.binshift.bins", "128")
    run.start()
    run.feed([{"k": "a", "v": 1, "t": "2026-01-01 00:00:00"}])
    with pytest.raises(Exception, match=r"64 bins .* cannot go on with 128"):
        run.query.processAllAvailable()
    with pytest.raises(binshift.ConfigurationError, match=r"64 bins .* cannot go on with 128"):
        run.attach()


def test_the_plan_in_the_checkpoint_is_the_one_that_was_submitted(stream):
    run = stream(count_by_key).start()
    run.run(0)
    controller = run.attach()
    plan = controller.plan(3, strategy=Batched(8, gap=1))
    migration = controller.submit(plan, prepare=False)
    (file,) = plans(run.checkpoint)
    stored = json.loads(file.read_text())
    assert stored["id"] == migration.id
    assert binshift.MigrationPlan.from_json(json.dumps(stored["plan"])) == plan
    assert controller.migration() is not None
    assert controller.migration().plan == plan


def test_files_are_replaced_where_spark_s_file_manager_leaves_them(stream):
    manager = "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
    run = stream(count_by_key, conf={"spark.sql.streaming.checkpointFileManagerClass": manager}).start()
    run.run(0, 1)
    migration = run.attach().rescale(3, strategy=Batched(8), prepare=False)
    run.run(2)
    migration.cancel()
    run.run(3)
    assert json.loads((run.checkpoint / "binshift/layout.json").read_text())["bins"] == 64
    assert [m.numPartitions for m in run.metadata()] == [run.attach().routing().partitions] == [3]
    run.stop()
    run.start()
    run.run(4)
    assert run.attach().migration() is None
    assert len(run.state()) == run.query.lastProgress.stateOperators[0].numRowsTotal
