"""If the routing log isn't whole, a start is refused and writes nothing; no recovery misses an entry."""

import json
import shutil
import zlib
from pathlib import Path
from zipfile import ZipFile

import pytest

import binshift
import binshift.inspect
from binshift import AllAtOnce, Batched, StateFormatError
from binshift.inspect.tools.fsck import fsck
from harness import STOCK, Fault, end_maintenance, entries, lose, rows, until
from local.queries import count_by_key, counted, counted_at_once
from local.settings import IDS, MIN_DELTAS, ONE_EPOCH
from local.sinks import fail_at

BINS = "spark.sql.streaming.stateStore.binshift.bins"
VERIFY_EMPTY = "spark.sql.streaming.verifyCheckpointDirectoryEmptyOnStart"
RETAIN = "spark.sql.streaming.minBatchesToRetain"
HISTORY = "spark.sql.streaming.stateStore.binshift.routing.minEntriesToRetain"


def contents(folder):
    return {f: f.read_bytes() for f in folder.rglob("*") if f.is_file()}


def turn(run):
    """Exchanges all bins from the epoch after the next one on; the number of partitions stays."""
    controller = run.attach()
    turned = [1 - owner for owner in controller.routing().assignment]
    controller.submit(controller.plan(turned, strategy=AllAtOnce()), prepare=False)


def turned(stream, *epochs, **kwargs):
    """A stopped query that has run epochs 0 and 1 and has exchanged all bins at epoch 2."""
    run = stream(count_by_key, **kwargs).start()
    run.run(0)
    turn(run)
    run.run(1, 2, 3)
    assert run.attach().routing().epoch == 2
    run.stop()
    end_maintenance(run.spark)
    return run


def retained(run, partition, *, ids=False):
    """Finds the versions of a partition that others need; -1 if there are none."""
    jvm = run.spark._jvm.org.apache.spark.sql.execution.streaming.state.binshift
    return jvm.TestRetained.of(str(run.checkpoint / "state"), partition, ids)


def needed(run, version, *, ids=False):
    """The oldest version of each partition that others need if only `version` is retained."""
    return [retained(run, p, ids=ids).oldest(version) for p in (0, 1)]


def refused(run, reason):
    """Checks that a start fails with the reason and changes no file but Spark's logs, which are restored."""
    # Spark may still upload snapshots of the run before.
    end_maintenance(run.spark)
    before, copy = contents(run.checkpoint), run.root / "copy"
    shutil.copytree(run.checkpoint, copy)
    run.feed(rows(5))
    run.start()
    with pytest.raises(Exception, match=reason):
        run.query.processAllAvailable()
    run.stop()
    end_maintenance(run.spark)
    after = contents(run.checkpoint)
    spark = {"offsets", "sources"}
    changed = {
        f.relative_to(run.checkpoint).parts[0] for f in {*before, *after} if before.get(f) != after.get(f)
    }
    assert changed <= spark
    shutil.rmtree(run.checkpoint)
    copy.rename(run.checkpoint)


def goes_on(run):
    run.start()
    run.run(7)
    assert counted(run) == counted_at_once(run)
    run.stop()


def test_a_start_that_is_refused_has_written_nothing(stream, tmp_path):
    run = turned(stream)
    offsets = run.checkpoint / "offsets"
    shutil.copytree(offsets, tmp_path / "offsets")
    run.forget(1, 2, 3, logs=["offsets"])
    refused(run, "has commits/3")
    shutil.rmtree(offsets)
    shutil.copytree(tmp_path / "offsets", offsets)
    goes_on(run)


def test_a_stale_or_lost_entry_refuses_the_start(stream, tmp_path):
    run = stream(count_by_key).start()
    run.run(0, 1)
    shutil.copytree(run.checkpoint / "binshift", tmp_path / "stale")
    turn(run)
    run.run(2, 3)
    run.stop()
    routing = run.checkpoint / "binshift/routing"
    shutil.copytree(routing, tmp_path / "routing")
    # The switch's epoch is the last one, committed or not.
    lose(entries(run.checkpoint)[3])
    refused(run, "epoch 3 was run with the routing table of epoch 3 .* lost or changed")
    # A reader would find the bins at both owners.
    with pytest.raises(binshift.ConfigurationError, match="epoch 3 was run with the routing table of epoch 3"):
        binshift.convert(str(run.checkpoint), to="rocksdb", output=str(tmp_path / "out"), spark=run.spark)
    assert not (tmp_path / "out").exists()
    with binshift.inspect.open(run.checkpoint) as checkpoint:
        assert checkpoint.routing(3).partitions == 2
        with pytest.raises(StateFormatError, match="epoch 3 was run with the routing table 3:"):
            checkpoint.routing(4)
        with pytest.raises(StateFormatError, match="epoch 3 was run with the routing table 3:"):
            checkpoint.scan(checkpoint.sources(version=4)[0])
        assert any("is missing" in str(f) for f in fsck(checkpoint))
    run.forget(3)
    refused(run, "epoch 3 was run with the routing table of epoch 3 .* lost or changed")
    shutil.rmtree(run.checkpoint / "binshift")
    shutil.copytree(tmp_path / "stale", run.checkpoint / "binshift")
    refused(run, "epoch 3 was run with the routing table of epoch 3 .* older than the rest")
    shutil.rmtree(routing)
    shutil.copytree(tmp_path / "routing", routing)
    goes_on(run)
    # A run of one epoch, with which Spark hasn't logged the entry; the run before has.
    run.start()
    run.run(8)
    run.stop()
    shutil.rmtree(routing)
    shutil.copytree(tmp_path / "stale/routing", routing)
    refused(run, "with the routing table of epoch 3")


def test_a_hole_in_the_routing_log_is_noticed_by_start_readers_and_recovery(stream, tmp_path):
    with Fault("snapshot.upload", "throw", always=True):
        run = stream(count_by_key, conf={MIN_DELTAS: "1000"}).start()
        run.run(0)
        for epoch in (1, 3, 5):
            turn(run)
            run.run(epoch, epoch + 1)
        run.stop()
        end_maintenance(run.spark)
    routing = run.checkpoint / "binshift/routing"
    shutil.copytree(routing, tmp_path / "routing")

    def restore():
        shutil.rmtree(routing)
        shutil.copytree(tmp_path / "routing", routing)

    for epoch in (4, 2):
        restore()
        lose(entries(run.checkpoint)[epoch])
        with pytest.raises(Exception, match=f"no entry for epoch {epoch}"):
            run.state()
        run.start()
        run.feed(rows(7))
        with pytest.raises(Exception, match=f"no entry for epoch {epoch}"):
            run.query.processAllAvailable()
        run.stop()
        end_maintenance(run.spark)
    restore()
    goes_on(run)


def test_an_entry_that_nothing_names_is_neither_obeyed_nor_a_reason_to_refuse(stream):
    run = stream(count_by_key, conf={MIN_DELTAS: "1000"}).start()
    run.run(0)
    turn(run)
    run.run(1, 2, 3)
    run.stop()
    end_maintenance(run.spark)
    there = entries(run.checkpoint)
    whole = run.state()
    stray = json.loads(there[2].read_text()) | {"epoch": 3, "previous": there[2].name}
    stray["assignment"] = [1 - owner for owner in stray["assignment"]]
    text = json.dumps(stray)
    strays = [f"3-{zlib.crc32(text.encode()):08x}", "3-00000000"]
    for name, content in zip(strays, [text, "{"], strict=True):
        (there[2].parent / name).write_text(content)
    assert run.state() == whole
    with binshift.inspect.open(run.checkpoint) as checkpoint:
        assert checkpoint.routing().epoch == 2
    log = run.spark._jvm.org.apache.spark.sql.binshift.TestLog
    log.listen()
    goes_on(run)
    (said,) = [line for line in log.heard() if "It ignores" in line]
    log.end()
    assert f"continues with {there[2]}. " in said.replace("file:", "")
    assert all(name in said for name in strays)
    run.start()
    assert run.attach().routing().epoch == 2
    run.stop()


@pytest.mark.parametrize("snapshots", [False, pytest.param(True, marks=pytest.mark.matrix)])
def test_entries_that_a_recovery_may_need_stay_whatever_their_number(stream, snapshots):
    conf = ONE_EPOCH | {RETAIN: "2", HISTORY: "0", MIN_DELTAS: "1" if snapshots else "1000"}
    run = stream(count_by_key, conf=conf)
    with Fault("snapshot.upload", "count" if snapshots else "throw", always=not snapshots):
        run.start()
        run.run(0)
        for epoch in range(1, 13, 2):
            turn(run)
            run.run(epoch, epoch + 1)
        if snapshots:
            # The base of recoveries moves on once all stores have snapshots after the last of the switches.
            epochs = iter(range(13, 1000))

            def few():
                run.run(next(epochs))
                return len(entries(run.checkpoint)) < 6

            assert until(few)
        run.stop()
        end_maintenance(run.spark)
    assert snapshots or len(entries(run.checkpoint)) == 7
    goes_on(run)


def empty_snapshot(path: Path) -> None:
    with ZipFile(path, "w") as archive:
        archive.writestr("metadata", 'v1\n{"sstFiles":[],"numKeys":0}')


def test_a_snapshot_of_an_attempt_that_was_not_committed_ends_no_dependence(stream):
    with Fault("snapshot.upload", "throw", always=True):
        run = turned(stream, conf=IDS | ONE_EPOCH | {MIN_DELTAS: "1000"})
        run.start()
        run.run(4, 5, 6)
        run.stop()
        end_maintenance(run.spark)
    state = run.checkpoint / "state"
    assert not list(state.rglob("*.zip"))
    # All changes of the bins that have left are needed, from the beginning.
    assert needed(run, 7, ids=True) == [1, 1]
    for partition in (0, 1):
        empty_snapshot(state / f"0/{partition}/5_of-another-attempt.zip")
    assert needed(run, 7, ids=True) == [1, 1]
    for partition in (0, 1):
        changelog = next((state / f"0/{partition}").glob("5_*.changelog"))
        empty_snapshot(state / f"0/{partition}/{changelog.stem}.zip")
    assert needed(run, 4, ids=True) == [1, 1]
    assert needed(run, 7, ids=True) == [-1, -1]
    # When the snapshots count, Spark has purged their ids from its log; later changelogs have the ids, too.
    run.forget(4)
    assert needed(run, 7, ids=True) == [-1, -1]
    for partition in (0, 1):
        for changelog in (state / f"0/{partition}").glob("[67]_*.changelog"):
            changelog.rename(changelog.with_suffix(".away"))
    assert needed(run, 7, ids=True) == [1, 1]
    # No existing file is used instead of a file of the committed attempt.
    for partition in (0, 1):
        for changelog in (state / f"0/{partition}").glob("*.away"):
            changelog.rename(changelog.with_suffix(".changelog"))
        snapshot = next(f for f in (state / f"0/{partition}").glob("5_*.zip") if "another" not in f.name)
        snapshot.unlink()
    assert needed(run, 7, ids=True) == [1, 1]


def test_state_is_read_under_the_table_of_its_epoch_and_not_under_the_newest_one(stream):
    run, oracle = stream(count_by_key).start(), stream(count_by_key, "oracle", provider=STOCK).start()
    run.run(0)
    turn(run)
    run.run(1, 2, 3)
    turn(run)
    run.run(4)
    run.stop()
    fail_at(run, 5)
    run.stop()
    assert list(entries(run.checkpoint)) == [0, 2, 5]
    assert not (run.checkpoint / "commits/5").exists()
    oracle.run(*range(5))
    assert run.state() == oracle.state()
    for epoch in range(5):
        assert run.state(batchId=epoch) == oracle.state(batchId=epoch), f"epoch {epoch}"


def test_state_of_runs_of_one_epoch_is_not_read_under_another_table(stream):
    run = stream(count_by_key).start()
    run.run(0)
    turn(run)
    run.stop()
    for epoch in (1, 2, 3):
        run.feed(rows(epoch))
        run.start(availableNow=True).query.awaitTermination()
    _, newest = entries(run.checkpoint)
    # In the log of offsets, no epoch of such a run names an entry.
    assert not any("routingEntry" in f.read_text() for f in (run.checkpoint / "offsets").glob("[0-9]*"))
    lose(entries(run.checkpoint)[newest])
    with pytest.raises(Exception, match=f"was run with the routing table of epoch {newest}"):
        run.state()


@pytest.mark.parametrize("replaced", [False, True], ids=["lost", "of another table"])
def test_state_is_not_read_under_another_table_than_its_epoch_was_run_with(stream, replaced):
    run = turned(stream)
    initial, newest = entries(run.checkpoint).values()
    (newest.parent / f".{newest.name}.crc").unlink(missing_ok=True)
    before, whole, entry = run.state(batchId=1), run.state(batchId=3), newest.read_text()
    if replaced:
        other = json.loads(entry)
        other["assignment"] = json.loads(initial.read_text())["assignment"]
        newest.write_text(json.dumps(other))
    else:
        newest.unlink()
    assert run.state(batchId=1) == before
    for options in ({}, {"batchId": 3}, {"batchId": 2}):
        with pytest.raises(
            Exception, match="was changed" if replaced else "run with the routing table of epoch 2"
        ):
            run.state(**options)
    newest.write_text(entry)
    assert run.state() == whole


def test_a_damaged_entry_of_the_history_is_named(stream):
    run = turned(stream, conf=ONE_EPOCH)
    run.start()
    run.run(4)
    entries(run.checkpoint)[0].write_text("{")
    with pytest.raises(binshift.ConfigurationError, match="routing/0") as damaged:
        run.attach().history()
    assert damaged.value.condition == "ROUTING_LOG_DAMAGED"


def test_versions_that_are_gone_are_kept_for_nobody(stream):
    with Fault("snapshot.upload", "throw", always=True):
        run = turned(stream, conf=ONE_EPOCH | {MIN_DELTAS: "1000"})
    assert needed(run, 4) == [1, 1]
    for version in (1, 2):
        (run.checkpoint / f"state/0/0/{version}.changelog").unlink()
    assert needed(run, 4) == [-1, 1]


def test_entries_from_before_the_oldest_file_are_not_read(stream):
    with Fault("snapshot.upload", "throw", always=True):
        run = turned(stream, conf=ONE_EPOCH | {MIN_DELTAS: "1000"})
        run.start()
        turn(run)
        run.run(4, 5, 6)
        run.stop()
        end_maintenance(run.spark)
    state = run.checkpoint / "state"
    newest = max(entries(run.checkpoint))
    assert newest > 2
    lasting, anew = ([retained(run, p) for p in (0, 1)] for _ in range(2))
    assert [one.oldest(7) for one in lasting] == [1, 1]
    # A replaying task lists the entries before some of them are deleted.
    assert [one.partitionsAt(7) for one in anew] == [2, 2]
    for partition in (0, 1):
        for version in range(1, newest):
            (state / f"0/{partition}/{version}.changelog").unlink()
        empty_snapshot(state / f"0/{partition}/{newest}.zip")
    lose(entries(run.checkpoint)[0])
    assert [one.oldest(7) for one in anew] == [newest, newest]
    assert [one.oldest(7) for one in lasting] == [newest, newest]


def test_versions_are_kept_for_a_partition_that_has_no_directory_yet_and_not_for_a_retired_one(stream):
    with Fault("snapshot.upload", "throw", always=True):
        run = turned(stream, conf=ONE_EPOCH | {MIN_DELTAS: "1000"})
        run.start()
        run.attach().rescale(1, strategy=AllAtOnce(), prepare=False)
        run.run(4, 5, 6)
        run.stop()
        end_maintenance(run.spark)
    state = run.checkpoint / "state"
    shutil.rmtree(state / "0/1")
    assert retained(run, 0).oldest(3) == 1
    # The partition that owns all bins again has a snapshot of them.
    empty_snapshot(state / "0/0/7.zip")
    assert retained(run, 0).oldest(7) == -1


def test_a_snapshot_of_an_attempt_that_was_not_committed_is_no_base_of_what_others_need(stream):
    with Fault("snapshot.upload", "throw", always=True):
        run = turned(stream, conf=IDS | ONE_EPOCH | {MIN_DELTAS: "1000"})
    state = run.checkpoint / "state"

    def upload(version):
        for folder in (state / "0/0", state / "0/1"):
            (changelog,) = folder.glob(f"{version}_*.changelog")
            empty_snapshot(changelog.with_suffix(".zip"))

    upload(1)
    assert needed(run, 4, ids=True) == [1, 1]
    # Spark would use it to make version 2.
    for partition in (0, 1):
        empty_snapshot(state / f"0/{partition}/2_of-another-attempt.zip")
    assert needed(run, 4, ids=True) == [1, 1]
    upload(2)
    assert needed(run, 4, ids=True) == [2, 2]


def test_the_first_epoch_keeps_its_layout_when_it_is_run_again(stream):
    run = stream(count_by_key, conf=ONE_EPOCH | {MIN_DELTAS: "1"}).start()
    run.run(0)
    assert until(lambda: any((run.checkpoint / "state").rglob("1.zip")))
    run.stop()
    end_maintenance(run.spark)
    run.forget(0)
    run.spark.conf.set(BINS, "128")
    refused(run, r"64 bins .* cannot go on with 128")
    run.spark.conf.unset(BINS)
    written = (run.checkpoint / "binshift/layout.json").stat().st_mtime_ns
    entry = entries(run.checkpoint)[0].stat().st_mtime_ns
    goes_on(run)
    # Another driver that works with them may be alive.
    assert (run.checkpoint / "binshift/layout.json").stat().st_mtime_ns == written
    assert [f.stat().st_mtime_ns for f in entries(run.checkpoint).values()] == [entry]


def test_a_query_that_is_wound_back_to_nothing_begins_with_its_own_bins(stream):
    run = stream(count_by_key, conf={MIN_DELTAS: "1", VERIFY_EMPTY: "false"}).start()
    run.run(0)
    run.attach().rescale(4, strategy=Batched(16), prepare=False)
    run.run(1, 2, 3, 4)
    assert until(lambda: any((run.checkpoint / "state").rglob("3.zip")))
    run.stop()
    end_maintenance(run.spark)
    run.forget(*range(5), logs=("commits", "offsets"))
    run.spark.conf.set(BINS, "128")
    goes_on(run)
    assert json.loads((run.checkpoint / "binshift/layout.json").read_text())["bins"] == 128
