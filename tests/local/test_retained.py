"""A checkpoint keeps exactly the files that recoveries read."""

from __future__ import annotations

import re
from functools import partial
from pathlib import Path
from zipfile import ZipFile

import pytest

import binshift.inspect
from binshift import AllAtOnce
from binshift.inspect.tools.fsck import Severity, fsck
from harness import Fault, StreamRun, end_maintenance, until
from local.migrations import files_of, shifted, snapshots
from local.queries import count_by_key, counted, counted_at_once
from local.settings import IDS, MIN_DELTAS, ONE_EPOCH

RETAIN = "spark.sql.streaming.minBatchesToRetain"
NO_BATCHES = {"spark.sql.streaming.ratioExtraSpaceAllowedInCheckpoint": "0.0"}


def ended(run: StreamRun) -> None:
    run.stop()
    end_maintenance(run.spark)


def versions(run: StreamRun, partition: int, kind: str) -> list[int]:
    folder = run.checkpoint / "state/0" / str(partition)
    return sorted(int(f.name.partition("_")[0].partition(".")[0]) for f in folder.glob(f"*.{kind}"))


def has_snapshots(run: StreamRun, version: int) -> bool:
    return all(versions(run, p, "zip")[-1:] == [version] for p in (0, 1))


def metadata(snapshot: Path) -> str:
    return ZipFile(snapshot).read("metadata").decode()


@pytest.mark.long
@pytest.mark.parametrize("retain", [1, 8])
def test_a_snapshot_of_an_attempt_that_was_not_committed_is_no_base_of_what_is_kept(stream, retain):
    """The driver dies before it logs the commit; then all bins move, and their old owners clean up."""
    after = max(6, 2 + retain)
    run = stream(count_by_key, conf=IDS | ONE_EPOCH | NO_BATCHES | {MIN_DELTAS: "1", RETAIN: "100"}).start()
    for epoch in range(3):
        run.run(epoch)
        assert until(partial(has_snapshots, run, epoch + 1))
    ended(run)
    run.forget(2)
    run.spark.conf.set(MIN_DELTAS, "1000")
    run.spark.conf.set(RETAIN, str(retain))
    with Fault("snapshot.upload", "throw", always=True):
        run.start()
        run.query.processAllAvailable()
        run.run(3)
        controller = run.attach()
        controller.submit(controller.plan(shifted(controller), strategy=AllAtOnce()), prepare=False)
        run.run(*range(4, after))
        ended(run)
    # The next snapshot of partition 0; that of partition 1, which adopted its bins, is not uploaded any more.
    before = {f for files in snapshots(run).values() for f in files}
    run.spark.conf.set(MIN_DELTAS, "1")
    run.start()
    run.run(after)
    assert until(partial(has_snapshots, run, after + 1))
    ended(run)
    for file in set(snapshots(run)[str(run.checkpoint / "state/0/1")]) - before:
        file.unlink()
    run.spark.conf.set(MIN_DELTAS, "1000")
    with Fault("snapshot.upload", "throw", always=True), Fault("versions.deleted", "count") as cleaned:
        run.start()
        run.run(after + 1)
        assert until(lambda: cleaned.count >= 4)
        ended(run)
        run.start()
        run.run(after + 2)
    assert counted(run) == counted_at_once(run)
    for batch in range(after + 3 - retain, after + 2):
        assert run.state(batchId=batch), f"epoch {batch} cannot be read any more"


@pytest.mark.parametrize("conf", [{}, IDS], ids=["format 1", "format 2"])
def test_each_version_that_is_kept_has_all_of_its_files(stream, conf):
    """An epoch is repeated under other ids, and versions are read that nothing else refers to."""
    run = stream(count_by_key, conf=ONE_EPOCH | NO_BATCHES | {MIN_DELTAS: "1", RETAIN: "2"} | conf).start()
    run.run(0, 1, 2)
    ended(run)
    run.forget(2)
    run.start()
    epochs = iter(range(3, 1000))

    def is_clean() -> bool:
        run.run(next(epochs))
        return all(min(versions(run, p, "zip"), default=0) > 4 for p in (0, 1))

    assert until(is_clean)
    ended(run)
    with binshift.inspect.open(run.checkpoint) as checkpoint:
        found = [f for version in checkpoint.versions[-2:] for f in fsck(checkpoint, version)]
    assert [f for f in found if f.severity is Severity.DAMAGE] == []
    for partition in (0, 1):
        folder = run.checkpoint / "state/0" / str(partition)
        used = {f for zip in folder.glob("*.zip") for f in re.findall(r"[0-9]+-[-0-9a-f]+\.sst", metadata(zip))}
        assert used == {f.name for f in (folder / "SSTs").glob("*.sst")}
    assert counted(run) == counted_at_once(run)


@pytest.mark.parametrize("what", ["files are gone", "zip is empty", "zip is cut short"])
def test_a_cleanup_keeps_an_older_snapshot_if_the_oldest_that_it_needs_is_damaged(stream, what):
    """As if it had been uploaded when files of it were gone already, or a machine had lost its power."""
    run = stream(count_by_key, conf=ONE_EPOCH | NO_BATCHES | {MIN_DELTAS: "1", RETAIN: "100"}).start()
    folder = run.checkpoint / "state/0/0"
    epochs = iter(range(1000))

    def files(version: int) -> set[str]:
        return files_of(folder / f"{version}.zip")

    def replaced() -> dict[int, set[str]]:
        """The files of snapshots that no other one has, because they were compacted at once."""
        there = versions(run, 0, "zip")
        own = {v: files(v) - set().union(*(files(w) for w in there if w != v)) for v in there[1:-1]}
        return {v: some for v, some in own.items() if some}

    while not replaced():
        run.run(next(epochs))
    ended(run)
    damaged, newest = max(replaced()), versions(run, 0, "zip")[-1]
    before = max(v for v in versions(run, 0, "zip") if v < damaged)
    zip_ = folder / f"{damaged}.zip"
    match what:
        case "files are gone":
            for file in replaced()[damaged]:
                (folder / "SSTs" / file).unlink()
        case "zip is empty":
            zip_.write_bytes(b"")
        case _:
            zip_.write_bytes(zip_.read_bytes()[:60])
    run.spark.conf.set(MIN_DELTAS, "1000")
    run.spark.conf.set(RETAIN, str(newest - damaged + 1))
    with Fault("snapshot.upload", "throw", always=True), Fault("versions.deleted", "count") as cleaned:
        run.start()
        run.run(next(epochs))
        assert until(lambda: cleaned.count >= 4)
        ended(run)
    assert versions(run, 0, "zip")[0] == before
    # When it isn't needed any more, it goes like the others, and so do its files.
    run.spark.conf.set(MIN_DELTAS, "1")
    run.spark.conf.set(RETAIN, "2")
    run.start()

    def is_gone() -> bool:
        run.run(next(epochs))
        there = versions(run, 0, "zip")
        if there[0] <= damaged:
            return False
        return {f.name for f in (folder / "SSTs").glob("*.sst")} <= set().union(*map(files, there))

    assert until(is_gone)
    ended(run)
    assert counted(run) == counted_at_once(run)


@pytest.mark.parametrize("ids", [False, True], ids=["format 1", "format 2"])
def test_each_retained_version_can_be_recovered_whatever_happened_and_nothing_else_is_kept(spark, ids):
    lives = spark._jvm.org.apache.spark.sql.execution.streaming.state.binshift.TestRetention
    assert lives.faults(0, 60, 80, ids, "") == ""


@pytest.mark.parametrize("ids", [False, True], ids=["format 1", "format 2"])
def test_attempts_that_get_into_each_others_way_cost_no_retained_version(spark, ids):
    lives = spark._jvm.org.apache.spark.sql.execution.streaming.state.binshift.TestRetention
    assert lives.faultsOfAttempts(ids, "") == ""
    wrong = ["snapshots are whole", *(["own attempts count", "own files may go"] if ids else [])]
    for rule in wrong:
        assert re.search("lacks|names no snapshot", lives.faultsOfAttempts(ids, rule)), rule


def test_lives_of_checkpoints_find_that_files_of_a_snapshot_that_stays_are_deleted(spark):
    lives = spark._jvm.org.apache.spark.sql.execution.streaming.state.binshift.TestRetention
    assert re.search("lacks|there is no plan", lives.faults(0, 20, 80, False, "files are not shared"))
