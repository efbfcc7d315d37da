"""Spark orders a snapshot of a store whose last one is too old, whatever the store is doing."""

import pytest

from binshift import OnDemand
from harness import STOCK, StreamRun, assert_same_results
from local.migrations import submit_shift
from local.queries import QUERIES
from local.settings import MIN_DELTAS, STORE

LAGGING = {
    "coordinatorReportSnapshotUploadLag": "true",
    "forceSnapshotUploadOnLag": "true",
    # A store lags if it is two versions ahead of its last snapshot, at any time.
    "minDeltasForSnapshot": "1",
    "multiplierForMinVersionDiffToLog": "1",
    "multiplierForMinTimeDiffToLog": "1",
    "maintenanceInterval": "1ms",
}


@pytest.fixture
def lagging(spark):
    """Has the coordinator, which has the settings of the tests' first session, order snapshots from now on."""
    before = {key: spark.conf.get(STORE + key) for key in LAGGING}

    def begin():
        for key, value in LAGGING.items():
            spark.conf.set(STORE + key, value)

    yield begin
    for key, value in before.items():
        spark.conf.set(STORE + key, value)


@pytest.mark.needs_spark("4.2", reason="before, the coordinator orders no snapshots")
def test_a_snapshot_that_is_forced_while_bins_are_on_their_way_has_all_bins(stream, tmp_path, lagging):
    query = QUERIES["count"]
    # Bins only come if they are asked for, and snapshots are only made if they are forced.
    conf = {STORE + "binshift.ship.maxBytesPerSecond": "1", MIN_DELTAS: "1000"}
    run = stream(query.build, mode=query.mode, conf=conf).start()
    run.run(0, 1)
    submit_shift(run, OnDemand())
    run.run(2)
    lagging()
    run.run(3, 4, n=2)
    switch, forced = (run.progress(epoch).stateOperators[0].customMetrics for epoch in (3, 4))
    assert switch["rocksdbForceSnapshotCount"] == 0
    assert switch["binshiftBinsAwaited"] > 50
    assert forced["rocksdbForceSnapshotCount"] == 2
    assert forced["binshiftBinsAwaited"] == 0
    run.stop()
    # Files from before the snapshot are deleted, so that the restart has to begin with the snapshot.
    for partition in (run.checkpoint / "state/0").glob("[0-9]*"):
        assert [file.name for file in partition.glob("*.zip")] == ["5.zip"]
        for changelog in partition.glob("*.changelog"):
            changelog.unlink()
    run.start()
    run.run(5)
    oracle = StreamRun(run.spark, tmp_path / "oracle", query.build, mode=query.mode, provider=STOCK).start()
    oracle.run(0, 1, 2)
    oracle.run(3, 4, n=2)
    oracle.run(5)
    oracle.stop()
    assert_same_results(run, oracle, query.state)
