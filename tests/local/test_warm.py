"""Files of a partition that is about to move here are fetched ahead, whatever version is then loaded."""

import os
from pathlib import Path

import pytest

from binshift.session import PROVIDER
from harness import STOCK, Fault, assert_same_results, end_maintenance, held_up_at, rows, until
from local.queries import QUERIES
from local.settings import IDS, MIN_DELTAS, SNAPSHOTS

STORES = {
    "count": ["0/0", "0/1"],
    "join-inner": [
        f"0/{p}/{name}"
        for p in (0, 1)
        for name in (
            "left-keyToNumValues",
            "left-keyWithIndexToValue",
            "right-keyToNumValues",
            "right-keyWithIndexToValue",
        )
    ],
}


@pytest.fixture
def warm(spark):
    """Has the files of stores fetched ahead, and deletes them at the end."""
    orders = []

    def begin(run, stores, wait=True):
        roots = spark._sc._gateway.new_array(spark._jvm.String, len(stores))
        for i, store in enumerate(stores):
            roots[i] = f"file:{run.checkpoint.absolute()}/state/{store}"
        helper = spark._jvm.org.apache.spark.sql.execution.streaming.state.binshift.TestWarm
        orders.append(helper.begin(spark._jsc, roots))
        assert not wait or until(orders[-1].isReady)
        return orders[-1]

    yield begin
    for order in orders:
        order.close()
    blocks = spark._jvm.org.apache.spark.sql.execution.streaming.state.binshift.TestBlocks
    assert until(lambda: blocks.stagedBytes() == 0)
    assert until(lambda: not files_fetched())


def files_fetched() -> list[Path]:
    return list(Path(os.environ["BINSHIFT_TESTS_TMP"]).glob("spark-*/binshift-warm*/*.sst"))


def snapshots_of(run, store) -> list[Path]:
    return list((run.checkpoint / "state" / store).glob("*.zip"))


def used(run, epoch):
    return sum(op.customMetrics["binshiftFilesWarm"] for op in run.progress(epoch).stateOperators)


def stopped(spark, stream, name, conf):
    query = QUERIES[name]
    oracle = stream(query.build, "oracle", mode=query.mode, provider=STOCK, conf=conf).start()
    run = stream(query.build, mode=query.mode, provider=PROVIDER, conf=conf).start()
    for q in (run, oracle):
        q.run(*range(6))
    assert until(lambda: all(snapshots_of(run, s) for s in STORES[name]))
    run.stop()
    # The next start loads everything from the checkpoint.
    end_maintenance(spark)
    return run, oracle


@pytest.mark.long
@pytest.mark.parametrize(
    ("name", "conf"), [("count", SNAPSHOTS), ("count", SNAPSHOTS | IDS), ("join-inner", SNAPSHOTS)]
)
def test_a_store_that_comes_takes_what_was_fetched_ahead(spark, stream, warm, name, conf):
    run, oracle = stopped(spark, stream, name, conf)
    warm(run, STORES[name])
    assert files_fetched()
    run.start()
    for q in (run, oracle):
        q.run(*range(6, 10))
    first = min(p.batchId for p in run.query.recentProgress if "addBatch" in p.durationMs)
    assert used(run, first) >= 2
    assert used(run, first + 1) == 0
    assert_same_results(run, oracle, QUERIES[name].state)


def test_files_that_cannot_be_fetched_ahead_are_fetched_when_the_store_comes(spark, stream, warm):
    run, oracle = stopped(spark, stream, "count", SNAPSHOTS)
    with Fault("warm.file", "throw", always=True):
        warm(run, STORES["count"])
    assert not files_fetched()
    run.start()
    for q in (run, oracle):
        q.run(6, 7)
    assert used(run, 6) == 0
    assert_same_results(run, oracle)


def test_an_error_while_files_are_fetched_ahead_keeps_nobody_waiting(spark, stream, warm):
    run, _ = stopped(spark, stream, "count", SNAPSHOTS)
    with Fault("warm.file", "die") as error:
        warm(run, STORES["count"])
        assert error.happened


def test_a_store_that_comes_before_its_files_keeps_nobody_waiting(spark, stream, warm):
    run, oracle = stopped(spark, stream, "count", SNAPSHOTS)
    begun = []
    with held_up_at("warm.file", lambda: begun.append(warm(run, STORES["count"], wait=False))):
        run.start()
        for q in (run, oracle):
            q.run(6)
        assert not begun[0].isReady()
    assert until(begun[0].isReady)
    assert used(run, 6) == 0
    assert_same_results(run, oracle)


@pytest.mark.long
def test_a_load_that_fails_with_files_that_were_here_is_tried_again_without_them(spark, stream, warm):
    run, oracle = stopped(spark, stream, "count", SNAPSHOTS)
    run.spark.conf.set(MIN_DELTAS, "1000")
    run.start()
    for q in (run, oracle):
        q.run(6, 7, 8, n=1200, keys=3000)
    run.stop()
    end_maintenance(spark)
    warm(run, STORES["count"])
    last = run.checkpoint / "state/0/0/9.changelog"
    hidden = last.rename(last.with_name("hidden"))
    run.start()
    run.feed(rows(9))
    assert until(lambda: not run.query.isActive)
    # More records than Spark applies came before it, so there is a native snapshot, which must not keep the
    # database from being closed.
    assert "9.changelog" in str(run.query.exception())
    hidden.rename(last)
    run.start()
    run.query.processAllAvailable()
    run.run(10)
    oracle.run(9, 10)
    assert_same_results(run, oracle)


@pytest.mark.long
def test_files_of_an_older_snapshot_are_of_no_harm(spark, stream, warm):
    run, oracle = stopped(spark, stream, "count", SNAPSHOTS)
    run.start()
    run.run(6)
    # The stores are loaded already, and go on to other snapshots.
    warm(run, STORES["count"])
    run.run(*range(7, 12))
    run.stop()
    end_maintenance(spark)
    run.start()
    run.run(12, 13)
    oracle.run(*range(6, 14))
    assert_same_results(run, oracle)


@pytest.mark.long
def test_files_of_a_newer_snapshot_than_is_loaded_are_not_taken(spark, stream, warm):
    run, oracle = stopped(spark, stream, "count", SNAPSHOTS)
    run.start()
    for q in (run, oracle):
        q.run(*range(6, 9))
    assert until(lambda: all(len(snapshots_of(run, s)) > 1 for s in STORES["count"]))
    run.stop()
    end_maintenance(spark)
    warm(run, STORES["count"])
    for store in STORES["count"]:
        max(snapshots_of(run, store), key=lambda f: int(f.stem)).unlink()
    run.start()
    for q in (run, oracle):
        q.run(9)
    assert used(run, 9) == 0
    assert_same_results(run, oracle)


@pytest.mark.long
def test_what_nobody_takes_goes_with_the_order(spark, stream, warm):
    run, _ = stopped(spark, stream, "count", SNAPSHOTS)
    warm(run, STORES["count"])
    assert files_fetched()
