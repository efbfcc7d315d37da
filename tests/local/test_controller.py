"""The control API on a running query, and all of its refusals."""

import asyncio
import queue
import re
import threading

import pytest
from pyspark.errors import StreamingQueryException

import binshift
from binshift import (
    AllAtOnce,
    Batched,
    Bounded,
    ConfigurationError,
    Fluid,
    Migration,
    MigrationError,
    MigrationState,
    MigrationTimeout,
    OnDemand,
    Optimized,
    PlanError,
    RoutingTable,
    UnsupportedOperatorError,
)
from binshift.cli.following import Follower
from binshift.control.directory import open_directory
from binshift.planning.options import MigrationOptions
from binshift.session import PROVIDER
from harness import STOCK, assert_same_results, until
from local.migrations import finish
from local.processors import remembering_by_time, summing_by_float_in_pandas
from local.queries import QUERIES, count_by_key, in_jvm
from local.settings import STORE


@pytest.fixture
def run(stream):
    started = stream(count_by_key).start()
    started.run(0)
    return started


def test_the_first_table_is_that_of_sparks_own_partitioning(run):
    table = run.attach().routing()
    assert (table.bins, table.partitions, table.epoch) == (64, 2, 0)
    assert table.assignment == tuple(b % 2 for b in range(64))


def test_bins_are_rounded_up_to_a_multiple_of_the_first_partitions(stream, spark):
    run = stream(count_by_key, conf={"spark.sql.shuffle.partitions": "5"}).start()
    run.run(0)
    assert run.attach().routing().bins == 65


def test_a_query_is_found_by_its_name_and_its_id(run, stream):
    by_id = binshift.attach(str(run.query.id), spark=run.spark)
    assert by_id.query.runId == run.query.runId
    with pytest.raises(ConfigurationError, match="'nobody'"):
        binshift.attach("nobody", spark=run.spark)


def test_a_migration_that_has_no_data_waits_for_the_next_epoch_and_says_so(run):
    migration = run.attach().rescale(4, strategy=AllAtOnce(), prepare=False)
    assert until(lambda: migration.status.state is MigrationState.WAITING)
    assert "no data" in str(migration.status)
    with pytest.raises(MigrationTimeout, match="no data"):
        migration.wait(timeout=0.3)
    run.run(1)
    assert migration.status.next_epoch == 2
    run.run(2)
    report = migration.wait(timeout=60)
    assert (report.first_epoch, report.last_epoch, report.steps, report.bins_moved) == (2, 2, 1, 32)
    assert report.rows_adopted > 0
    assert report.bytes_adopted > 0
    assert migration.status.is_over


def test_a_migration_is_awaited_and_calls_back(run):
    controller = run.attach()
    migration = controller.rescale(4, strategy=AllAtOnce(), prepare=False)
    ended = queue.SimpleQueue()
    migration.add_done_callback(ended.put)
    migration.add_done_callback(lambda m: m.nonsense)

    async def wait():
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(migration, timeout=0.2)
        report, _ = await asyncio.gather(migration, asyncio.to_thread(run.run, 1, 2))
        return report

    assert asyncio.run(wait()) == migration.wait(0)
    assert ended.get(timeout=60) is migration
    migration.add_done_callback(ended.put)
    assert ended.get_nowait() is migration
    assert (repr(controller), repr(migration)) == (
        f"<Controller of query without a name ({run.query.id})>",
        f"<Migration {migration.id}: 2 -> 4 partitions, all-at-once, 32 bins in 1 steps>",
    )

    async def wait_in_vain():
        await controller.rescale(3, prepare=False)

    feeding = threading.Timer(0.5, run.stop)
    feeding.start()
    with pytest.raises(MigrationError, match="has ended"):
        asyncio.run(wait_in_vain())
    feeding.join()


def test_a_bounded_migration_reports_its_steps_as_spark_does_its_epochs(run, capsys):
    controller = run.attach()
    log = binshift.EpochLog(run.query)
    run.spark.streams.addListener(log)
    size = [1000] * 64
    plan = controller.plan(4, strategy=Bounded(Optimized(8), max_bytes_per_step=10_000, bin_bytes=size))
    assert [len(s.moves) for s in plan.steps] == [10, 6, 10, 6]
    migration = controller.submit(plan, prepare=False)
    assert migration.id in migration._repr_html_()
    after = finish(run, migration, 1)
    report = migration.wait(timeout=60, progress=True)
    assert capsys.readouterr().err == ""
    assert [(t.step, t.bins) for t in report.timings] == [(1, 10), (2, 6), (3, 10), (4, 6)]
    adopted = {t.epoch: t.bins for t in report.timings}
    assert list(adopted) == sorted(adopted)
    assert [t.duration_s for t in report.timings] == [
        run.progress(t.epoch).durationMs["triggerExecution"] / 1000 for t in report.timings
    ]
    assert sum(t.bytes for t in report.timings) == report.bytes_adopted > 0
    table = binshift.epoch_table(binshift.epochs(run.query))
    assert table.column("epoch").to_pylist() == [*range(after)]
    assert table.column("partitions").to_pylist() == [2 if e < min(adopted) else 4 for e in range(after)]
    assert table.column("bins_adopted").to_pylist() == [adopted.get(e, 0) for e in range(after)]
    # A listener of Spark gets the same a moment later, perhaps after the epoch before it was added, too.
    assert until(lambda: after - 1 in log.table().column("epoch").to_pylist())
    run.spark.streams.removeListener(log)
    heard = log.table()
    assert heard.num_rows >= after - 1
    assert heard == table.slice(after - heard.num_rows)
    assert sum(len(axes.lines) for axes in controller.plot("bins").axes) >= 7


def test_a_rebalance_of_a_balanced_query_moves_nothing(run):
    controller = run.attach()
    assert controller.skew("bins").ratio == 1
    assert controller.target(by="bins").moves == 0
    assert controller.rebalance(by="bins", prepare=False).wait(timeout=60).steps == 0
    with pytest.raises(PlanError, match="by 'heat'"):
        controller.rebalance(by="heat")


def test_a_start_epoch_and_a_gap_are_kept(run):
    controller = run.attach()
    plan = controller.plan(4, strategy=Batched(16, gap=1))
    migration = controller.submit(plan, start_epoch=3, prepare=False)
    run.run(1, 2, 3, 4, 5)
    migration.wait(timeout=60)
    assert controller.history().column("epoch").to_pylist() == [3, 5]


def test_history_has_a_row_for_each_step(run):
    controller = run.attach()
    migration = controller.rescale(3, strategy=Batched(8), prepare=False)
    finish(run, migration, 1)
    history = controller.history().to_pylist()
    assert [r["step"] for r in history] == list(range(1, len(migration.plan.steps) + 1))
    assert [r["bins_moved"] for r in history] == [len(s.moves) for s in migration.plan.steps]
    assert {r["migration_id"] for r in history} == {migration.id}
    assert history[-1]["partitions"] == 3


def test_a_plan_to_the_table_in_force_is_over_at_once(run):
    controller = run.attach()
    migration = controller.submit(controller.plan(2), prepare=False)
    assert migration.wait(timeout=60).steps == 0
    assert migration.status.state is MigrationState.FINISHED
    assert controller.migration() is None


def test_a_plan_made_for_another_table_is_refused(run):
    controller = run.attach()
    stale = controller.plan(4)
    migration = controller.rescale(3, strategy=AllAtOnce(), prepare=False)
    run.run(1, 2)
    migration.wait(timeout=60)
    with pytest.raises(PlanError, match="not the one in force since epoch 2") as refused:
        controller.submit(stale, prepare=False)
    assert (refused.value.condition, refused.value.parameters) == ("PLAN_OUTDATED", {"epoch": 2})
    foreign = RoutingTable(2, tuple(b % 2 for b in range(128)))
    with pytest.raises(PlanError, match="128 bins"):
        controller.submit(Fluid().plan(foreign, foreign.balanced(4)), prepare=False)
    assert controller.routing().partitions == 3


def test_a_plan_while_another_one_runs_is_refused(run):
    controller = run.attach()
    first = controller.rescale(4, strategy=Fluid(), prepare=False)
    with pytest.raises(MigrationError, match=first.id) as refused:
        controller.rescale(3, prepare=False)
    assert (refused.value.condition, refused.value.migration_id) == ("MIGRATION_UNDER_WAY", first.id)
    assert controller.migration().id == first.id


def cancelled_when_a_step_is_scheduled(run, controller, strategy):
    """A cancelled migration to four partitions; its first step still takes effect with the next epoch."""
    migration = controller.rescale(4, strategy=strategy, prepare=False)
    run.run(1)
    assert migration.status.next_epoch == 2
    migration.cancel()
    return migration


def test_a_plan_while_a_cancelled_one_waits_for_its_last_epoch_hears_so(run):
    controller = run.attach()
    first = cancelled_when_a_step_is_scheduled(run, controller, Fluid())
    with pytest.raises(
        MigrationError, match=f"{first.id} is cancelled.* next epoch; feed the query"
    ) as refused:
        controller.rescale(3, prepare=False)
    assert refused.value.condition == "MIGRATION_UNDER_WAY"
    run.run(2)
    report = first.wait(60)
    assert (report.cancelled, report.steps, report.bins_moved) == (True, 1, 1)
    assert controller.rescale(3, prepare=False).plan.target.partitions == 3


def test_a_migration_that_is_cancelled_after_its_last_step_was_scheduled_has_finished(run):
    migration = cancelled_when_a_step_is_scheduled(run, run.attach(), AllAtOnce())
    follower = Follower(open_directory(str(run.checkpoint)), migration.plan, MigrationOptions())
    assert not follower.status(migration.id).is_over
    run.run(2)
    report = migration.wait(60)
    assert (report.cancelled, report.steps) == (False, 1)
    assert {migration.status.state, follower.status(migration.id).state} == {MigrationState.FINISHED}


def test_a_migration_is_known_as_long_as_the_routing_log_has_a_step_of_it(run):
    controller = run.attach()
    nothing = controller.rescale(2)
    whole = controller.rescale(4, strategy=AllAtOnce(), prepare=False)
    run.run(1, 2)
    cut = controller.rescale(2, strategy=Fluid(), prepare=False)
    run.run(3)
    cut.cancel()
    run.run(4)
    assert cut.wait(60).cancelled
    # A run doesn't remember the ends of so many migrations.
    for _ in range(64):
        controller.rescale(controller.routing())
    report = whole.wait(60)
    assert (report.cancelled, report.steps, report.first_epoch) == (False, 1, 2)
    assert (cut.wait(60).cancelled, cut.status.steps_done) == (True, 1)
    with pytest.raises(MigrationError, match=f"knows no migration {nothing.id}") as refused:
        nothing.wait(60)
    assert (refused.value.condition, refused.value.migration_id) == ("NO_MIGRATION", nothing.id)
    late = controller.rescale(3, strategy=AllAtOnce(), prepare=False)
    assert until(lambda: late.status.state is MigrationState.WAITING)
    run.stop()
    controller = run.start().attach()
    states = [Migration(controller, m.id, m.plan).status.state for m in (late, whole, cut)]
    assert states == [MigrationState.WAITING, MigrationState.FINISHED, MigrationState.CANCELLED]


@pytest.mark.parametrize("n", [0, -2, 65, 2.5, "3", None])
def test_an_impossible_number_of_partitions_is_refused_and_the_query_runs_on(run, n):
    with pytest.raises(PlanError):
        run.attach().rescale(n, prepare=False)
    run.run(1)
    assert run.query.isActive


@pytest.mark.parametrize("epoch", [0, -1, 1.5, True])
def test_a_start_epoch_that_has_passed_or_is_none_is_refused(run, epoch):
    controller = run.attach()
    with pytest.raises(PlanError, match=r"start.epoch"):
        controller.submit(controller.plan(4), start_epoch=epoch, prepare=False)
    assert controller.migration() is None


def test_an_assignment_of_the_wrong_length_is_refused(run):
    with pytest.raises(PlanError, match="3 bins"):
        run.attach().plan([0, 1, 1])


def test_a_query_that_has_planned_nothing_yet_has_no_table(stream):
    run = stream(count_by_key).start()
    controller = run.attach()
    with pytest.raises(MigrationError, match="first epoch"):
        controller.routing()


def test_a_finished_query_is_refused(run):
    run.stop()
    with pytest.raises(MigrationError, match="has ended"):
        run.attach()


def test_a_query_on_another_provider_is_refused_and_runs_on(stream):
    run = stream(count_by_key, provider=STOCK).start()
    run.run(0)
    with pytest.raises(ConfigurationError, match="RocksDBStateStoreProvider"):
        run.attach()
    run.run(1)
    assert run.query.isActive


def test_a_checkpoint_of_another_provider_is_refused_by_name(stream):
    hdfs = "org.apache.spark.sql.execution.streaming.state.HDFSBackedStateStoreProvider"
    run = stream(count_by_key, provider=hdfs).start()
    run.run(0)
    run.stop()
    run.spark.conf.set("spark.sql.streaming.stateStore.providerClass", "binshift.StateStoreProvider")
    run.start()
    run.run(1)
    with pytest.raises(ConfigurationError, match=r"HDFSBacked.* binshift convert CHECKPOINT --to binshift"):
        run.attach()
    assert run.query.isActive


@pytest.mark.parametrize(
    ("name", "value"),
    [("requests.enabled", "off"), ("ship.maxEpochsToWait", "-1"), ("routing.minEntriesToRetain", "many")],
)
def test_a_setting_that_the_driver_cannot_read_is_refused(stream, name, value):
    run = stream(count_by_key, conf={STORE + "binshift." + name: value}).start()
    reason = f"binshift.{name} is '{value}'; it must be"
    with pytest.raises(ConfigurationError, match=reason):
        run.attach()
    with pytest.raises(StreamingQueryException, match=reason):
        run.run(0)


@pytest.mark.long
@pytest.mark.parametrize(
    ("build", "variable"),
    [
        # The exchange hashes the key as an int, and the operator keeps it as a long.
        (in_jvm("keyOfAnotherType"), "n"),
        # Python turns a timestamp into another instant if its time zone is not the session's.
        (remembering_by_time, "total"),
        # The exchange hashes null, and the operator keeps NaN.
        (summing_by_float_in_pandas, "total"),
    ],
    ids=["typed key", "timestamp in Python", "null of a float in pandas"],
)
def test_an_operator_that_cannot_migrate_runs_and_a_rescale_names_it(stream, build, variable):
    run, oracle = (stream(build, provider, provider=provider) for provider in (PROVIDER, STOCK))
    for query in (run, oracle):
        query.spark.conf.set("spark.sql.session.timeZone", "America/New_York")
        query.start()
        query.run(0, 1, 2)
    with pytest.raises(UnsupportedOperatorError, match="transformWithState"):
        run.attach().rescale(4, prepare=False)
    # Whole partitions of the query can still move.
    controller = run.attach()
    moved = controller._submit(controller.plan(controller.routing()), MigrationOptions(places={0: "driver"}))
    for query in (run, oracle):
        query.run(3)
    assert moved.wait(60).steps == 0
    assert_same_results(run, oracle, [{"stateVarName": variable}])


@pytest.mark.parametrize(
    ("name", "strategy", "why"),
    [
        ("count", "on-demand", None),
        pytest.param("tumbling-update", "on-demand", None, marks=pytest.mark.matrix),
        ("tumbling-append", "all-at-once", r"operator 0 \(stateStoreSave\) looks through its state"),
        pytest.param(
            "tws-jvm", "all-at-once", r"operator 0 \(transformWithStateExec\) looks", marks=pytest.mark.matrix
        ),
    ],
)
def test_without_copies_the_default_is_what_takes_effect_soonest(stream, caplog, name, strategy, why):
    query = QUERIES[name]
    run = stream(query.build, mode=query.mode).start()
    run.run(0)
    controller = run.attach()
    assert controller.plan(4).strategy == "batched(16)"
    plan = controller.plan(4, prepare=False)
    assert plan.strategy == strategy
    assert plan.on_demand is (strategy == "on-demand")
    on_demand = controller.plan(4, strategy=OnDemand())
    assert bool(on_demand.whole_bins) is bool(why)
    if why:
        assert re.search(rf"waits for whole bins: {why}", str(on_demand))
        assert "whole bins" not in str(plan)
    migration = controller.rescale(4, prepare=False)
    finish(run, migration, 1)
    report = migration.wait(60)
    assert report.steps == 1
    assert report.bytes_adopted
    run.stop()
    # A run does not know its operators until an epoch is planned.
    assert run.start().attach().plan(6, prepare=False).strategy == "all-at-once"


def test_another_version_of_spark_is_refused_in_the_jvm_too(spark):
    from binshift.jvm import call

    gateway = spark._jvm.org.apache.spark.sql.binshift.Gateway
    with pytest.raises(binshift.UnsupportedVersionError, match=r"not with 4\.4\.0"):
        call(gateway.requireSupportedVersion, "4.4.0")


def test_a_jar_of_another_version_is_refused(run, monkeypatch):
    monkeypatch.setattr("binshift.driver.version", "9.9.9")
    with pytest.raises(ConfigurationError, match=r"jar 0\..* Python package is 9\.9\.9"):
        run.attach()
