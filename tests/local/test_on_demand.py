"""Bins that change their owner at once, and travel as a whole when they are touched."""

import time
from dataclasses import replace

import pytest

from binshift import OnDemand
from harness import STOCK, Fault, StreamRun, assert_same_results
from local.migrations import NEVER, SHIP, assert_never_migrated, finish, shift, submit_shift, totals
from local.queries import QUERIES

pytestmark = pytest.mark.usefixtures("nothing_left", "no_rows")


@pytest.fixture
def no_rows():
    """Rows cannot be asked for, so that whole bins are."""
    with Fault("rows.request", "throw", always=True):
        yield


@pytest.mark.long
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
    growth = run.attach().rescale(4, strategy=OnDemand())
    epoch = finish(run, growth, 2)
    assert growth.wait(0).bins_from_checkpoint == 0
    epoch, report = shift(run, epoch, OnDemand())
    assert report.bins_shipped > 0
    assert report.bins_from_checkpoint == report.bins_prepared == 0
    epoch = finish(run, run.attach().rescale(3, strategy=OnDemand()), epoch)
    run.stop()
    run.start()
    run.run(epoch)
    assert_never_migrated(run, query, epoch + 1, tmp_path)


def test_an_epoch_on_demand_takes_only_the_bins_that_it_touches(stream, tmp_path):
    query = QUERIES["count"]
    run = stream(query.build, mode=query.mode).start()
    run.run(0, 1)
    migration = submit_shift(run, OnDemand())
    run.run(2)
    with Fault("fetch.chunk", "block"):
        run.feed([])
        run.query.processAllAvailable()
        at_switch = run.progress(3).stateOperators[0].customMetrics
        assert at_switch["binshiftBinsShipped"] == at_switch["binshiftBinsFromCheckpoint"] == 0
        assert at_switch["binshiftBinsAwaited"] == 64
        assert not migration.status.is_over
    epoch = finish(run, migration, 3)
    # The epoch without rows is one of the oracle's, too.
    assert run.outputs.pop(3) == []
    run.outputs = {e - (e > 3): rows for e, rows in run.outputs.items()}
    assert_never_migrated(run, query, epoch, tmp_path)


@pytest.mark.long
def test_a_task_that_cannot_ask_for_its_bins_reads_the_checkpoint_in_time(stream, tmp_path):
    """As if a machine did not answer: Spark connects on the thread that sends."""
    query = QUERIES["count"]
    # At this pace, nothing comes that is not asked for.
    conf = {SHIP + "timeout": "2s", SHIP + "maxBytesPerSecond": "1"}
    run = stream(query.build, mode=query.mode, conf=conf).start()
    run.run(0, 1)
    migration = submit_shift(run, OnDemand())
    with Fault("push.0", "block"), Fault("push.1", "block"):
        run.run(2, 3)
        assert run.progress(3).stateOperators[0].customMetrics["binshiftBinsFromCheckpoint"] > 0
    epoch = finish(run, migration, 4)
    assert_never_migrated(run, query, epoch, tmp_path)


def test_a_bin_that_is_asked_for_comes_before_the_others(stream, tmp_path):
    query = QUERIES["count"]
    # At this pace, nothing comes that is not asked for.
    run = stream(query.build, mode=query.mode, conf={SHIP + "maxBytesPerSecond": "1"}).start()
    run.run(0, 1)
    submit_shift(run, OnDemand())
    started = time.monotonic()
    run.run(2)
    run.run(3, n=2)
    metrics = run.progress(3).stateOperators[0].customMetrics
    # The two that were touched, and one from each partition before the pace told: one in 5 s at least.
    unasked = 2 * (1 + int((time.monotonic() - started) / 5))
    assert 1 <= metrics["binshiftBinsShipped"] <= 2 + unasked
    assert metrics["binshiftBinsFromCheckpoint"] == 0
    assert metrics["binshiftBinsAwaited"] > 50
    told = totals(run, 2, 3)
    run.stop()
    run.start()
    run.run(4)
    oracle = StreamRun(run.spark, tmp_path / "oracle", query.build, mode=query.mode, provider=STOCK).start()
    oracle.run(0, 1, 2)
    oracle.run(3, n=2)
    oracle.run(4)
    oracle.stop()
    assert_same_results(run, oracle, query.state)
    assert told == totals(oracle, 2, 3)


def test_the_rows_of_a_single_bin_that_leaves_on_demand_are_counted_where_they_are(stream, tmp_path):
    query = QUERIES["count"]
    run = stream(query.build, mode=query.mode).start()
    run.run(0, 1)
    controller = run.attach()
    owners = list(controller.routing().assignment)
    held = controller.stats().to_pylist()
    owners[next(r["bin"] for r in held if r["bin"] > 0 and r["keys"] > 0 and r["partition"] == 0)] = 1
    # The name of the strategy makes no difference.
    plan = replace(controller.plan(owners, strategy=OnDemand()), strategy="my own")
    migration = controller.submit(plan)
    epoch = finish(run, migration, 2)
    assert (migration.wait(0).strategy, migration.wait(0).bins_shipped) == ("my own", 1)
    assert_never_migrated(run, query, epoch, tmp_path)


@pytest.mark.parametrize(
    ("name", "targets"),
    [
        pytest.param("count", (5, 2), marks=pytest.mark.long),
        pytest.param("count", (1, 3), marks=pytest.mark.long),
        pytest.param("dedup", (1, 3), marks=pytest.mark.matrix),
        pytest.param("tumbling-append", (5, 1), marks=pytest.mark.matrix),
        pytest.param("join-unbounded", (3, 1), marks=pytest.mark.long),
    ],
)
def test_each_epoch_has_as_many_rows_as_one_of_a_query_that_never_migrated(stream, name, targets):
    query = QUERIES[name]
    run = stream(query.build, mode=query.mode).start()
    oracle = stream(query.build, "oracle", mode=query.mode, provider=STOCK).start()
    epoch, awaited = 0, []

    def feed(n=40):
        nonlocal epoch
        run.run(epoch, n=n)
        oracle.run(epoch, n=n)
        epoch += 1
        while epoch <= max(run.outputs):
            # One that has only a watermark.
            epoch += 1
        operators = run.query.lastProgress.stateOperators
        awaited.append(sum(op.customMetrics["binshiftBinsAwaited"] for op in operators))

    feed()
    for target in targets:
        feed()
        migration = run.attach().rescale(target, strategy=OnDemand())
        before = len(awaited)
        with Fault("fetch.chunk", "slow"):
            for n in (3, 1, 1):
                feed(n)
            while not (sum(awaited[before:]) or migration.status.steps_done):
                feed(1)
            with Fault("switch.ingest", "throw"):
                # A task that comes there begins anew from the checkpoint.
                feed(2)
        # With windows that end, an epoch looks through all bins, and waits for them.
        assert (sum(awaited[before:]) > 0) == (name != "tumbling-append")
        while not migration.status.is_over:
            feed()
        feed()
    counted = [totals(r, *sorted(run.outputs)) for r in (run, oracle)]
    assert counted[0] == counted[1]
    assert_same_results(run, oracle, query.state)


@pytest.mark.parametrize("point", ["export.begin", "export.start", "stage.file"])
def test_bins_that_never_come_on_demand_are_read_from_the_checkpoint(stream, tmp_path, point):
    query = QUERIES["count"]
    run = stream(query.build, mode=query.mode, conf={SHIP + "timeout": NEVER}).start()
    run.run(0, 1)
    with Fault(point, "throw", always=True):
        epoch, report = shift(run, 2, OnDemand())
    # They are read by the task that needs them, or in the background if they can be kept until then.
    assert report.bins_recopied + report.bins_from_checkpoint == 64
    run.stop()
    run.start()
    run.run(epoch)
    assert_never_migrated(run, query, epoch + 1, tmp_path)


def test_a_task_whose_bins_do_not_come_in_time_reads_the_checkpoint_though_a_piece_is_being_fetched(
    stream, tmp_path
):
    query = QUERIES["count"]
    run = stream(query.build, mode=query.mode, conf={SHIP + "timeout": "2s"}).start()
    run.run(0, 1)
    migration = submit_shift(run, OnDemand())
    with Fault("fetch.chunk", "block"):
        run.run(2, 3)
        metrics = run.progress(3).stateOperators[0].customMetrics
        assert metrics["binshiftBinsFromCheckpoint"] == 64
    epoch = finish(run, migration, 4)
    assert_never_migrated(run, query, epoch, tmp_path)
