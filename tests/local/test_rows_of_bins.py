"""Each snapshot says how many rows each bin has, so that no store has to count them."""

import json
import os
import zipfile

import pytest

import binshift.inspect
from binshift import AllAtOnce, OnDemand
from binshift.inspect.tools.fsck import fsck
from harness import STOCK, Fault, assert_same_results, end_maintenance
from local.migrations import assert_never_migrated, begun, feed_until, shift, snapshots, totals, version_of
from local.queries import QUERIES
from local.settings import IDS, JOIN_4, MIN_DELTAS, NEEDS_JOIN_4, NO_CHANGELOG, SNAPSHOTS, STORE

pytestmark = pytest.mark.usefixtures("nothing_left")
FILE = "binshift-rows.json"


def started(stream, name, conf):
    return begun(stream, name, **conf)


def rewritten(snapshot, content):
    """Replaces the file in a snapshot, or removes it."""
    other = snapshot.with_suffix(".other")
    with zipfile.ZipFile(snapshot) as old, zipfile.ZipFile(other, "w") as new:
        for name in old.namelist():
            if name != FILE:
                new.writestr(name, old.read(name))
        if content is not None:
            new.writestr(FILE, content)
    os.replace(other, snapshot)
    # Hadoop's checksum, and Spark's.
    for checksum in (f".{snapshot.name}.crc", f"{snapshot.name}.crc"):
        snapshot.with_name(checksum).unlink(missing_ok=True)


def said(snapshot):
    """The numbers of rows that a snapshot tells; None without the file."""
    with zipfile.ZipFile(snapshot) as files:
        return json.loads(files.read(FILE)) if FILE in files.namelist() else None


def partitions(run):
    """The directories of the two partitions of a query."""
    return [str(run.checkpoint / f"state/0/{partition}") for partition in range(2)]


def stopped(run):
    """The snapshots of a run that ends."""
    run.stop()
    end_maintenance(run.spark)
    return [file for files in snapshots(run).values() for file in files]


@pytest.mark.parametrize(
    ("name", "conf"),
    [
        ("count", {}),
        ("tws-jvm", IDS),
        pytest.param("join-full", {}, marks=pytest.mark.long),
        pytest.param("join-full", JOIN_4, marks=[NEEDS_JOIN_4, pytest.mark.long]),
    ],
    ids=["count", "tws", "join", "join-4"],
)
def test_the_numbers_are_those_of_the_rows_whatever_way_bins_have_come(stream, tmp_path, name, conf):
    conf = conf | SNAPSHOTS
    query, run = begun(stream, name, **conf)
    epoch, _ = shift(run, 2)
    epoch, _ = shift(run, epoch, prepare=False)
    epoch, _ = shift(run, epoch, OnDemand(), prepare=False)
    run.run(*range(epoch, epoch + 4))
    assert all(said(file) is not None for file in stopped(run))
    with binshift.inspect.open(run.checkpoint) as checkpoint:
        assert [list(fsck(checkpoint, version)) for version in checkpoint.versions[-6:]] == [[]] * 6
    with Fault("rows.count", "count") as counts:
        run.start().run(epoch + 4)
        epoch, _ = shift(run, epoch + 5)
        run.run(epoch)
        assert counts.count == 0
    assert_never_migrated(run, query, epoch + 1, tmp_path, **conf)


@pytest.mark.parametrize(
    ("content", "conf"),
    [
        pytest.param(None, {}, id="none"),
        pytest.param(None, IDS, id="none-ids", marks=pytest.mark.long),
        pytest.param('{"rows": {"3": 1}, "internal": {}}', {}, id="wrong"),
        pytest.param("{", {}, id="damaged"),
    ],
)
def test_a_snapshot_without_the_numbers_is_counted_once(stream, tmp_path, content, conf):
    """Those of Spark's own provider and of older versions have none."""
    conf = conf | SNAPSHOTS
    query, run = begun(stream, "count", **conf)
    epoch = feed_until(run, 2, lambda: min(len(snapshots(run).get(p, ())) for p in partitions(run)) > 0)
    # Under format 2, the changelogs of later versions name the snapshot.
    run.run(epoch, epoch + 1)
    for file in stopped(run):
        rewritten(file, content)
    with Fault("rows.count", "count") as counts:
        run.start().run(epoch + 2)
        assert counts.count == 2
        epoch, _ = shift(run, epoch + 3)
        epoch, _ = shift(run, epoch, OnDemand(), prepare=False)
        run.run(*range(epoch, epoch + 4))
        assert counts.count == 2
        newest = stopped(run)
        assert said(max(newest, key=version_of)) is not None
        run.start().run(epoch + 4)
        assert counts.count == 2
    assert_never_migrated(run, query, epoch + 5, tmp_path, **conf)


def test_rows_are_counted_by_the_next_task_if_one_could_not(stream, tmp_path):
    query, run = started(stream, "count", SNAPSHOTS)
    epoch = feed_until(run, 2, lambda: min(len(snapshots(run).get(p, ())) for p in partitions(run)) > 0)
    for file in stopped(run):
        rewritten(file, None)
    with Fault("rows.count", "throw") as fault, Fault("rows.count", "count") as counts:
        run.start().run(epoch)
        assert fault.happened
        assert counts.count == 3
        epoch, _ = shift(run, epoch + 1)
        run.run(*range(epoch, epoch + 4))
    assert said(max(stopped(run), key=version_of)) is not None
    with binshift.inspect.open(run.checkpoint) as checkpoint:
        assert [list(fsck(checkpoint, version)) for version in checkpoint.versions[-4:]] == [[]] * 4
    run.start().run(epoch + 4)
    assert_never_migrated(run, query, epoch + 5, tmp_path, **SNAPSHOTS)


def test_fsck_finds_numbers_that_are_of_other_bins(stream):
    # Each version is a snapshot.
    _, run = started(stream, "count", NO_CHANGELOG)
    last = max(stopped(run), key=version_of)
    numbers = said(last)
    (a, n), (b, m) = list(numbers["rows"].items())[:2]
    numbers["rows"] |= {a: n + m, b: 0}
    rewritten(last, json.dumps(numbers))
    with binshift.inspect.open(run.checkpoint) as checkpoint:
        found = [finding.what for finding in fsck(checkpoint, version_of(last))]
    assert f"says that bin {a} has {n + m} rows, and it has {n}" in found
    assert f"says that bin {b} has 0 rows, and it has {m}" in found


def test_rows_that_were_not_counted_are_counted_when_they_are_wanted(stream, tmp_path):
    track = STORE + "rocksdb.trackTotalNumberOfRows"
    query, run = started(stream, "count", SNAPSHOTS | {track: "false"})
    epoch, _ = shift(run, 2)
    run.run(epoch, epoch + 1)
    assert all(said(file) is None for file in stopped(run))
    run.spark.conf.set(track, "true")
    run.start().run(epoch + 2)
    assert_never_migrated(run, query, epoch + 3, tmp_path, **SNAPSHOTS)


@pytest.mark.parametrize("prepare", [True, False])
def test_a_task_that_is_tried_again_counts_from_the_snapshot(stream, tmp_path, prepare):
    query, run = started(stream, "count", {MIN_DELTAS: "1"})
    with Fault("switch.done", "throw") as fault, Fault("rows.count", "count") as counts:
        epoch, _ = shift(run, 2, AllAtOnce(), prepare)
        assert fault.happened
        assert counts.count == 0
    run.run(epoch)
    assert_never_migrated(run, query, epoch + 1, tmp_path, **{MIN_DELTAS: "1"})


@pytest.mark.parametrize("name", ["count", "tws-jvm"])
def test_the_sum_is_exact_in_the_epochs_of_a_rescale_on_demand(stream, name):
    query, run = begun(stream, name)
    oracle = stream(query.build, "oracle", mode=query.mode, provider=STOCK).start()
    migration = run.attach().rescale(4, strategy=OnDemand())
    end = feed_until(run, 2, lambda: migration.status.is_over)
    run.run(end)
    oracle.run(*range(end + 1))
    assert totals(run, *range(end + 1)) == totals(oracle, *range(end + 1))
    assert_same_results(run, oracle, QUERIES[name].state)
