"""A load has the committed version, whichever files of a store that ran elsewhere exist here."""

import os
from pathlib import Path
from threading import Thread

import pytest
from pyspark.sql import functions as F

from binshift import AllAtOnce
from binshift.session import PROVIDER
from harness import STOCK, Fault, assert_same_results, end_maintenance, held_up_at, rows, until
from local.conftest import files_of_standbys
from local.queries import QUERIES, with_a_point_in_rows
from local.settings import IDS, MIN_DELTAS, NO_CHANGELOG, SNAPSHOTS

JOINED = (
    "left-keyToNumValues",
    "left-keyWithIndexToValue",
    "right-keyToNumValues",
    "right-keyWithIndexToValue",
)
STORES = {
    "count": ["0/0", "0/1"],
    "tws-jvm": ["0/0", "0/1"],
    "join-inner": [f"0/{p}/{name}" for p in (0, 1) for name in JOINED],
}


def snapshots_of(run, store) -> list[Path]:
    return list((run.checkpoint / "state" / store).glob("*.zip"))


def loaded(run):
    """The numbers of files that existed here and that were fetched, in the first epoch of a run."""
    first = min((p for p in run.query.recentProgress if "addBatch" in p.durationMs), key=lambda p: p.batchId)
    metrics = [op.customMetrics for op in first.stateOperators]
    return tuple(sum(m[f"binshiftFiles{name}"] for m in metrics) for name in ("Warm", "Fetched"))


def started(stream, name, conf, epochs=7, then=lambda built: built):
    query = QUERIES[name]

    def build(df):
        return then(query.build(df))

    oracle = stream(build, "oracle", mode=query.mode, provider=STOCK, conf=conf).start()
    run = stream(build, mode=query.mode, provider=PROVIDER, conf=conf).start()
    for q in (run, oracle):
        q.run(*range(epochs))
    assert until(lambda: all(list((run.checkpoint / "state" / s).glob("*.zip")) for s in STORES[name]))
    return run, oracle


def stop(spark, run):
    """Stops the run so that the next start loads everything from the checkpoint."""
    run.stop()
    end_maintenance(spark)


def go_on(run, oracle, *epochs, name="count"):
    run.start()
    for q in (run, oracle):
        q.run(*epochs)
    assert_same_results(run, oracle, QUERIES[name].state)


@pytest.mark.long
@pytest.mark.parametrize(
    ("name", "conf"),
    [
        ("count", SNAPSHOTS),
        pytest.param("count", SNAPSHOTS | IDS, marks=pytest.mark.matrix),
        pytest.param("count", NO_CHANGELOG, marks=pytest.mark.matrix),
        pytest.param("join-inner", SNAPSHOTS, marks=pytest.mark.matrix),
    ],
)
def test_a_store_is_loaded_from_what_is_here(spark, stream, standby, name, conf):
    run, oracle = started(stream, name, conf)
    stop(spark, run)
    here = standby(run, STORES[name])
    assert here.follow()
    # Joins have epochs without data, too.
    (reached,) = set(here.reach())
    assert reached >= 7
    go_on(run, oracle, 7, 8, name=name)
    warm, fetched = loaded(run)
    assert warm >= len(STORES[name])
    assert fetched == 0


@pytest.mark.matrix
def test_an_operator_that_is_not_routed_is_loaded_from_what_is_here(spark, stream, standby):
    def build(df):
        return df.groupBy().agg(F.count("*").alias("n"), F.sum("v").alias("total"))

    run = stream(build, provider=PROVIDER, conf=SNAPSHOTS).start()
    run.run(*range(5))
    store = run.checkpoint / "state/0/0"
    assert until(lambda: bool(list(store.glob("*.zip"))))
    stop(spark, run)
    assert standby(run, ["0/0"]).follow()
    # The files are nowhere else.
    away = (store / "SSTs").rename(run.root / "away")
    run.start()
    run.run(5)
    stop(spark, run)
    for file in away.iterdir():
        (store / "SSTs").mkdir(exist_ok=True)
        file.rename(store / "SSTs" / file.name)
    assert run.outputs[5] == [tuple(build(run.batch()).collect()[0])]


@pytest.mark.matrix
def test_what_is_here_may_be_stale(spark, stream, standby):
    run, oracle = started(stream, "count", SNAPSHOTS)
    assert standby(run, STORES["count"]).follow()
    for q in (run, oracle):
        q.run(*range(7, 13))
    stop(spark, run)
    go_on(run, oracle, 13, 14)
    assert loaded(run)[1] > 0


@pytest.mark.long
def test_a_changelog_that_another_attempt_replaced_is_not_the_one_that_is_here(spark, stream, standby):
    run, oracle = started(stream, "count", {MIN_DELTAS: "5"})
    stop(spark, run)
    assert standby(run, STORES["count"]).follow()
    for file in run.checkpoint.glob("state/0/*/7.changelog"):
        os.utime(file, (1e9, 1e9))
    go_on(run, oracle, 7, 8)
    assert loaded(run)[1] == 2


@pytest.mark.matrix
def test_what_cannot_be_fetched_ahead_is_fetched_by_the_load(spark, stream, standby):
    run, oracle = started(stream, "count", SNAPSHOTS)
    stop(spark, run)
    with Fault("standby.file", "throw", always=True):
        here = standby(run, STORES["count"])
        for _ in range(3):
            # A partition that moves here waits for the files until they have failed several times.
            assert not here.isSettled()
            assert not here.follow()
        assert here.isSettled()
    assert set(here.reach()) == {-1}
    assert not files_of_standbys()
    go_on(run, oracle, 7, 8)
    assert loaded(run)[1] > 0


def test_nobody_waits_for_a_standby_after_an_error(spark, stream, standby):
    run, _ = started(stream, "count", SNAPSHOTS)
    here = standby(run, STORES["count"][:1])
    with Fault("standby.file", "die") as error:
        assert not here.follow()
        assert error.happened
    assert here.isSettled()
    # It goes on all the same.
    assert here.follow()
    assert set(here.reach()) == {7}


def test_nobody_waits_for_files_whose_fetch_fails_again_and_again_between_turns(spark, stream, standby):
    run, _ = started(stream, "count", SNAPSHOTS)
    here = standby(run, STORES["count"][:1])
    for _ in range(3):
        # A turn in which the time is over before the files are complete.
        assert here.follow(0)
        assert not here.isSettled()
        with Fault("standby.file", "throw"):
            assert not here.follow()
    assert here.isSettled()
    assert here.follow()
    assert set(here.reach()) == {7}


def test_a_store_that_comes_while_its_files_are_fetched_takes_those_that_are_here(spark, stream, standby):
    run, oracle = started(stream, "count", SNAPSHOTS)
    stop(spark, run)
    here = standby(run, STORES["count"][:1])
    # A standby that has not looked yet has nothing.
    assert (set(here.reach()), here.isSettled()) == ({-1}, False)
    following = Thread(target=here.follow)
    with held_up_at("standby.file", following.start):
        go_on(run, oracle, 7)
        assert not here.isSettled()
    following.join()
    assert here.isSettled()
    assert loaded(run)[1] > 0


@pytest.mark.long
def test_a_load_that_fails_with_what_is_here_is_tried_again_without(spark, stream, standby):
    run, oracle = started(stream, "count", SNAPSHOTS)
    stop(spark, run)
    run.spark.conf.set(MIN_DELTAS, "1000")
    run.start()
    for q in (run, oracle):
        q.run(7, 8, 9, n=1200, keys=3000)
    stop(spark, run)
    last = run.checkpoint / "state/0/0/10.changelog"
    hidden = last.rename(last.with_name("hidden"))
    assert standby(run, STORES["count"]).follow()
    run.start()
    run.feed(rows(10))
    assert until(lambda: not run.query.isActive)
    # More records than Spark applies came before it, so there is a native snapshot, which must not keep the
    # database from being closed.
    assert "10.changelog" in str(run.query.exception())
    hidden.rename(last)
    run.start()
    run.query.processAllAvailable()
    run.run(11)
    oracle.run(10, 11)
    assert_same_results(run, oracle)


@pytest.mark.long
def test_files_of_a_newer_snapshot_than_is_loaded_are_not_taken(spark, stream, standby):
    run, oracle = started(stream, "count", SNAPSHOTS)
    stop(spark, run)
    go_on(run, oracle, 7, 8, 9)
    assert until(lambda: all(len(snapshots_of(run, s)) > 1 for s in STORES["count"]))
    stop(spark, run)
    assert standby(run, STORES["count"]).follow()
    newest = {s: max(snapshots_of(run, s), key=lambda f: int(f.stem)) for s in STORES["count"]}
    for file in newest.values():
        file.unlink()
    # The changelogs since the older snapshot are not here, either.
    go_on(run, oracle, 10)
    assert loaded(run)[1] > 0


@pytest.mark.matrix
def test_a_snapshot_that_is_purged_while_it_is_fetched_gives_way_to_the_next(spark, stream, standby):
    run, oracle = started(stream, "count", SNAPSHOTS)
    here = standby(run, STORES["count"])
    with Fault("standby.snapshot", "throw", always=True):
        assert not here.follow()
    for q in (run, oracle):
        q.run(*range(7, 11))
    stop(spark, run)
    for store in STORES["count"]:
        zips = sorted((run.checkpoint / "state" / store).glob("*.zip"), key=lambda f: int(f.stem))
        assert len(zips) > 1
        for file in zips[:-1]:
            file.unlink()
    assert here.follow()
    assert set(here.reach()) == {11}
    go_on(run, oracle, 11, 12)


@pytest.mark.long
@pytest.mark.parametrize("ending", [pytest.param("sst", marks=pytest.mark.matrix), "changelog"])
def test_a_file_that_is_damaged_here_costs_a_load_and_not_the_query(spark, stream, standby, ending):
    run, oracle = started(stream, "count", {MIN_DELTAS: "5"})
    stop(spark, run)
    assert standby(run, STORES["count"]).follow()
    assert files_of_standbys(ending)
    for file in files_of_standbys(ending):
        content = bytearray(file.read_bytes())
        content[len(content) // 2 :] = bytes(len(content) - len(content) // 2)
        file.write_bytes(content)
    go_on(run, oracle, 7, 8)
    assert loaded(run)[1] > 0


@pytest.mark.long
@pytest.mark.parametrize("conf", [{}, pytest.param(IDS, marks=pytest.mark.matrix)])
def test_bins_that_came_after_the_snapshot_come_again_if_a_load_is_done_again(spark, stream, standby, conf):
    run, oracle = started(stream, "count", {MIN_DELTAS: "5"} | conf, epochs=5)
    controller = run.attach()
    turned = [1 - owner for owner in controller.routing().assignment]
    migration = controller.submit(controller.plan(turned, strategy=AllAtOnce()), prepare=False)
    with Fault("snapshot.upload", "throw", always=True):
        for q in (run, oracle):
            q.run(5, 6, 7)
        migration.wait(timeout=60)
        (switched,) = {r["epoch"] for r in controller.history().to_pylist()}
        stop(spark, run)
    for store in STORES["count"]:
        names = [f.stem for f in (run.checkpoint / "state" / store).glob("*.zip")]
        assert max(int(name.split("_")[0]) for name in names) < switched < 8
    assert standby(run, STORES["count"]).follow()
    # The first load has brought bins of another partition, whose changes it cannot read.
    with Fault("checkpoint.changes", "throw") as fault:
        go_on(run, oracle, 8, 9)
        assert fault.happened


@pytest.mark.matrix
def test_a_block_that_is_damaged_here_costs_a_task_and_not_the_query(spark, stream, standby):
    # A snapshot at each epoch, so that the load reads no row.
    run, oracle = started(stream, "count", NO_CHANGELOG)
    stop(spark, run)
    assert standby(run, STORES["count"]).follow()
    for file in files_of_standbys():
        content = bytearray(file.read_bytes())
        content[:64] = bytes(64)
        file.write_bytes(content)
    go_on(run, oracle, 7, 8)


@pytest.mark.matrix
@pytest.mark.parametrize("end", ["killed", "input lost"])
def test_a_task_that_ends_for_another_reason_says_nothing_of_what_is_here(spark, stream, standby, end):
    run, oracle = started(stream, "tws-jvm", {MIN_DELTAS: "5"}, then=with_a_point_in_rows)
    stop(spark, run)
    assert standby(run, STORES["tws-jvm"]).follow()
    run.start()
    # Rows come out before their store commits, other than those of an aggregation.
    if end == "killed":
        with Fault("query.row", "count") as there, Fault("query.row", "block"):
            run.feed(rows(7))
            assert until(lambda: there.count == len(STORES["tws-jvm"]))
            assert kill_tasks(spark) == len(STORES["tws-jvm"])
    else:
        with Fault("query.row", "lose") as fault:
            run.run(7)
            assert fault.happened
    run.query.processAllAvailable()
    oracle.run(7)
    assert_same_results(run, oracle, QUERIES["tws-jvm"].state)
    assert loaded(run)[1] == 0
    # They are not thrown away.
    assert files_of_standbys()


def kill_tasks(spark) -> int:
    """Kills the running tasks, as Spark does if another attempt has ended; returns their number."""
    context = spark.sparkContext._jsc.sc()
    tracker = spark.sparkContext.statusTracker()
    infos = [i for i in map(tracker.getStageInfo, tracker.getActiveStageIds()) if i is not None]
    lists = [context.statusStore().taskList(i.stageId, i.currentAttemptId, 100) for i in infos]
    tasks = [found.apply(n) for found in lists for n in range(found.size())]
    return sum(context.killTaskAttempt(t.taskId(), True, "a test") for t in tasks if t.status() == "RUNNING")


@pytest.mark.matrix
def test_a_load_that_cannot_use_what_is_here_goes_on_without(spark, stream, standby):
    run, oracle = started(stream, "count", SNAPSHOTS)
    stop(spark, run)
    assert standby(run, STORES["count"]).follow()
    with Fault("standby.take", "throw", always=True):
        go_on(run, oracle, 7, 8)
    assert loaded(run)[0] == 0


@pytest.mark.matrix
def test_a_bound_of_the_disk_is_kept(spark, stream, standby):
    run, oracle = started(stream, "count", SNAPSHOTS)
    stop(spark, run)
    assert not standby(run, STORES["count"], max_bytes=100).follow()
    assert not files_of_standbys()
    go_on(run, oracle, 7, 8)


def test_a_full_disk_is_left_to_the_stores(spark):
    helper = spark._jvm.org.apache.spark.sql.execution.streaming.state.binshift.shipping.TestStandby
    giga = 1 << 30
    assert helper.hasRoom(giga, 20 * giga, 100 * giga)
    # A twentieth of a disk, and no more than 8 GiB, is reserved for the stores.
    assert not helper.hasRoom(giga, 5 * giga, 100 * giga)
    assert helper.hasRoom(giga, 10 * giga, 10000 * giga)
    assert not helper.isScarce(3 * giga, 100 * giga)
    assert helper.isScarce(2 * giga, 100 * giga)


def test_after_an_error_an_executor_keeps_standbys_again_when_it_is_told_to(spark):
    turns = spark._jvm.org.apache.spark.sql.binshift.migration.TestStandbyTurns("a run")
    try:
        with Fault("standby.turn", "die") as error:
            turns.begin()
            assert until(lambda: error.happened)
        assert turns.asked() == 0

        def asks():
            # The error may not have ended the first run yet.
            turns.begin()
            return turns.asked() > 1

        assert until(asks, 20)
    finally:
        turns.close()


def test_a_report_says_nothing_of_the_stores_of_another_order(spark):
    assert spark._jvm.org.apache.spark.sql.binshift.migration.TestStandbyReports.check() is None


@pytest.mark.parametrize("count", [1, 2])
def test_standbys_of_a_thousand_partitions_are_spread(spark, count):
    assert spark._jvm.org.apache.spark.sql.binshift.migration.TestStandbyPlan.check(count) is None


def test_a_standby_is_on_another_host_where_there_is_one(spark):
    plan = dict(spark._jvm.org.apache.spark.sql.binshift.migration.TestStandbyPlan.ofFew())
    assert plan == {0: "c", 1: "c", 3: "c", 2: plan[2]}
    assert plan[2] in {"a", "b"}
