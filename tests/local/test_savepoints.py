"""A savepoint keeps the state of an epoch, whatever its query deletes later; other queries go on from it."""

from __future__ import annotations

import errno
import itertools
import json
import os
import re
import shutil
from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

import binshift
from binshift import (
    AllAtOnce,
    Batched,
    ConfigurationError,
    MigrationError,
    OnDemand,
    StateFormatError,
    StorageError,
    savepoints,
)
from binshift.control.files import Files
from binshift.control.savepoints import Savepoints
from binshift.inspect.tools.fsck import Severity, fsck
from binshift.savepoints.retained import retained_epochs
from binshift.session import PROVIDER
from harness import STOCK, Fault, StreamRun, end_maintenance, rows, until
from local.migrations import finish
from local.queries import BOTH_SIDES, QUERIES, count_by_key, interval_join, plain_join, session_of_fixed_gap
from local.settings import EAGER, IDS, JOIN_3, ONE_EPOCH, OPERATORS, new
from mortal import changes_of, is_killed


def forked(stream: Callable[..., StreamRun], run: StreamRun, savepoint: str | None) -> StreamRun:
    """A query on a fork, with the same input."""
    fork = stream(run.build, f"fork-of-{savepoint}", mode=run.mode, conf=run.conf)
    fork.input = run.input
    savepoints.fork(run.checkpoint, fork.checkpoint, savepoint=savepoint)
    return fork


def damages(run: StreamRun, checkpoint: Path | None = None) -> list[str]:
    # What has begun to clean up goes on after the query has ended.
    end_maintenance(run.spark)
    with binshift.inspect.open(checkpoint or run.checkpoint) as opened:
        return [str(f) for f in fsck(opened) if f.severity is Severity.DAMAGE]


def count_all(df: DataFrame) -> DataFrame:
    return df.agg(F.count("*").alias("n"))


def files_of_versions(run: StreamRun) -> set[str]:
    return {str(f.relative_to(run.checkpoint)) for f in run.checkpoint.glob("state/*/*/**/*") if f.is_file()}


@pytest.mark.parametrize(("name", "conf"), OPERATORS)
def test_a_fork_has_the_state_of_its_savepoint_and_goes_on(stream, name, conf):
    query = QUERIES[name]
    run = new(stream, name, PROVIDER, conf | EAGER).start()
    saved: dict[str, list[Any]] = {}

    def save(name: str) -> None:
        savepoints.create(run.checkpoint, name)
        saved[name] = run.states(query.state)

    run.run(0, 1)
    save("before")
    migration = run.attach().rescale(5, strategy=Batched(17), prepare=False)
    epoch = 2
    while not migration.status.is_over:
        run.run(epoch)
        save(f"during-{epoch}")
        epoch += 1
    # Partitions that no longer exist have files of savepoints.
    epoch = finish(run, run.attach().rescale(1, strategy=AllAtOnce(), prepare=False), epoch)
    kept = {f"{d}/{n}" for s in savepoints.of(run.checkpoint) for d, names in s.files.items() for n in names}
    before = files_of_versions(run)
    run.run(*range(epoch, epoch + 21))
    assert until(lambda: len(before - files_of_versions(run)) > 5)
    assert kept <= files_of_versions(run)
    run.stop()
    assert damages(run) == []
    for savepoint in ("before", "during-3", f"during-{migration.wait(0).last_epoch}"):
        fork = forked(stream, run, savepoint)
        assert damages(fork) == []
        assert fork.states(query.state) == saved[savepoint]
        fork.start()
        fork.query.processAllAvailable()
        first = min(fork.outputs)
        assert fork.outputs == {e: out for e, out in run.outputs.items() if e >= first}
        assert fork.states(query.state) == run.states(query.state)
        fork.stop()


@pytest.mark.parametrize("conf", [{}, IDS], ids=["format-1", "format-2"])
def test_a_fork_begins_with_any_epoch_that_is_retained(stream, tmp_path, conf):
    retained = {"spark.sql.streaming.minBatchesToRetain": "6"}
    run = stream(count_by_key, conf=conf | EAGER | ONE_EPOCH | retained).start()
    states = {}
    for epoch in range(18):
        if epoch == 10:
            run.attach().rescale(5, strategy=Batched(17), prepare=False)
        run.run(epoch)
        states[epoch] = run.states([{}])
    run.stop()
    run.start()
    run.run(18, 19)
    there = retained_epochs(Files(run.checkpoint))
    assert there == [15, 16, 17, 18, 19]
    for epoch in (15, 17):
        fork = stream(run.build, f"fork-at-{epoch}", mode=run.mode, conf=run.conf)
        fork.input = run.input
        assert savepoints.fork(run.checkpoint, fork.checkpoint, epoch=epoch).epoch == epoch
        assert damages(fork) == []
        assert fork.states([{}]) == states[epoch]
        fork.start()
        fork.query.processAllAvailable()
        # The source has taken notice of all files since, so it reads them in one epoch.
        assert min(fork.outputs) == epoch + 1
        assert fork.states([{}]) == run.states([{}])
        fork.stop()
    savepoints.create(run.checkpoint, "kept", epoch=16)
    before = files_of_versions(run)
    run.run(*range(20, 40))
    assert until(lambda: len(before - files_of_versions(run)) > 5)
    assert forked(stream, run, "kept").states([{}]) == states[16]
    with pytest.raises(
        ConfigurationError, match=r"one of 35 to 39, or a savepoint, .*: kept \(epoch 16\)"
    ) as gone:
        savepoints.fork(run.checkpoint, tmp_path / "none", epoch=16)
    assert gone.value.condition == "EPOCH_NOT_RETAINED"
    with pytest.raises(ConfigurationError, match="either a savepoint or an epoch"):
        savepoints.fork(run.checkpoint, tmp_path / "none", epoch=16, savepoint="kept")


@pytest.mark.parametrize(("name", "conf"), OPERATORS)
def test_a_savepoint_and_a_fork_are_given_back_to_spark_s_provider(stream, tmp_path, name, conf):
    query = QUERIES[name]
    run = new(stream, name, PROVIDER, conf | EAGER).start()
    run.run(0, 1)
    run.attach().rescale(5, strategy=Batched(17), prepare=False)
    run.run(2, 3)
    savepoints.create(run.checkpoint, "kept")
    run.run(*range(4, 9))
    for savepoint in ("kept", None):
        fork = forked(stream, run, savepoint)
        if savepoint is None:
            run.run(9, 10)
            fork.start()
            fork.query.processAllAvailable()
            fork.stop()
        state = fork.states(query.state)
        given = tmp_path / f"given-{savepoint}"
        report = binshift.convert(str(fork.checkpoint), to="rocksdb", output=str(given), spark=run.spark)
        assert report.converted
        stock = new(stream, name, STOCK, conf, f"stock-{savepoint}")
        stock.input, stock.checkpoint = run.input, given
        assert stock.states(query.state) == state
        run.run(11)
        stock.start()
        stock.query.processAllAvailable()
        assert stock.outputs == {e: out for e, out in run.outputs.items() if e >= min(stock.outputs)}
        assert stock.states(query.state) == run.states(query.state)


def test_files_go_once_their_savepoint_is_dropped(stream):
    run = stream(count_by_key, conf=EAGER | ONE_EPOCH).start()
    run.run(0, 1, 2)
    savepoint = savepoints.create(run.checkpoint, "early")
    kept = {f"{d}/{n}" for d, names in savepoint.files.items() for n in names}
    run.run(*range(3, 15))
    assert kept <= files_of_versions(run)
    savepoints.drop(run.checkpoint, "early")
    assert savepoints.of(run.checkpoint) == []
    assert not list((run.checkpoint / "binshift/savepoints").iterdir())
    epoch = 15
    while kept & files_of_versions(run):
        assert epoch < 60
        run.run(epoch)
        until(lambda: not kept & files_of_versions(run), seconds=2)
        epoch += 1


def test_a_savepoint_is_made_while_bins_still_come_on_demand(stream):
    run = stream(count_by_key, conf=EAGER | ONE_EPOCH).start()
    run.run(0, 1)
    run.attach().rescale(4, strategy=OnDemand(), prepare=False)
    states = {}
    for epoch in range(2, 9):
        run.run(epoch)
        savepoints.create(run.checkpoint, f"at-{epoch}")
        states[f"at-{epoch}"] = run.states([{}])
    run.run(*range(9, 20))
    for name, state in states.items():
        assert forked(stream, run, name).states([{}]) == state


def test_a_fork_of_a_running_query_begins_with_its_newest_epoch_and_leaves_no_savepoint(stream):
    run = stream(count_by_key, conf=EAGER | ONE_EPOCH).start()
    run.run(0, 1, 2)
    fork = forked(stream, run, None)
    assert savepoints.of(run.checkpoint) == []
    ids = [json.loads((c / "metadata").read_text())["id"] for c in (run.checkpoint, fork.checkpoint)]
    assert len(set(ids)) == 2
    # Both rescale and clean up, and neither notices the other.
    fork.start()
    controllers = [r.attach() for r in (run, fork)]
    migrations = [
        c.rescale(n, strategy=AllAtOnce(), prepare=False) for c, n in zip(controllers, (5, 3), strict=True)
    ]
    for epoch in range(3, 30):
        run.run(epoch)
        fork.query.processAllAvailable()
    assert [m.status.is_over for m in migrations] == [True, True]
    assert [c.routing().partitions for c in controllers] == [5, 3]
    assert {e: run.outputs[e] for e in fork.outputs} == fork.outputs
    for r in (run, fork):
        r.stop()
        assert damages(r) == []


@pytest.mark.parametrize("conf", [{}, IDS], ids=["format-1", "format-2"])
def test_an_export_has_the_same_state_and_query(stream, tmp_path, conf):
    run = stream(count_by_key, conf=conf | EAGER | ONE_EPOCH).start()
    run.run(0, 1, 2)
    savepoints.create(run.checkpoint, "nightly")
    state = run.states([{}])
    copy = savepoints.export_to(run.checkpoint, "nightly", tmp_path / "backup")
    run.run(3)
    assert (tmp_path / "backup/metadata").read_text() == (run.checkpoint / "metadata").read_text()
    assert run.states([{}], tmp_path / "backup") == state
    assert copy.epoch == 2
    assert copy.linked == 0
    assert damages(run, tmp_path / "backup") == []


def test_a_query_that_is_wound_back_past_a_savepoint_does_not_start_without_ids_in_names(stream):
    run = stream(count_by_key, conf=ONE_EPOCH).start()
    run.run(0, 1, 2, 3)
    savepoints.create(run.checkpoint, "kept")
    state = run.states([{}])
    run.stop()
    end_maintenance(run.spark)
    run.forget(2, 3, logs=("commits", "offsets"))
    run.start()
    with pytest.raises(Exception, match="savepoint kept"):
        run.query.processAllAvailable()
    fork = forked(stream, run, "kept")
    assert fork.states([{}]) == state
    savepoints.drop(run.checkpoint, "kept")
    run.start()
    run.query.processAllAvailable()
    assert run.states([{}]) == state


def test_a_start_reads_only_savepoints_whose_files_it_might_write_over(stream):
    run = stream(count_by_key, conf=ONE_EPOCH).start()
    run.run(0, 1)
    early, late = (savepoints.create(run.checkpoint, name, epoch=e) for name, e in (("early", 0), ("late", 1)))
    run.run(2, 3)
    run.stop()
    end_maintenance(run.spark)
    # Nobody understands it, so whoever reads it fails.
    (run.checkpoint / early.path).write_text("damaged")
    run.start()
    run.run(4)
    run.stop()
    end_maintenance(run.spark)
    run.forget(1, 2, 3, 4, logs=("commits", "offsets"))
    run.start()
    with pytest.raises(Exception, match="savepoint late"):
        run.query.processAllAvailable()
    (run.checkpoint / late.path).unlink()
    run.start()
    run.query.processAllAvailable()


def test_state_that_is_not_in_bins_is_kept_as_well(stream):
    """Spark has such an operator in one partition, and deletes its old versions by version alone."""
    run = stream(count_all, mode="complete", conf=EAGER | ONE_EPOCH).start()
    run.run(0, 1, 2)
    savepoint = savepoints.create(run.checkpoint, "early")
    state = run.states([{}])
    run.run(3, 4)
    before = files_of_versions(run)
    run.run(*range(5, 20))
    assert until(lambda: not before <= files_of_versions(run))
    kept = {f"{d}/{n}" for d, names in savepoint.files.items() for n in names}
    assert kept <= files_of_versions(run)
    assert forked(stream, run, "early").states([{}]) == state


def test_a_fork_that_was_cut_short_is_made_again_and_changes_nothing_of_the_original(
    stream, tmp_path, monkeypatch
):
    run = stream(count_by_key, conf=ONE_EPOCH).start()
    run.run(0, 1, 2)
    savepoints.create(run.checkpoint, "kept")
    files = {f: f.read_bytes() for f in run.checkpoint.rglob("*") if f.is_file()}
    left = iter(range(9))

    def link(source: str, target: str, *, real: Callable[[str, str], None] = os.link) -> None:
        if next(left, None) is None:
            raise OSError(errno.EIO, "the machine goes down on purpose")
        real(source, target)

    with monkeypatch.context() as patch:
        patch.setattr(os, "link", link)
        with pytest.raises(StorageError):
            savepoints.fork(run.checkpoint, tmp_path / "fork", savepoint="kept")
    assert not (tmp_path / "fork/metadata").exists()
    # Another way of copying, too, must not write over what is linked.
    savepoints.export_to(run.checkpoint, "kept", tmp_path / "fork")
    assert {f: f.read_bytes() for f in files} == files
    assert run.states([{}], tmp_path / "fork") == run.states([{}])


@pytest.mark.parametrize("conf", [{}, IDS], ids=["format-1", "format-2"])
def test_a_query_on_half_a_fork_does_not_run_until_it_was_forked_again(stream, conf):
    run = stream(count_by_key, conf=ONE_EPOCH | conf).start()
    run.run(0, 1, 2)
    savepoints.create(run.checkpoint, "kept")
    run.run(3)
    run.stop()
    # The first one has left nothing but folders and its mark.
    for change in (6, 12, 30, -1):
        fork = stream(run.build, f"fork-{change}", mode=run.mode, conf=run.conf)
        fork.input = run.input
        make = partial(savepoints.fork, run.checkpoint, fork.checkpoint, savepoint="kept")
        # At last, everything is there but for the one deletion by which it counts.
        last = changes_of(make) - 1
        shutil.rmtree(fork.checkpoint)
        assert is_killed(make, last if change < 0 else change)
        # Spark itself refuses some.
        why = ".*" if change in (12, 30) else "is a copy of a checkpoint that is not finished"
        assert_refused(fork, why)
        make()
        fork.start()
        fork.query.processAllAvailable()
        assert fork.outputs == {3: run.outputs[3]}
        fork.stop()


def test_a_query_without_state_does_not_run_on_half_a_fork_either(stream):
    run = stream(lambda df: df.dropDuplicates(["k", "v"]), mode="append", conf=ONE_EPOCH).start()
    run.run(0, 1, 2)
    savepoints.create(run.checkpoint, "kept")
    run.run(3)
    fork = stream(lambda df: df.select("k", "v"), "fork", mode="append", conf=run.conf)
    fork.input = run.input
    make = partial(savepoints.fork, run.checkpoint, fork.checkpoint, savepoint="kept", drop_operators=[0])
    last = changes_of(make) - 1

    def cut_short(change: int) -> None:
        shutil.rmtree(fork.checkpoint)
        assert is_killed(make, change)

    def has_no_commits(change: int) -> bool:
        cut_short(change)
        return not list(fork.checkpoint.glob("commits/[0-9]*"))

    # Without the log of commits, Spark itself may refuse it. At last, only one deletion is missing.
    for change in (next(filter(has_no_commits, reversed(range(last)))), last):
        cut_short(change)
        why = "is a copy of a checkpoint that is not finished" + "|metadata file is missing" * (change < last)
        assert_refused(fork, why)
    make()
    fork.start()
    fork.query.processAllAvailable()
    assert list(fork.outputs) == [3]


def assert_refused(fork: StreamRun, why: str) -> None:
    """The query on a fork fails for this reason, and gives nothing."""
    with pytest.raises(Exception, match=why):
        fork.start().query.processAllAvailable()
    assert fork.outputs == {}


def test_a_savepoint_that_is_dropped_while_it_is_made_fails(stream):
    run = stream(count_by_key, conf=ONE_EPOCH).start()
    run.run(0, 1)
    there = Savepoints(Files(run.checkpoint))
    begun = there.begin("kept", 1)
    assert [str(s.name) for s in savepoints.of(run.checkpoint) if not s.is_finished] == ["kept"]
    savepoints.drop(run.checkpoint, "kept")
    with pytest.raises(ConfigurationError, match="was dropped while it was made"):
        there.finish(begun, {}, [])
    assert savepoints.of(run.checkpoint) == []
    assert not list((run.checkpoint / "binshift/savepoints").iterdir())


def test_nothing_is_deleted_while_a_savepoint_is_made_and_fsck_knows_what_is_left(stream):
    run = stream(count_by_key, conf=EAGER | ONE_EPOCH).start()
    run.run(0, 1, 2)
    there = Savepoints(Files(run.checkpoint))
    begun = there.begin("kept", 2)
    with Fault("versions.deleted", "count") as cleaned:
        before = files_of_versions(run)
        run.run(*range(3, 10))
        assert until(lambda: cleaned.count > 4)
    assert before <= files_of_versions(run)
    with binshift.inspect.open(run.checkpoint) as opened:
        found = [f for f in fsck(opened) if "savepoint" in f.what]
    assert [(f.severity, f.where) for f in found] == [(Severity.ORPHAN, begun.path)]
    # Once it is gone, cleanups go on. Later snapshots may still refer to the same SST files.
    # Epochs go on until then, as files stay while there are fewer than two newer snapshots.
    savepoints.drop(run.checkpoint, "kept")
    old = {f for f in before if f.endswith((".zip", ".changelog"))}
    epochs = itertools.count(10)

    def are_gone() -> bool:
        run.run(next(epochs))
        return not old & files_of_versions(run)

    assert until(are_gone)


def test_a_savepoint_whose_files_were_replaced_is_refused(stream, tmp_path):
    run = stream(count_by_key, conf=ONE_EPOCH).start()
    run.run(0, 1)
    savepoints.create(run.checkpoint, "kept")
    file = next((run.checkpoint / "state/0/0").glob("2.changelog"))
    file.write_bytes(file.read_bytes())
    with pytest.raises(StateFormatError, match="was replaced") as replaced:
        savepoints.fork(run.checkpoint, tmp_path / "fork", savepoint="kept")
    assert replaced.value.condition == "SAVEPOINT_DAMAGED"
    assert not (tmp_path / "fork/metadata").exists()


def test_what_cannot_be_done_says_so(stream, tmp_path):
    run = stream(count_by_key, conf=ONE_EPOCH).start()
    run.run(0)
    savepoints.create(run.checkpoint, "one")
    with pytest.raises(ConfigurationError, match="has a savepoint one already"):
        savepoints.create(run.checkpoint, "one")
    with pytest.raises(ConfigurationError, match="letters"):
        savepoints.create(run.checkpoint, "../one")
    with pytest.raises(ConfigurationError, match="has no savepoint 'two'; its savepoints: one"):
        savepoints.drop(run.checkpoint, "two")
    (tmp_path / "there").mkdir()
    (tmp_path / "there/file").touch()
    with pytest.raises(ConfigurationError, match="is not empty"):
        savepoints.fork(run.checkpoint, tmp_path / "there", savepoint="one")


@pytest.mark.parametrize("conf", [{}, IDS], ids=["format-1", "format-2"])
def test_the_driver_makes_the_same_savepoints(stream, conf):
    run = stream(interval_join("leftOuter"), mode="append", conf=JOIN_3 | conf | EAGER | ONE_EPOCH).start()
    controller = run.attach()
    run.run(0, 1)
    controller.rescale(5, strategy=Batched(17), prepare=False)
    for epoch in range(2, 12):
        run.run(epoch)
        end_maintenance(run.spark)
        made, other = (
            controller.savepoint(f"driver-{epoch}"),
            savepoints.create(run.checkpoint, f"other-{epoch}"),
        )
        assert made == savepoints.get(run.checkpoint, f"driver-{epoch}")
        assert (made.epoch, made.files, made.copies) == (other.epoch, other.files, other.copies)
    state = run.states(BOTH_SIDES)
    run.spark.sql(f"CALL binshift.system.savepoint(query => '{run.query.id}', name => 'by-sql')").collect()
    run.run(*range(12, 30))
    for name in ("driver-11", "by-sql"):
        assert forked(stream, run, name).states(BOTH_SIDES) == state
    with pytest.raises(ConfigurationError, match="has a savepoint driver-4 already"):
        controller.savepoint("driver-4")
    with pytest.raises(ConfigurationError, match="letters"):
        controller.savepoint("../one")
    run.stop()
    assert damages(run) == []
    with pytest.raises(MigrationError, match="ended"):
        controller.savepoint("late")
    # It doesn't know the operators yet, and must not make one without their state.
    run.start()
    with pytest.raises(MigrationError, match="has not planned its first epoch"):
        run.attach().savepoint("early")
    assert "early" not in [s.name for s in savepoints.of(run.checkpoint)]


def pairs(df: DataFrame) -> DataFrame:
    return plain_join(df).select("k", "lv", "rv")


def distinct_pairs(df: DataFrame) -> DataFrame:
    return pairs(df).dropDuplicates(["k", "lv", "rv"])


def counted_once(df: DataFrame) -> DataFrame:
    return df.dropDuplicates(["k", "v"]).groupBy("k").agg(F.count("*").alias("n"))


def counted_each_time(df: DataFrame) -> DataFrame:
    return df.groupBy("k").agg(F.count("*").alias("n"))


def in_three(df: DataFrame) -> DataFrame:
    return counted_once(df.dropDuplicates(["k", "v", "t"]))


def with_other_operators(
    stream: Callable[..., StreamRun], run: StreamRun, build: Callable[[DataFrame], DataFrame], *dropped: int
) -> StreamRun:
    """A query with fewer operators on a fork, with the same input."""
    fork = stream(build, f"fork-without-{'-'.join(map(str, dropped))}", mode=run.mode, conf=run.conf)
    fork.input = run.input
    savepoints.fork(run.checkpoint, fork.checkpoint, drop_operators=dropped)
    assert damages(fork) == []
    return fork


@pytest.mark.parametrize("conf", [{}, IDS], ids=["format-1", "format-2"])
def test_a_fork_without_the_last_operator_goes_on_as_if_there_had_never_been_one(stream, conf):
    """The join was operator 1, and is operator 0 of the fork. Its metadata have paths of schemas."""
    run = stream(distinct_pairs, mode="append", conf=JOIN_3 | conf | EAGER | ONE_EPOCH).start()
    alone = stream(pairs, "alone", mode="append", conf=run.conf)
    alone.input = run.input
    alone.start()
    run.run(0, 1)
    run.attach().rescale(5, strategy=Batched(17), prepare=False)
    run.run(2, 3)
    fork = with_other_operators(stream, run, pairs, 0)
    assert not (fork.checkpoint / "state/1").exists()
    alone.query.processAllAvailable()
    assert fork.states(BOTH_SIDES) == alone.states(BOTH_SIDES)
    run.stop()
    run.checkpoint.rename(run.root / "gone")
    for epoch in (4, 7):
        fork.start()
        fork.attach().rescale(epoch - 1, strategy=AllAtOnce(), prepare=False)
        for e in range(epoch, epoch + 3):
            fork.feed(rows(e))
            fork.query.processAllAvailable()
        fork.stop()
    alone.query.processAllAvailable()
    assert sorted(fork.outputs) == [4, 5, 6, 7, 8, 9]
    assert fork.outputs == {e: out for e, out in alone.outputs.items() if e >= 4}
    assert fork.states(BOTH_SIDES) == alone.states(BOTH_SIDES)
    assert damages(fork) == []


@pytest.mark.parametrize("conf", [{}, IDS], ids=["format-1", "format-2"])
@pytest.mark.parametrize("build", [counted_once, in_three])
def test_a_fork_without_the_operators_below_keeps_the_state_of_the_one_above(stream, conf, build):
    run = stream(build, conf=conf | EAGER | ONE_EPOCH).start()
    run.run(0, 1)
    run.attach().rescale(5, strategy=Batched(17), prepare=False)
    run.run(2, 3)
    before = {(r["k"], r["v"]) for e in range(4) for r in rows(e)}
    fork = with_other_operators(stream, run, counted_each_time, *((1,) if build is counted_once else (1, 2)))
    fork.start()
    run.run(4, 5)
    fork.query.processAllAvailable()
    counts = Counter(k for k, _ in before) + Counter(r["k"] for e in (4, 5) for r in rows(e))
    assert {key: value for (key,), (value,) in fork.state()} == counts


@pytest.mark.parametrize("conf", [{}, IDS], ids=["format-1", "format-2"])
def test_an_operator_between_two_others_is_left_out(stream, conf):
    run = stream(in_three, conf=conf | EAGER | ONE_EPOCH).start()
    run.run(0, 1, 2, 3)
    [lowest] = run.states([{"operatorId": "2"}])
    fork = with_other_operators(
        stream, run, lambda df: counted_each_time(df.dropDuplicates(["k", "v", "t"])), 1
    )
    assert fork.states([{"operatorId": "1"}]) == [lowest]
    assert fork.states([{}]) == run.states([{}])
    fork.start()
    run.run(4)
    fork.query.processAllAvailable()
    assert fork.states([{"operatorId": "1"}]) == run.states([{"operatorId": "2"}])


def test_a_query_that_has_lost_or_gained_operators_is_told_which_and_what_to_do(stream):
    run = stream(counted_once, conf=ONE_EPOCH).start()
    run.run(0)
    run.stop()
    for build, message in (
        (
            count_by_key,
            r"lost stateful operators \(1 dedupe\).*binshift fork \S+ NEW --drop-operator 1`, and start",
        ),
        (
            lambda df: df.dropDuplicates(["k", "v"]),
            r"lost stateful operators \(0 stateStoreSave\).*--drop-operator 0`",
        ),
        (
            in_three,
            r"gained stateful operators \(1 dedupe, or 2 dedupe\).*start the query with a new checkpoint",
        ),
        (
            session_of_fixed_gap,
            r"lost and gained stateful operators: .* 0 stateStoreSave, 1 dedupe, .* 0 sessionWindow",
        ),
    ):
        other = stream(build, f"other-{message[:9]}", conf=run.conf)
        other.input, other.checkpoint = run.input, run.checkpoint
        if build is session_of_fixed_gap:
            other.mode = "append"
        other.feed(rows(1))
        other.start()
        with pytest.raises(Exception, match="OPERATORS_CHANGED") as refused:
            other.query.processAllAvailable()
        assert re.search(message, str(refused.value))
        assert not (run.checkpoint / "commits/1").exists()
    run.start()
    run.query.processAllAvailable()
    with pytest.raises(
        ConfigurationError, match="has no operator 2; its stateful operators: 0 stateStoreSave, 1 ded"
    ):
        savepoints.fork(run.checkpoint, run.root / "fork", drop_operators=[2])
