"""New partitions begin with all files of their bins' old owner, without reading rows."""

import pytest

import binshift.inspect
from binshift import AllAtOnce, Batched, OnDemand
from binshift.inspect.tools.fsck import fsck
from harness import Fault, end_maintenance, until
from local.migrations import (
    SHIP,
    assert_never_migrated,
    begun,
    damage,
    feed_until,
    finish,
    shift,
    snapshots,
    version_of,
)
from local.queries import QUERIES, Query, in_jvm
from local.settings import (
    CHECKSUMS,
    IDS,
    JOIN_4,
    MIN_DELTAS,
    NEEDS_CHECKSUMS,
    NEEDS_JOIN_4,
    ROW_CHECKSUMS,
    SNAPSHOTS,
)

pytestmark = pytest.mark.usefixtures("nothing_left")
#: A limit so small that the tests' states are large enough.
SPLIT = {SHIP + "minBytesToSplit": "1b"}
#: Value, list and map state, none of which is read in the order of time.
VARIABLES = Query(in_jvm("remembered"), "update", ({"stateVarName": "total"}, {"stateVarName": "values"}))


def splitting(stream, name, conf=None):
    """The query, and a run of it after two epochs in which any state is large enough."""
    query = VARIABLES if name == "variables" else QUERIES[name]
    run = stream(query.build, mode=query.mode, conf=SPLIT | (conf or {})).start()
    run.run(0, 1)
    return query, run


def grow(run, epoch, partitions, strategy=None):
    """Rescales to more partitions, without copies."""
    migration = run.attach().rescale(partitions, strategy=strategy or AllAtOnce(), prepare=False)
    return finish(run, migration, epoch), migration.wait(0)


def begun_with_files(run):
    """The number of bins that came at their switch in the last epoch, from an executor or the checkpoint."""
    metrics = run.query.lastProgress.stateOperators[0].customMetrics
    return metrics["binshiftBinsShipped"] + metrics["binshiftBinsFromCheckpoint"]


def rows_of(run):
    """The number of rows in Spark's report."""
    return run.query.lastProgress.stateOperators[0].numRowsTotal


def assert_exact(run, query, epoch, tmp_path, **conf):
    """Compares results before and after a restart, which reads the uploaded files."""
    run.run(epoch)
    run.stop()
    run.start()
    run.run(epoch + 1)
    assert_never_migrated(run, query, epoch + 2, tmp_path, **conf)


@pytest.mark.parametrize(
    ("name", "stores", "conf"),
    [
        ("count", 1, {}),
        ("count", 1, IDS),
        pytest.param("dedup", 1, CHECKSUMS | IDS, marks=NEEDS_CHECKSUMS),
        pytest.param("session-fixed", 1, {}, marks=pytest.mark.matrix),
        pytest.param("join-full", 4, {}, marks=pytest.mark.long),
        pytest.param("join-full", 4, IDS, marks=pytest.mark.matrix),
        pytest.param("variables", 1, IDS, marks=pytest.mark.long),
        ("tws-jvm", 1, {}),
        pytest.param("tws-jvm", 1, IDS, marks=pytest.mark.matrix),
        pytest.param("join-full", 1, JOIN_4 | IDS, marks=[NEEDS_JOIN_4, pytest.mark.long]),
    ],
)
def test_new_partitions_begin_with_the_files_of_an_old_owner(stream, tmp_path, name, stores, conf):
    query, run = splitting(stream, name, conf)
    with Fault("split.begun", "count") as begins, Fault("checkpoint.read", "count") as reads:
        epoch, report = grow(run, 2, 4)
        assert (begins.count, reads.count) == (2 * stores, 0)
    assert report.bins_shipped >= 32
    assert report.bins_from_checkpoint == 0
    # Rows that were dropped from the files don't come back when bins move on.
    epoch, _ = shift(run, epoch)
    assert_exact(run, query, epoch, tmp_path, **conf)


@pytest.mark.parametrize(
    ("name", "partitions", "moved"), [("count", 3, 21), ("count", 6, 42), ("tws-jvm", 3, 21)]
)
def test_bins_of_other_old_owners_are_sent(stream, tmp_path, name, partitions, moved):
    query, run = splitting(stream, name)
    with (
        Fault("split.begun", "count") as begins,
        Fault("checkpoint.read", "count") as reads,
        Fault("sweep", "count") as sweeps,
    ):
        epoch, report = grow(run, 2, partitions)
        assert (begins.count, reads.count) == (partitions - 2, 0)
        # The old owners sweep. If the new partition still did, it would delete the timers that were sent to it.
        assert name == "count" or until(lambda: sweeps.count >= 2)
    assert (report.bins_shipped, report.bins_from_checkpoint) == (moved, 0)
    run.run(*range(epoch, epoch + 4))
    # The number of rows is compared before a restart, which would count them again.
    assert_never_migrated(run, query, epoch + 4, tmp_path)
    if name == "tws-jvm":
        run.stop()
        run.start()
        run.run(epoch + 4)
        assert_never_migrated(run, query, epoch + 5, tmp_path / "restarted")


@pytest.mark.parametrize("point", ["split.link", "none"])
def test_timers_of_others_do_not_fire_where_they_are_not_swept_yet(stream, tmp_path, point):
    """With the files of the checkpoint or of an executor."""
    query, run = splitting(stream, "tws-jvm")
    with Fault("sweep", "throw", always=True), Fault(point, "throw", always=True):
        epoch, report = grow(run, 2, 4)
        assert report.bins_from_checkpoint == (32 if point == "split.link" else 0)
        run.run(*range(epoch, epoch + 3))
        # They leave the partitions to which they belong again, and others come back.
        epoch, _ = grow(run, epoch + 3, 2)
    assert_exact(run, query, epoch, tmp_path)


@pytest.mark.parametrize("point", ["split.link", "none"])
@pytest.mark.parametrize("conf", [{}, {MIN_DELTAS: "1"}], ids=["", "each"])
def test_the_number_of_rows_is_right_at_once_and_nothing_is_counted(stream, tmp_path, conf, point):
    """With the files of the checkpoint or of an executor."""
    query, run = splitting(stream, "count", conf)
    run.attach().rescale(4, strategy=AllAtOnce(), prepare=False)
    with Fault("rows.count", "count") as counts, Fault(point, "throw", always=True):
        epoch = feed_until(run, 2, lambda: begun_with_files(run) == 32)
        assert rows_of(run) == len({row[0] for row in run.batch().select("k").distinct().collect()})
        assert counts.count == 0
    assert_exact(run, query, epoch, tmp_path, **conf)


@pytest.mark.parametrize("strategy", [AllAtOnce(), Batched(8)], ids=str)
def test_bins_that_move_on_at_once_are_counted_where_they_are(stream, tmp_path, strategy):
    query, run = splitting(stream, "count")
    with Fault("checkpoint.read", "count") as reads:
        epoch, _ = grow(run, 2, 4, strategy)
        epoch, _ = grow(run, epoch, 3)
        assert reads.count == 0
    assert len(run.state()) == rows_of(run)
    assert_never_migrated(run, query, epoch, tmp_path)


def test_partitions_are_opened_no_earlier_than_they_have_to(stream):
    _, run = splitting(stream, "count")
    controller = run.attach()
    migration = controller.submit(controller.plan(4, strategy=AllAtOnce()), prepare=False, start_epoch=9)
    run.run(2, 3)
    assert controller.routing().partitions == 2
    finish(run, migration, 4)
    assert migration.wait(0).first_epoch >= 9


def test_a_small_step_takes_effect_at_once(stream):
    _, run = begun(stream, "count")
    migration = run.attach().rescale(4, strategy=AllAtOnce(), prepare=False)
    run.run(2, 3)
    assert migration.wait(0).first_epoch == 3


@pytest.mark.parametrize("strategy", [Batched(8), OnDemand()], ids=str)
def test_other_strategies_are_exact(stream, tmp_path, strategy):
    query, run = splitting(stream, "count")
    epoch, _ = grow(run, 2, 4, strategy)
    assert_exact(run, query, epoch, tmp_path)


@pytest.mark.parametrize("conf", [{}, pytest.param(IDS, marks=pytest.mark.matrix)], ids=["", "ids"])
@pytest.mark.parametrize(
    ("point", "shipped", "begins"),
    # The checkpoint's files are tried next, and its rows last.
    [("split.link", 0, 2), ("split.begun", 0, 4), ("split.done", 0, 4)],
)
def test_what_goes_wrong_costs_time_and_no_state(stream, tmp_path, point, shipped, begins, conf):
    query, run = splitting(stream, "count", conf | {MIN_DELTAS: "1"})
    assert until(lambda: len(snapshots(run)) == 2)
    with Fault(point, "throw", always=True), Fault("split.begin", "count") as tried:
        epoch, report = grow(run, 2, 4)
        assert tried.count == begins
    assert (report.bins_shipped, report.bins_from_checkpoint) == (shipped, 32 - shipped)
    assert_exact(run, query, epoch, tmp_path, **conf)


@pytest.mark.parametrize(
    ("name", "partitions", "begins", "conf"),
    [
        ("count", 4, 2, {}),
        ("count", 3, 1, IDS),
        pytest.param("join-full", 4, 2, JOIN_4 | IDS, marks=[NEEDS_JOIN_4, pytest.mark.long]),
        ("tws-jvm", 3, 1, {}),
        pytest.param("tws-jvm", 3, 1, IDS | ROW_CHECKSUMS, marks=[NEEDS_CHECKSUMS, pytest.mark.long]),
    ],
)
@pytest.mark.parametrize("prepare", [True, False], ids=["prepared", "at-once"])
def test_what_comes_from_the_checkpoint_begins_with_the_files_of_a_snapshot(
    stream, tmp_path, name, partitions, begins, conf, prepare
):
    """Those of the owner of most bins; changes since, and bins of others, follow row by row."""
    conf = {MIN_DELTAS: "3"} | conf
    query, run = splitting(stream, name, conf)
    epoch = feed_until(run, 2, lambda: len(snapshots(run)) == 2)
    with (
        Fault("split.link", "throw", always=True),
        Fault("export.link", "throw", always=True),
        Fault("stage.file", "throw", always=True),
        Fault("split.begun", "count") as begun,
    ):
        migration = run.attach().rescale(partitions, strategy=AllAtOnce(), prepare=prepare)
        epoch = finish(run, migration, epoch)
        assert begun.count == begins
    assert migration.wait(0).bins_from_checkpoint == (32 if partitions == 4 else 21)
    assert name != "count" or rows_of(run) == run.batch().select("k").distinct().count()
    epoch, _ = shift(run, epoch)
    assert_exact(run, query, epoch, tmp_path, **conf)


@pytest.mark.parametrize("damaged", ["MANIFEST", "end of an SST", "rows of an SST"])
def test_no_store_begins_with_a_snapshot_that_is_damaged(stream, tmp_path, damaged):
    conf = {MIN_DELTAS: "2", "spark.sql.streaming.minBatchesToRetain": "200"}
    query, run = splitting(stream, "count", conf)
    epoch = feed_until(run, 2, lambda: [len(found) >= 2 for found in snapshots(run).values()] == [True, True])
    run.stop()
    end_maintenance(run.spark)
    # From here on, old owners make no more snapshots.
    run.spark.conf.set(MIN_DELTAS, "1000")
    run.start()
    run.run(epoch)
    whole = {file: file.read_bytes() for file in (run.checkpoint / "state").rglob("*.*") if file.is_file()}
    for older, newer in (found[-2:] for found in snapshots(run).values()):
        damage(newer, damaged, of_none_in=older)
    with Fault("split.link", "throw", always=True), Fault("split.begun", "count") as begun:
        epoch, report = grow(run, epoch + 1, 4)
        assert begun.count == 2
        run.run(epoch)
    assert report.bins_from_checkpoint == 32
    # Old owners can't be loaded from damaged snapshots of their own.
    for file, content in whole.items():
        file.write_bytes(content)
    assert_exact(run, query, epoch + 1, tmp_path, **conf)


@pytest.mark.parametrize("conf", [{}, pytest.param(IDS, marks=pytest.mark.matrix)], ids=["", "ids"])
def test_a_task_that_fails_after_it_began_is_retried(stream, tmp_path, conf):
    query, run = splitting(stream, "count", conf)
    with Fault("switch.done", "throw") as fault:
        epoch, report = grow(run, 2, 4)
        assert fault.happened
    assert report.bins_shipped == 32
    assert_exact(run, query, epoch, tmp_path, **conf)


@pytest.mark.parametrize("conf", [{}, IDS], ids=["", "ids"])
def test_a_partition_that_comes_back_has_nothing_of_its_files_from_before(stream, tmp_path, conf):
    query, run = splitting(stream, "count", conf)
    epoch, _ = grow(run, 2, 4)
    run.run(epoch, epoch + 1)
    epoch, _ = grow(run, epoch + 2, 2)
    with Fault("split.begun", "count") as begins:
        epoch, _ = grow(run, epoch, 4)
        assert begins.count == 2
    assert_exact(run, query, epoch, tmp_path, **conf)


def test_a_partition_that_was_drained_begins_anew(stream, tmp_path):
    query, run = splitting(stream, "count")
    controller = run.attach()
    emptied = controller.submit(controller.plan([0] * 64, strategy=AllAtOnce()), prepare=False)
    epoch = finish(run, emptied, 2)
    run.run(epoch)
    halves = controller.submit(controller.plan([b % 2 for b in range(64)], strategy=AllAtOnce()), prepare=False)
    with Fault("split.begun", "count") as begins:
        epoch = finish(run, halves, epoch + 1)
        assert begins.count == 1
    assert_exact(run, query, epoch, tmp_path)


def test_the_first_snapshot_holds_what_is_its_own(stream, tmp_path):
    """It has the old owner's files, and deletions that hide the bins of others."""
    query, run = splitting(stream, "count", SNAPSHOTS)
    epoch, _ = grow(run, 2, 4)
    run.run(epoch, epoch + 1, epoch + 2)
    new = str(run.checkpoint / "state/0/3")
    assert until(lambda: version_of(snapshots(run)[new][-1]) > 5)
    run.stop()
    end_maintenance(run.spark)
    with binshift.inspect.open(run.checkpoint) as checkpoint:
        assert list(fsck(checkpoint, checkpoint.versions[-1])) == []
    run.start()
    with Fault("checkpoint.read", "count") as reads:
        run.run(epoch + 3)
        assert reads.count == 0
    assert_never_migrated(run, query, epoch + 4, tmp_path, **SNAPSHOTS)


@pytest.mark.parametrize("conf", [{}, IDS], ids=["", "ids"])
def test_a_switch_that_is_run_again_after_the_driver_died_is_exact(stream, tmp_path, conf):
    query, run = splitting(stream, "count", conf)
    run.attach().rescale(4, strategy=AllAtOnce(), prepare=False)
    next_epoch = feed_until(run, 2, lambda: begun_with_files(run) == 32)
    run.stop()
    run.forget(next_epoch - 1)
    run.start()
    assert_exact(run, query, next_epoch, tmp_path, **conf)
