"""A checkpoint whose last epochs were taken out of its logs by hand goes on as if they had never been."""

import pytest

from binshift import AllAtOnce, Batched
from harness import Fault, end_maintenance, rows, until
from local.queries import QUERIES, count_by_key
from local.settings import IDS, MIN_DELTAS, ONE_EPOCH

LOGS = ("commits", "offsets")


def counted(run):
    return sorted((*key, *value) for key, value in run.state())


def counted_at_once(run):
    return sorted((r.k, r.n, r.total) for r in count_by_key(run.batch()).collect())


def stores_with(run, files, after=-1):
    """The directories of stores that have such files of versions later than `after`."""
    state = run.checkpoint / "state/0"
    return {f.parent for f in state.rglob(files) if int(f.stem.split("_")[0]) > after}


def snapshots_are_newer(run, version):
    return stores_with(run, "*.zip", version) >= stores_with(run, "*.changelog")


def files_below(folder):
    return {f: f.stat().st_mtime_ns for f in folder.rglob("*") if f.is_file()}


def wind_back(run):
    """Takes the last two of four epochs out of the logs; what is left to read then comes as one epoch."""
    run.stop()
    run.forget(2, 3, logs=LOGS)
    # The source's own log still has the files of the lost epochs.
    run.feed(rows(4))
    run.spark.conf.set(MIN_DELTAS, "1000")
    run.start()
    run.query.processAllAvailable()
    assert run.query.lastProgress.batchId == 2


def test_the_routing_of_lost_epochs_is_forgotten(stream):
    run = stream(count_by_key).start()
    run.run(0)
    run.attach().rescale(4, AllAtOnce(), prepare=False)
    run.run(1, 2, 3)
    wind_back(run)
    assert run.query.lastProgress.stateOperators[0].numShufflePartitions == 2
    assert counted(run) == counted_at_once(run)


def test_a_plan_whose_start_is_lost_is_abandoned_and_the_query_runs_on(stream):
    run = stream(count_by_key).start()
    run.run(0)
    run.attach().rescale(4, AllAtOnce(), prepare=False)
    run.run(1, 2)
    run.attach().rescale(6, Batched(4), prepare=False)
    run.run(3)
    run.stop()
    run.forget(1, 2, 3, logs=LOGS)
    run.start()
    run.run(4, 5)
    assert run.attach().migration is None
    assert not (run.checkpoint / "binshift/plan.json").exists()
    assert run.attach().routing().partitions == 2
    assert counted(run) == counted_at_once(run)


@pytest.mark.parametrize(
    ("name", "conf"),
    [
        ("count", {}),
        ("join-unbounded", {}),
        pytest.param("join-unbounded", IDS, marks=pytest.mark.matrix),
    ],
)
def test_snapshots_of_lost_epochs_are_gone(stream, name, conf):
    query = QUERIES[name]
    run = stream(query.build, mode=query.mode, conf=ONE_EPOCH | conf | {MIN_DELTAS: "1"}).start()
    run.run(0)
    run.attach().rescale(4, AllAtOnce(), prepare=False)
    run.run(1)
    for epoch in (2, 3):
        run.run(epoch)
        assert until(lambda at=epoch: snapshots_are_newer(run, at))
    wind_back(run)
    assert not stores_with(run, "*.zip", 2)
    run.stop()
    run.start()
    run.run(5)
    if query.mode == "update":
        assert counted(run) == counted_at_once(run)
    else:
        emitted = [row for output in run.outputs.values() for row in output]
        assert sorted(emitted) == sorted(tuple(r) for r in query.build(run.batch()).collect())


@pytest.mark.parametrize("point", ["snapshot.check", "snapshot.upload"])
def test_a_run_that_has_ended_leaves_no_snapshots_of_lost_epochs(stream, point):
    run = stream(count_by_key, conf={MIN_DELTAS: "1"}).start()
    run.run(0, 1)
    assert until(lambda: snapshots_are_newer(run, 1))
    with Fault(point, "block"), Fault(point, "count") as uploads:
        run.run(2)
        assert until(lambda: uploads.count == 1)
        run.run(3)
        wind_back(run)
        # A third run begins after the version that the first one has still to upload.
        run.run(5)
        run.stop()
        run.start()
        run.run(6)
    end_maintenance(run.spark)
    assert not stores_with(run, "*.zip", 2)
    run.stop()
    run.start()
    run.run(7)
    assert counted(run) == counted_at_once(run)


def test_epochs_are_taken_out_of_both_logs_or_the_query_does_not_start(stream):
    run = stream(count_by_key).start()
    run.run(0, 1, 2)
    run.stop()
    end_maintenance(run.spark)
    run.forget(2, logs=["offsets"])
    state = files_below(run.checkpoint / "state")
    run.start()
    with pytest.raises(Exception, match=r"has commits/2: another run .* delete from commits"):
        run.run(3)
    run.stop()
    assert files_below(run.checkpoint / "state") == state
    run.forget(2)
    run.start()
    run.run(4)
    assert counted(run) == counted_at_once(run)


@pytest.mark.parametrize("switch", [2, 3])
def test_metadata_of_lost_epochs_is_gone(stream, switch):
    query = QUERIES["tws-rows"]
    run = stream(query.build, mode=query.mode, conf=ONE_EPOCH).start()
    run.run(*range(switch - 1))
    migration = run.attach().rescale(4, AllAtOnce(), prepare=False)
    run.run(*range(switch - 1, 4))
    migration.wait(timeout=60)
    assert {row.numPartitions for row in run.metadata()} == {4}
    wind_back(run)
    run.run(5)
    assert {row.numPartitions for row in run.metadata()} == {2}
