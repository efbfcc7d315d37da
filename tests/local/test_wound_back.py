"""A checkpoint whose last epochs were taken out of its logs by hand goes on as if they had never been."""

import json
import shutil
import uuid
from functools import partial

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import functions as F

from binshift import AllAtOnce, Batched
from harness import Fault, end_maintenance, entries, held_up_at, plans, rows, until
from local.queries import QUERIES, count_by_key, counted, counted_at_once
from local.settings import IDS, MIN_DELTAS, ONE_EPOCH

LOGS = ("commits", "offsets")


def count_all(df):
    """Its rows do not follow a routing table."""
    return df.agg(F.count("*").alias("n"), F.sum("v").alias("total"))


def stores_with(run, files, after=-1):
    """The directories of stores that have such files of versions later than `after`."""
    state = run.checkpoint / "state/0"
    return {f.parent for f in state.rglob(files) if int(f.stem.split("_")[0]) > after}


def snapshots_are_newer(run, version):
    return stores_with(run, "*.zip", version) >= stores_with(run, "*.changelog")


def assert_goes_on_without_lost_snapshots(run):
    """Starts the query that was wound back, and brings its stores back from the checkpoint."""
    run.start()
    run.query.processAllAvailable()
    assert not stores_with(run, "*.zip", 2)
    run.stop()
    end_maintenance(run.spark)
    run.start()
    run.run(5)
    assert counted(run) == counted_at_once(run)


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
    run.attach().rescale(4, strategy=AllAtOnce(), prepare=False)
    run.run(1, 2, 3)
    wind_back(run)
    assert run.query.lastProgress.stateOperators[0].numShufflePartitions == 2
    assert counted(run) == counted_at_once(run)


def test_a_plan_whose_start_is_lost_is_abandoned_and_the_query_runs_on(stream):
    run = stream(count_by_key).start()
    run.run(0)
    run.attach().rescale(4, strategy=AllAtOnce(), prepare=False)
    run.run(1, 2)
    run.attach().rescale(6, strategy=Batched(4), prepare=False)
    run.run(3)
    run.stop()
    run.forget(1, 2, 3, logs=LOGS)
    run.start()
    run.run(4, 5)
    assert run.attach().migration() is None
    assert plans(run.checkpoint) == []
    assert run.attach().routing().partitions == 2
    assert counted(run) == counted_at_once(run)


@pytest.mark.long
@pytest.mark.parametrize("name", ["count", "join-unbounded"])
def test_snapshots_of_lost_epochs_are_gone(stream, name):
    """Under checkpoint format 1, where the next attempt of an epoch gives its files the same names."""
    query = QUERIES[name]
    run = stream(query.build, mode=query.mode, conf=ONE_EPOCH | {MIN_DELTAS: "1"}).start()
    run.run(0)
    run.attach().rescale(4, strategy=AllAtOnce(), prepare=False)
    run.run(1)
    for epoch in (2, 3):
        run.run(epoch)
        assert until(partial(snapshots_are_newer, run, epoch))
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


def test_a_start_under_ids_deletes_nothing_of_what_lost_epochs_have_left(stream):
    """Nobody reads it. So a driver that stands still in its start has nothing to delete when it wakes up."""
    run = stream(count_by_key, conf=ONE_EPOCH | IDS | {MIN_DELTAS: "1"}).start()
    for epoch in range(4):
        run.run(epoch)
        assert until(partial(snapshots_are_newer, run, epoch))
    run.stop()
    end_maintenance(run.spark)
    run.forget(2, 3, logs=LOGS)
    run.feed(rows(4))
    before = files_below(run.checkpoint / "state")
    # All that a start deletes is gone by then, and no task has begun.
    with held_up_at("run.begun", run.start):
        assert stores_with(run, "*.zip", 3)
        assert files_below(run.checkpoint / "state") == before
    run.query.processAllAvailable()
    assert counted(run) == counted_at_once(run)


def begin_another(run):
    """Claims the next place, as another run would if it began now."""
    claims = run.checkpoint / "binshift/runs"
    newest = max(int(f.name) for f in claims.glob("[0-9]*"))
    said = json.loads((claims / str(newest)).read_text())
    (claims / str(newest + 1)).write_text(json.dumps(said | {"run": str(uuid.uuid4())}))


def with_late_snapshots(stream):
    """A query of four epochs, with a snapshot of each."""
    run = stream(count_by_key, conf=ONE_EPOCH | {MIN_DELTAS: "1"}).start()
    for epoch in range(4):
        run.run(epoch)
        assert until(partial(snapshots_are_newer, run, epoch))
    return run


def with_one_on_its_way(stream, tmp_path):
    """Winds the run back by two epochs, and takes one of their snapshots away; returns both places of it."""
    run = with_late_snapshots(stream)
    run.stop()
    end_maintenance(run.spark)
    run.forget(2, 3, logs=LOGS)
    late, copy = run.checkpoint / "state/0/0/4.zip", tmp_path / "4.zip"
    shutil.move(late, copy)
    run.feed(rows(4))
    run.spark.conf.set(MIN_DELTAS, "1000")
    return run, late, copy


def test_a_snapshot_that_a_store_of_the_run_before_uploads_while_a_run_begins_is_gone(stream, tmp_path):
    run, late, copy = with_one_on_its_way(stream, tmp_path)
    # The files have been listed, and the new run is not in the history yet.
    with held_up_at("run.begin", run.start):
        shutil.copy(copy, late)
    run.query.processAllAvailable()
    assert not stores_with(run, "*.zip", 2)
    assert counted(run) == counted_at_once(run)


def test_late_snapshots_are_left_to_a_run_that_has_begun_meanwhile(stream, tmp_path):
    run, late, copy = with_one_on_its_way(stream, tmp_path)
    with held_up_at("run.clean", run.start):
        shutil.copy(copy, late)
        begin_another(run)
    with pytest.raises(Exception, match=r"another run of query .* has begun to go on with"):
        run.query.processAllAvailable()
    assert late.exists()


def test_lost_epochs_are_found_though_the_history_of_runs_is_gone(stream):
    run = with_late_snapshots(stream)
    run.stop()
    run.forget(2, 3, logs=LOGS)
    run.feed(rows(4))
    run.spark.conf.set(MIN_DELTAS, "1000")
    with Fault("run.begin", "throw"):
        run.start()
        assert until(lambda: not run.query.isActive)
    shutil.rmtree(run.checkpoint / "binshift/runs")
    assert_goes_on_without_lost_snapshots(run)


def test_a_place_that_another_run_has_claimed_is_not_claimed_again(stream):
    run = stream(count_by_key).start()
    run.run(0)
    run.stop()
    before = files_below(run.checkpoint / "state")
    with held_up_at("run.begin", lambda: (run.feed(rows(1)), run.start())):
        begin_another(run)
    with pytest.raises(Exception, match=r"another run of query .* began while this one looked"):
        run.query.processAllAvailable()
    run.stop()
    assert files_below(run.checkpoint / "state") == before
    run.start()
    run.run(2)
    assert counted(run) == counted_at_once(run)


def test_an_epoch_that_a_refused_start_has_logged_anew_is_not_taken_for_the_one_before(stream):
    """The run that ended in order has left a snapshot of the epoch that was taken out of the logs."""
    run = stream(count_by_key, conf=ONE_EPOCH | {MIN_DELTAS: "1"}).start()
    for epoch in range(3):
        run.run(epoch)
        assert until(partial(snapshots_are_newer, run, epoch))
    run.stop()
    run.forget(2, logs=LOGS)
    run.feed(rows(4))
    run.spark.conf.set(MIN_DELTAS, "1000")
    with Fault("run.begin", "throw"):
        run.start()
        with pytest.raises(StreamingQueryException):
            run.query.processAllAvailable()
    assert (run.checkpoint / "offsets/2").exists()
    assert stores_with(run, "*.zip", 2)
    assert_goes_on_without_lost_snapshots(run)


@pytest.mark.long
@pytest.mark.parametrize("stale", ["binshift/ended.json", "binshift", "damaged"])
def test_lost_epochs_are_found_though_the_word_of_a_runs_end_is_of_an_earlier_run(stream, tmp_path, stale):
    """As if the last run had been killed, or as if binshift's directory had been put back from a copy."""
    is_damaged = stale == "damaged"
    stale = "binshift/ended.json" if is_damaged else stale
    run = stream(count_by_key, conf=ONE_EPOCH | {MIN_DELTAS: "1"}).start()
    run.run(0, 1)
    run.stop()
    kept, current = tmp_path / "kept", run.checkpoint / stale
    copy = shutil.copytree if current.is_dir() else shutil.copy
    copy(current, kept)
    run.start()
    for epoch in (2, 3):
        run.run(epoch)
        assert until(partial(snapshots_are_newer, run, epoch))
    run.stop()
    if current.is_dir():
        shutil.rmtree(current)
    copy(kept, current)
    if is_damaged:
        current.write_text("{")
    for crc in run.checkpoint.glob("binshift/.*.crc"):
        crc.unlink()
    wind_back(run)
    assert not stores_with(run, "*.zip", 2)
    run.stop()
    run.start()
    run.run(5)
    assert counted(run) == counted_at_once(run)


@pytest.mark.long
@pytest.mark.needs_spark("4.2", reason="before, a store is closed under a lock that all tasks need")
@pytest.mark.parametrize("point", ["snapshot.check", "snapshot.upload"])
@pytest.mark.parametrize("build", [count_by_key, count_all])
def test_a_run_that_has_ended_leaves_no_snapshots_of_lost_epochs(stream, point, build):
    run = stream(build, conf={MIN_DELTAS: "1"}).start()
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
    assert counted(run) == counted_at_once(run, build)


@pytest.mark.parametrize("purged", [False, True])
def test_a_run_uploads_its_snapshots_though_another_driver_began_and_came_no_further(stream, purged):
    """Also late, when Spark has purged the epochs from its logs."""
    conf = {"spark.sql.streaming.minBatchesToRetain": "1"} if purged else {}
    run = stream(count_by_key, conf=ONE_EPOCH | conf | {MIN_DELTAS: "1"}).start()
    run.run(0, 1)
    begin_another(run)
    if purged:
        with Fault("snapshot.check", "block"), Fault("snapshot.check", "count") as checks:
            run.run(2)
            assert until(lambda: checks.count > 0)
            run.run(3, 4, 5, 6)
            assert not (run.checkpoint / "offsets/3").exists()
    else:
        run.run(2, 3)
    assert until(lambda: snapshots_are_newer(run, 6 if purged else 3))


def test_epochs_are_taken_out_of_both_logs_or_the_query_does_not_start(stream):
    run = stream(count_by_key).start()
    run.run(0, 1, 2)
    run.stop()
    end_maintenance(run.spark)
    run.forget(2, logs=["offsets"])
    state = files_below(run.checkpoint / "state")
    run.start()
    with pytest.raises(Exception, match=r"has commits/2: another run .* delete the entries of commits"):
        run.run(3)
    run.stop()
    assert files_below(run.checkpoint / "state") == state
    run.forget(2)
    run.start()
    run.run(4)
    assert counted(run) == counted_at_once(run)


@pytest.mark.long
@pytest.mark.parametrize("switch", [2, 3])
def test_metadata_of_lost_epochs_is_gone(stream, switch):
    query = QUERIES["tws-rows"]
    run = stream(query.build, mode=query.mode, conf=ONE_EPOCH).start()
    run.run(*range(switch - 1))
    migration = run.attach().rescale(4, strategy=AllAtOnce(), prepare=False)
    run.run(*range(switch - 1, 4))
    migration.wait(timeout=60)
    assert {row.numPartitions for row in run.metadata()} == {4}
    wind_back(run)
    run.run(5)
    assert {row.numPartitions for row in run.metadata()} == {2}


def wind_back_and_die(run, tmp_path, *epochs):
    """Forgets the epochs; the next run dies when it has logged the first one, with other data."""
    run.stop()
    end_maintenance(run.spark)
    run.forget(*epochs, logs=LOGS)
    shutil.copytree(run.checkpoint, tmp_path / "before")
    run.feed(rows(4))
    run.spark.conf.set(MIN_DELTAS, "1000")
    run.start()
    run.query.processAllAvailable()
    run.stop()
    end_maintenance(run.spark)
    for file in (run.checkpoint / "offsets").glob(f"*{epochs[0]}*"):
        shutil.copy(file, tmp_path / "before/offsets")
    for file in (run.checkpoint / "sources").rglob("*"):
        if file.is_file():
            shutil.copy(file, tmp_path / "before" / file.relative_to(run.checkpoint))
    shutil.rmtree(run.checkpoint)
    shutil.copytree(tmp_path / "before", run.checkpoint)


@pytest.mark.long
@pytest.mark.parametrize("begins", [0, 2])
def test_a_run_that_dies_before_it_has_deleted_anything_leaves_that_to_the_next(stream, tmp_path, begins):
    """The lost run may have begun with the very epoch that is logged again."""
    run = stream(count_by_key, conf=ONE_EPOCH | {MIN_DELTAS: "1"}).start()
    for epoch in range(4):
        if epoch == begins > 0:
            run.stop()
            run.start()
        run.run(epoch)
        assert until(partial(snapshots_are_newer, run, epoch))
    wind_back_and_die(run, tmp_path, 2, 3)
    assert stores_with(run, "*.zip", 2)
    assert_goes_on_without_lost_snapshots(run)


def test_routing_entries_of_lost_epochs_do_not_stop_the_replay(stream, tmp_path):
    run = stream(count_by_key, conf=ONE_EPOCH | {MIN_DELTAS: "1000"}).start()
    for epoch, partitions in ((0, 4), (2, 6)):
        run.run(epoch)
        run.attach().rescale(partitions, strategy=AllAtOnce(), prepare=False)
        run.run(epoch + 1)
    run.run(4)
    wind_back_and_die(run, tmp_path, 2, 3, 4)
    assert set(entries(run.checkpoint)) == {0, 2, 4}
    run.start()
    run.query.processAllAvailable()
    run.run(5)
    assert counted(run) == counted_at_once(run)


def test_what_a_run_made_is_owned_if_the_epoch_is_logged_as_the_run_has_run_it(spark, stream):
    run = stream(count_by_key).start()
    run.run(0, 1, 2)
    run.stop()
    inside = spark._jvm.org.apache.spark.sql.execution.streaming.state.binshift.checkpoint
    files = spark._jsc.sc().hadoopConfiguration()
    folder = inside.ControlDir.ofStateRoot(f"file:{run.checkpoint.absolute()}/state", files)
    times = [
        json.loads((run.checkpoint / f"offsets/{e}").read_text().splitlines()[1])["batchTimestampMs"]
        for e in range(3)
    ]
    run_id = str(run.query.runId)

    def is_owned(epoch, ran_at, by=run_id):
        option = spark._jvm.scala.Option.apply(ran_at)
        return inside.LoggedEpochs.read(folder).owns(epoch, by, option)

    assert [is_owned(e, times[e]) for e in range(3)] == [True] * 3
    # It was logged anew, by whatever run; another run that has run the same one has made the same.
    assert not is_owned(1, times[1] + 1)
    assert is_owned(1, times[1], str(uuid.uuid4()))
    # If the epoch is purged, the next one decides.
    run.forget(0, 1, logs=("offsets",))
    assert is_owned(0, times[0])
    assert not is_owned(0, times[0], str(uuid.uuid4()))
    run.forget(2, logs=("offsets",))
    assert not is_owned(2, times[2])
