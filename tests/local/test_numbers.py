"""Spark's reports stay right before, during and after each change of the number of partitions."""

import json

import pytest

from binshift import AllAtOnce, Batched
from binshift.session import PROVIDER
from harness import STOCK, until
from local.migrations import feed_until, shift, snapshots, version_of
from local.queries import QUERIES, count_by_key, deduplicate
from local.settings import JOIN_3, ONE_EPOCH, ROW_CHECKSUMS, SNAPSHOTS


def keys_of(rows):
    return {key for key, _ in rows}


@pytest.mark.long
def test_progress_and_sources_tell_the_truth_at_every_epoch(stream):
    run, oracle = stream(count_by_key).start(), stream(count_by_key, "oracle", provider=STOCK).start()
    targets = {0: 5, 4: 2, 8: 1}
    partitions_by_epoch = {}
    for epoch in range(12):
        run.run(epoch)
        oracle.run(epoch)
        operator = run.progress(epoch).stateOperators[0]
        expected = oracle.progress(epoch).stateOperators[0]
        assert operator.numRowsTotal == expected.numRowsTotal
        assert operator.numRowsUpdated == expected.numRowsUpdated
        n = operator.numShufflePartitions
        partitions_by_epoch[epoch] = n
        assert operator.numStateStoreInstances == n
        assert operator.customMetrics["binshiftBinsOwned"] == 64
        assert run.state() == oracle.state()
        assert [m.numPartitions for m in run.metadata()] == [n]
        if epoch in targets:
            run.attach().rescale(targets[epoch], strategy=Batched(24), prepare=False)
    assert set(partitions_by_epoch.values()) == {1, 2, 5}
    for epoch, n in partitions_by_epoch.items():
        # Earlier batches, which had other numbers of partitions, can be read as well.
        assert run.state(batchId=epoch) == oracle.state(batchId=epoch), f"epoch {epoch}, {n} partitions"


def test_metrics_say_what_moved(stream):
    run = stream(count_by_key).start()
    run.run(0)
    total = run.progress(0).stateOperators[0].numRowsTotal
    turned = [1 - owner for owner in run.attach().routing().assignment]
    controller = run.attach()
    controller.submit(controller.plan(turned, strategy=AllAtOnce()), prepare=False)
    run.run(1, 2, 3)
    at_switch = run.progress(2).stateOperators[0].customMetrics
    rows_before = run.progress(1).stateOperators[0].numRowsTotal
    assert rows_before > total
    assert at_switch["binshiftBinsAdopted"] == 64
    assert at_switch["binshiftBinsReleased"] == 64
    assert at_switch["binshiftRowsAdopted"] == rows_before
    assert at_switch["binshiftBytesAdopted"] > 20 * rows_before
    assert at_switch["binshiftAdoptMs"] > 0
    for epoch in (1, 3):
        quiet = run.progress(epoch).stateOperators[0].customMetrics
        assert quiet["binshiftBinsAdopted"] == quiet["binshiftRowsAdopted"] == quiet["binshiftAdoptMs"] == 0


def test_the_change_feed_can_be_read(stream):
    run = stream(deduplicate).start()
    run.run(0, 1, 2)
    feed = run.spark.read.format("statestore").option("readChangeFeed", "true")
    rows = feed.option("changeStartBatchId", 0).load(str(run.checkpoint)).collect()
    keys = {r.key.k for r in rows}
    assert keys == {r.k for r in run.batch().select("k").distinct().collect()}
    assert {r.change_type for r in rows} == {"update"}


@pytest.mark.parametrize(("partitions", "next"), [(4, 3), (1, 2)])
def test_the_change_feed_names_the_epoch_at_which_partitions_came_or_went(stream, partitions, next):
    run = stream(deduplicate, conf=ONE_EPOCH).start()
    run.run(0)
    run.attach().rescale(partitions, strategy=AllAtOnce(), prepare=False)
    run.run(1, 2, 3)
    assert run.attach().routing().epoch == 2
    run.stop()

    def feed(first, last):
        options = {"readChangeFeed": "true", "changeStartBatchId": first, "changeEndBatchId": last}
        reader = run.spark.read.format("statestore").options(**options)
        return {r.key.k for r in reader.load(str(run.checkpoint)).collect()}

    for first in range(next):
        with pytest.raises(Exception, match=f"across epoch 2, .* up to batch 1, or from batch {next} on"):
            feed(first, 3)
    # Each key is new only once.
    files = sorted(run.input.glob("*.json"))
    keys = [{json.loads(line)["k"] for line in f.read_text().splitlines()} for f in files]
    assert feed(0, 1) == keys[0] | keys[1]
    old = keys[0].union(*keys[1:next])
    assert feed(next, 3) == keys[3].union(*keys[next:]) - old


@pytest.mark.long
@pytest.mark.few
@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("tumbling-append", {}),
        ("join-full", {"storeName": "left-keyWithIndexToValue"}),
        ("tws-jvm", {"stateVarName": "values"}),
        ("tws-jvm", {"stateVarName": "minutes"}),
    ],
)
def test_the_change_feed_is_that_of_the_stock_provider(stream, name, options):
    query = QUERIES[name]
    feeds = []
    for provider in (PROVIDER, STOCK):
        run = stream(query.build, provider, mode=query.mode, provider=provider, conf=ROW_CHECKSUMS).start()
        run.run(0, 1, 2, 3)
        feed = run.spark.read.format("statestore").options(
            readChangeFeed="true", changeStartBatchId="0", **options
        )
        feeds.append(sorted(repr(r) for r in feed.load(str(run.checkpoint)).collect()))
    assert feeds[0] == feeds[1] != []


def test_a_partition_rebuilt_from_a_snapshot_and_changelogs_holds_what_it_adopted(stream):
    conf = {"spark.sql.streaming.stateStore.rocksdb.compactOnCommit": "false"}
    run = stream(count_by_key, conf=conf).start()
    run.run(0)
    turned = [1 - owner for owner in run.attach().routing().assignment]
    controller = run.attach()
    controller.submit(controller.plan(turned, strategy=AllAtOnce()), prepare=False)
    run.run(1, 2, 3)
    committed = run.state()
    # A new run loads each partition from the checkpoint, and replays the changelog of the switch.
    run.stop()
    run.start()
    run.run(4)
    batch = {(r.k, r.n, r.total) for r in count_by_key(run.batch()).collect()}
    assert {(*key, *value) for key, value in run.state()} == batch
    assert keys_of(committed) <= keys_of(run.state())
    assert run.query.lastProgress.stateOperators[0].numRowsTotal == len(batch)


@pytest.mark.parametrize(("name", "conf"), [("join-full", JOIN_3), ("tws-jvm", {})])
def test_a_reader_that_names_a_snapshot_finds_all_rows(stream, name, conf):
    """Values of joins and of lists are looked up by their keys, and not scanned."""
    query = QUERIES[name]
    run = stream(query.build, mode=query.mode, conf=conf | SNAPSHOTS).start()
    run.run(0)
    epoch, _ = shift(run, 1, prepare=False)
    places = [str(run.checkpoint / "state/0" / partition) for partition in "01"]
    then = feed_until(run, epoch, lambda: set(places) <= snapshots(run).keys())
    versions = [version_of(snapshots(run)[place][0]) for place in places]
    assert max(versions) <= then
    run.run(then)
    for options in query.state:
        whole = run.states([options])[0]
        parts = [
            run.states([options | {"snapshotPartitionId": str(p), "snapshotStartBatchId": str(version - 1)}])[0]
            for p, version in enumerate(versions)
        ]
        assert sorted(parts[0] + parts[1]) == whole, options
        assert all(parts) or not whole, options


def test_stores_of_retired_partitions_are_closed(stream, spark):
    run = stream(count_by_key).start()
    run.run(0)
    run.attach().rescale(6, strategy=AllAtOnce(), prepare=False)
    run.run(1, 2)
    run.attach().rescale(2, strategy=AllAtOnce(), prepare=False)
    run.run(3, 4, 5)
    state = spark._jvm.org.apache.spark.sql.execution.streaming.state
    run_id = spark._jvm.java.util.UUID.fromString(str(run.query.runId))

    def is_loaded(partition):
        store = state.StateStoreId(f"file:{run.checkpoint}/state", 0, partition, "default")
        return state.StateStore.isLoaded(state.StateStoreProviderId(store, run_id))

    # Spark closes them in the background.
    assert until(lambda: [p for p in range(6) if is_loaded(p)] == [0, 1])
