"""A session with binshift's provider continues a checkpoint that Spark's own provider started."""

import json
import shutil
import uuid
import zipfile
from datetime import UTC, datetime
from functools import partial

import pytest

import binshift.inspect
from binshift import AllAtOnce, ConfigurationError, RoutingTable
from binshift.inspect.tools.fsck import Severity, fsck
from binshift.session import PROVIDER, PROVIDER_KEY
from harness import STOCK, Fault, assert_same_results, end_maintenance, held_up_at, rows, until
from local.inspected import comparable, expected, read
from local.mailbox import Mailbox
from local.migrations import feed_until
from local.queries import QUERIES
from local.settings import IDS, MIN_DELTAS, NO_CHANGELOG, ONE_EPOCH, OPERATORS, STORE, new, start_with
from local.sinks import fail_at

EPOCHS = range(8)
BINS = STORE + "binshift.bins"


def started_by_stock(stream, name, conf=None, epochs=(0, 1, 2)):
    run = new(stream, name, STOCK, conf or {}).start()
    run.run(*epochs)
    run.stop()
    return run


def oracle_of(stream, name, conf=None, epochs=EPOCHS):
    oracle = new(stream, name, STOCK, conf or {}, "oracle").start()
    oracle.run(*epochs)
    oracle.stop()
    return oracle


def epoch_logged_with(run, epoch):
    """The provider in Spark's offset log."""
    metadata = json.loads((run.checkpoint / f"offsets/{epoch}").read_text().splitlines()[1])
    return metadata["conf"][PROVIDER_KEY]


def taken_over_at(run):
    return json.loads((run.checkpoint / "binshift/layout.json").read_text())["taken_over_at"]


@pytest.mark.long
@pytest.mark.parametrize(("name", "conf"), OPERATORS, ids=str)
def test_a_stock_checkpoint_goes_on_with_bins(stream, name, conf):
    run = started_by_stock(stream, name, conf)
    before = run.states(QUERIES[name].state)
    start_with(run, PROVIDER)
    run.run(3, 4)
    assert taken_over_at(run) == 3
    assert [epoch_logged_with(run, e) for e in (2, 3)] == [STOCK, PROVIDER]
    run.attach().rescale(5, strategy=AllAtOnce(), prepare=False)
    run.run(5, 6)
    assert run.attach().routing().partitions == 5
    # The epochs before are unchanged.
    old = [{**o, "batchId": "2"} for o in QUERIES[name].state]
    assert run.states(old, run.readable(2, stock=True)) == before
    start_with(run, STOCK)
    run.run(7)
    assert run.attach().routing().partitions == 5
    assert_same_results(run, oracle_of(stream, name, conf), QUERIES[name].state)


def test_a_takeover_keeps_the_numbers_of_column_families(stream):
    """Files of rows can be taken in as they are only where the numbers are those that the operator gives."""

    def numbers(run):
        newest = max((run.checkpoint / "state/0/0").glob("*.zip"), key=lambda f: int(f.stem))
        metadata = zipfile.ZipFile(newest).read("metadata").decode()
        return json.loads(metadata.split("\n", 1)[1])["columnFamilyMapping"]

    run = started_by_stock(stream, "tws-jvm", NO_CHANGELOG)
    before = numbers(run)
    assert sorted(before, key=before.get) != sorted(before)
    start_with(run, PROVIDER)
    run.run(3)
    run.stop()
    assert taken_over_at(run) == 3
    assert numbers(run) == before


@pytest.mark.parametrize("name", ["count", pytest.param("join-full", marks=pytest.mark.matrix)])
def test_a_checkpoint_can_be_looked_into_before_and_after_its_takeover(stream, name):
    run = started_by_stock(stream, name)
    start_with(run, PROVIDER)
    run.run(3)
    run.stop()
    with binshift.inspect.open(run.checkpoint) as checkpoint:
        for version, bins in ((2, None), (3, None), (4, 64)):
            for option in QUERIES[name].state:
                assert comparable(read(checkpoint, version, option)) == comparable(
                    expected(run, version, option)
                )
            table = checkpoint.routing(version)
            assert (table and table.bins) == bins
        with pytest.raises(ConfigurationError, match=r"version 3 .* has no bins"):
            checkpoint.scan(checkpoint.sources(version=3)[0], bins=[1])
        assert [f for f in fsck(checkpoint) if f.severity is Severity.DAMAGE] == []


def test_a_takeover_that_fails_starts_over(stream):
    run = started_by_stock(stream, "count", IDS)
    run.spark.conf.set(PROVIDER_KEY, PROVIDER)
    with Fault("takeover.family", "throw") as fault:
        fail_at(run, 3)
        assert fault.happened
    assert epoch_logged_with(run, 3) == PROVIDER
    # As if the driver had died before it wrote anything of its own.
    shutil.rmtree(run.checkpoint / "binshift")
    start_with(run, PROVIDER)
    run.run(4, 5)
    assert taken_over_at(run) == 3
    assert_same_results(run, oracle_of(stream, "count", IDS, range(6)))


def test_the_old_state_is_kept_until_the_epoch_of_the_takeover_is_over(stream):
    conf = {
        MIN_DELTAS: "1",
        STORE + "maintenanceInterval": "100ms",
        "spark.sql.streaming.minBatchesToRetain": "1",
        "spark.sql.streaming.ratioExtraSpaceAllowedInCheckpoint": "0",
    }
    run = started_by_stock(stream, "count", conf)
    stock = [run.checkpoint / f"state/0/{p}/3.zip" for p in (0, 1)]
    assert until(lambda: all(f.exists() for f in stock))
    end_maintenance(run.spark)
    run.spark.conf.set(PROVIDER_KEY, PROVIDER)

    def maintained():
        # Both stores have the new state, and maintenance deletes files that aren't needed.
        with Fault("versions.deleted", "count") as looked:
            assert until(lambda: looked.count >= 4)

    fail_at(run, 3, first=maintained)
    run.stop()
    end_maintenance(run.spark)
    run.start()
    run.run(4, 5, 6)
    assert taken_over_at(run) == 3
    assert_same_results(run, oracle_of(stream, "count", epochs=range(7)))
    # No old file is kept longer.
    assert until(lambda: not any(f.exists() for f in stock))


def test_a_takeover_that_is_refused_leaves_the_checkpoint_to_spark_s_provider(stream):
    run = started_by_stock(stream, "count")
    run.spark.conf.set(BINS, "none")
    run.feed(rows(3))
    for _ in range(2):
        start_with(run, PROVIDER)
        with pytest.raises(Exception, match="must be a whole number"):
            run.query.processAllAvailable()
        assert not (run.checkpoint / "offsets/3").exists()
        assert not (run.checkpoint / "binshift").exists()
    start_with(run, STOCK)
    run.query.processAllAvailable()
    run.run(4)
    assert [epoch_logged_with(run, e) for e in (3, 4)] == [STOCK, STOCK]
    # Binshift can take it over later.
    run.spark.conf.unset(BINS)
    start_with(run, PROVIDER)
    run.run(5)
    assert taken_over_at(run) == 5
    assert_same_results(run, oracle_of(stream, "count", epochs=range(6)))


@pytest.mark.parametrize(
    ("file", "content"),
    [
        pytest.param("runs.json", '{"format": 99}', id="seen before anything is written"),
        pytest.param("ids", "", id="seen after the layout was written"),
    ],
)
def test_a_takeover_that_fails_before_its_tasks_leaves_the_checkpoint_alone(stream, file, content):
    run = started_by_stock(stream, "count", IDS)
    (run.checkpoint / "binshift").mkdir()
    (run.checkpoint / "binshift" / file).write_text(content)
    run.feed(rows(3))
    for _ in range(2):
        start_with(run, PROVIDER)
        with pytest.raises(Exception, match=file):
            run.query.processAllAvailable()
        assert not (run.checkpoint / "offsets/3").exists()
    start_with(run, STOCK)
    run.query.processAllAvailable()
    assert epoch_logged_with(run, 3) == STOCK
    (run.checkpoint / "binshift" / file).unlink()
    start_with(run, PROVIDER)
    run.run(4)
    assert taken_over_at(run) == 4
    assert_same_results(run, oracle_of(stream, "count", IDS, epochs=range(5)))


def change_logged(run, epoch, **conf):
    """Changes the log as if another run had logged the epoch again, a moment later."""
    entry = run.checkpoint / f"offsets/{epoch}"
    form, metadata, *sources = entry.read_text().splitlines()
    said = json.loads(metadata)
    said["batchTimestampMs"] += 1
    said["conf"] |= conf
    entry.write_text("\n".join([form, json.dumps(said), *sources]))
    (entry.parent / f".{epoch}.crc").unlink(missing_ok=True)
    return entry.read_text()


@pytest.mark.parametrize("provider", [STOCK, PROVIDER], ids=["Spark's", "binshift's"])
def test_a_takeover_leaves_the_epoch_and_its_state_to_a_run_that_has_logged_it_anew(stream, provider):
    run = started_by_stock(stream, "count", IDS)
    run.feed(rows(3))
    with held_up_at("run.begin", partial(start_with, run, PROVIDER)):
        logged = change_logged(run, 3, **{PROVIDER_KEY: provider})
        made = run.checkpoint / "state/0/0/4_of-the-other-run.zip"
        made.touch()
    with pytest.raises(Exception, match="another run of the query is under way"):
        run.query.processAllAvailable()
    assert (run.checkpoint / "offsets/3").read_text() == logged
    assert made.exists()
    # It would disown the other run's state of the epoch.
    claims = [json.loads(f.read_text()) for f in (run.checkpoint / "binshift/runs").glob("[0-9]*")]
    assert [claim["withdrawn"] for claim in claims] == [True]


def test_a_takeover_is_refused_if_another_run_has_claimed_its_place(stream):
    run = started_by_stock(stream, "count")
    run.feed(rows(3))
    claims = run.checkpoint / "binshift/runs"
    with held_up_at("run.begin", partial(start_with, run, PROVIDER)):
        logged = json.loads((run.checkpoint / "offsets/3").read_text().splitlines()[1])
        at = datetime.fromtimestamp(logged["batchTimestampMs"] / 1000, UTC).isoformat()
        theirs = {"format": 1, "run": str(uuid.uuid4()), "began": 3, "routing": "3:00000000"}
        claims.mkdir(parents=True)
        (claims / "1").write_text(json.dumps(theirs | {"logged_at": at.replace("+00:00", "Z")}))
    with pytest.raises(Exception, match="began while this one looked"):
        run.query.processAllAvailable()
    # The other driver may be running its tasks.
    assert (run.checkpoint / "offsets/3").exists()
    assert [f.name for f in claims.glob("[0-9]*")] == ["1"]


def test_a_takeover_that_an_earlier_run_may_have_begun_is_not_taken_back(stream):
    run = started_by_stock(stream, "count")
    run.spark.conf.set(PROVIDER_KEY, PROVIDER)
    with Fault("takeover.family", "throw") as fault:
        fail_at(run, 3)
        assert fault.happened
    begun = (run.checkpoint / "offsets/3").read_text()
    run.spark.conf.set(BINS, "none")
    run.start()
    with pytest.raises(Exception, match="must be a whole number"):
        run.query.processAllAvailable()
    assert (run.checkpoint / "offsets/3").read_text() == begun
    run.spark.conf.unset(BINS)
    start_with(run, PROVIDER)
    run.run(4)
    assert taken_over_at(run) == 3
    assert_same_results(run, oracle_of(stream, "count", epochs=range(5)))


def test_an_epoch_that_was_begun_by_the_stock_provider_is_ended_in_its_form(stream):
    run = started_by_stock(stream, "count", epochs=(0, 1))
    fail_at(run, 2)
    first = run.outputs[2]
    run.spark.conf.set(PROVIDER_KEY, PROVIDER)
    # The takeover is prepared, and its epoch never comes.
    fail_at(run, 3)
    assert run.outputs[2] == first
    assert [epoch_logged_with(run, e) for e in (2, 3)] == [STOCK, PROVIDER]
    start_with(run, PROVIDER)
    run.run(4, 5)
    assert taken_over_at(run) == 3
    state = run.states([{"batchId": "2"}])
    oracle = oracle_of(stream, "count", epochs=range(6))
    assert_same_results(run, oracle)
    assert state == oracle.states([{"batchId": "2"}])


def test_a_late_job_of_an_earlier_epoch_loads_the_state_from_before_the_takeover(stream):
    """A sink evaluates the frame of the batch before once more, as one does that keeps frames."""
    run = started_by_stock(stream, "count", epochs=(0, 1))
    fail_at(run, 2)
    keep, earlier = run._keep, {}

    def keep_and_repeat(batch, epoch):
        keep(batch, epoch)
        for e, late in earlier.items():
            first = run.outputs[e]
            keep(late, e)
            assert run.outputs[e] == first
        earlier[epoch] = batch

    run._keep = keep_and_repeat
    start_with(run, PROVIDER)
    run.run(3, 4, 5)
    assert [epoch_logged_with(run, e) for e in (2, 3)] == [STOCK, PROVIDER]
    assert_same_results(run, oracle_of(stream, "count", epochs=range(6)))


@pytest.mark.matrix
def test_without_spark_s_cache_of_the_logs_the_second_epoch_takes_over(stream):
    conf = {"spark.sql.streaming.metadataCache.enabled": "false"}
    run = started_by_stock(stream, "count", conf, epochs=(0, 1))
    start_with(run, PROVIDER)
    run.run(2, 3, 4)
    assert taken_over_at(run) == 3
    assert [epoch_logged_with(run, e) for e in (2, 3)] == [STOCK, PROVIDER]
    assert_same_results(run, oracle_of(stream, "count", epochs=range(5)))


def test_a_first_epoch_that_was_begun_by_the_stock_provider_is_ended_before_any_step_is_taken(stream):
    run = started_by_stock(stream, "count", epochs=())
    fail_at(run, 0)
    initial = RoutingTable(2, tuple(b % 2 for b in range(64)))
    plan = AllAtOnce().plan(initial, initial.balanced(3))
    Mailbox(run).submit(plan)
    start_with(run, PROVIDER)
    run.run(1)
    after = feed_until(run, 2, lambda: run.attach().routing().partitions == 3)
    assert taken_over_at(run) == 1
    assert [epoch_logged_with(run, e) for e in (0, 1)] == [STOCK, PROVIDER]
    assert run.attach().history().to_pylist()[0]["epoch"] > 1
    oracle = oracle_of(stream, "count", epochs=range(after))
    assert run.states([{"batchId": "0"}], run.readable(0, stock=True)) == oracle.states([{"batchId": "0"}])
    assert_same_results(run, oracle)


def test_a_takeover_that_was_prepared_and_not_begun_is_forgotten(stream):
    run = started_by_stock(stream, "count", epochs=(0, 1))
    fail_at(run, 2)
    run.spark.conf.set(PROVIDER_KEY, PROVIDER)
    run.start()
    run.query.processAllAvailable()
    assert taken_over_at(run) == 3
    start_with(run, STOCK)
    run.run(3, 4)
    assert epoch_logged_with(run, 4) == STOCK
    run.stop()
    with binshift.inspect.open(run.checkpoint) as checkpoint:
        assert comparable(read(checkpoint, 5, {})) == comparable(expected(run, 5, {}))
        assert checkpoint.routing(5) is None
    start_with(run, PROVIDER)
    run.run(5, 6)
    assert taken_over_at(run) == 5
    assert_same_results(run, oracle_of(stream, "count", epochs=range(7)))


def test_a_checkpoint_that_may_have_placed_keys_otherwise_stays_as_it_is(stream):
    strict = "spark.sql.streaming.statefulOperator.useStrictDistribution"
    run = started_by_stock(stream, "count", {strict: "false"})
    start_with(run, PROVIDER)
    run.run(3)
    assert epoch_logged_with(run, 3) == STOCK
    with pytest.raises(ConfigurationError, match="some of their columns only"):
        run.attach()
    assert not (run.checkpoint / "binshift").exists()


def test_the_change_feed_is_read_on_either_side_of_a_takeover(stream):
    run = started_by_stock(stream, "count")
    start_with(run, PROVIDER)
    run.run(3, 4, 5)
    oracle = oracle_of(stream, "count", epochs=range(6))

    def feed(first, last):
        options = {"readChangeFeed": "true", "changeStartBatchId": first, "changeEndBatchId": last}
        return [{k: str(v) for k, v in options.items()}]

    for first, last in ((1, 2), (4, 5)):
        changes = run.states(feed(first, last))
        assert changes[0]
        assert changes == oracle.states(feed(first, last))
    with pytest.raises(Exception, match="cannot be read across epoch 3"):
        run.states(feed(2, 4))


def files_of(run):
    return sorted(run.checkpoint.rglob("*"))


@pytest.mark.needs_spark("4.2", reason="there is no offline repartition before")
def test_spark_s_offline_repartition_leaves_a_checkpoint_of_binshift_alone(stream):
    run = stream(QUERIES["count"].build, conf=ONE_EPOCH).start()
    run.run(0, 1)
    run.stop()
    end_maintenance(run.spark)
    files = files_of(run)
    repartition = run.spark._streamingCheckpointManager.repartition
    with pytest.raises(Exception, match=r"binshift convert .* --to rocksdb --partitions 4"):
        repartition(str(run.checkpoint), 4)
    assert files_of(run) == files
    # A session without the jar cannot refuse: it logs the epoch, and then does not find the provider's class.
    begun = (run.checkpoint / "offsets/1").read_text()
    assert '"spark.sql.shuffle.partitions":"2"' in begun
    begun = begun.replace('"spark.sql.shuffle.partitions":"2"', '"spark.sql.shuffle.partitions":"4"')
    (run.checkpoint / "offsets/2").write_text(begun)
    run.start()
    run.run(2)
    assert run.progress(2).stateOperators[0].numShufflePartitions == 2
    assert_same_results(run, oracle_of(stream, "count", epochs=range(3)))
