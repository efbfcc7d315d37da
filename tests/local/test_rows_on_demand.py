"""Rows that are fetched on demand before their bins arrive; compared with runs that never migrated."""

import json
from contextlib import ExitStack

import pytest

from binshift import OnDemand
from harness import Fault, rows, until
from local.migrations import SHIP, failed_tasks, shift, totals
from local.queries import bins_of
from local.rows_on_demand import BLOCKED, INPUTS
from local.settings import AVRO, CHECKSUMS, IDS, MIN_DELTAS, NEEDS_CHECKSUMS

pytestmark = pytest.mark.usefixtures("nothing_left")


@pytest.mark.long
@pytest.mark.parametrize("name", ["count", "forgetful", "dedup"])
def test_epochs_go_on_with_the_rows_that_they_touch_while_no_bin_comes(history, tmp_path, name):
    h = history(name)
    with Fault(*BLOCKED):
        migration = h.switched(*INPUTS.values())
        fetched = [h.metrics(epoch)["binshiftRowsFetched"] for epoch in INPUTS]
        assert all(h.metrics(epoch)["binshiftBinsShipped"] == 0 for epoch in INPUTS)
        assert all(h.metrics(epoch)["binshiftBinsAwaited"] >= 64 for epoch in INPUTS)
    told = totals(h.run, *INPUTS)
    # Each row is fetched once, even if it doesn't exist.
    touched = [{row["k"] for row in rows(epoch, **kwargs)} for epoch, kwargs in INPUTS.items()]
    assert fetched == [len(keys - set().union(*touched[:i])) for i, keys in enumerate(touched)]
    h.finish(migration)
    assert h.came("Shipped") == 64
    h.run.stop()
    h.run.start()
    h.feed({})
    oracle = h.assert_never_migrated(tmp_path)
    assert told == totals(oracle, *INPUTS)


@pytest.mark.long
@pytest.mark.parametrize("name", ["count", "count-distinct"])
def test_rows_are_counted_as_by_sparks_provider_also_across_a_restart_in_the_middle(history, tmp_path, name):
    """Of one operator and of two, in each epoch."""
    h = history(name)
    with Fault(*BLOCKED):
        h.switched(*INPUTS.values())
        assert all(metrics["binshiftBinsAwaited"] >= 64 for metrics in h.metrics_of_all(h.epoch - 1))
        told = [rows_of_all(h.run, epoch) for epoch in range(h.epoch)]
        h.run.stop()
    h.run.start()
    h.feed({"n": 5}, {"keys": 90})
    told += [rows_of_all(h.run, epoch) for epoch in range(h.epoch - 2, h.epoch)]
    oracle = h.assert_never_migrated(tmp_path)
    assert told == [rows_of_all(oracle, epoch) for epoch in range(h.epoch)]


def rows_of_all(run, epoch):
    """The number of rows of each operator."""
    return [operator.numRowsTotal for operator in run.progress(epoch).stateOperators]


@pytest.mark.long
def test_little_more_travels_before_the_first_epoch_ends_than_the_rows_that_it_touches(
    spark, history, tmp_path
):
    shipping = spark._jvm.org.apache.spark.sql.execution.streaming.state.binshift.shipping
    copied = shipping.ShippingThreads.copiedBytes
    h = history("count")
    take(h, (f"key{i}" for i in range(20_000)))
    before = copied()
    # The bins come after the row, though nothing holds them up.
    migration = h.switching("shuffled", {"keys": 2000, "n": 1000})
    fetched = h.metrics(h.epoch - 1)["binshiftRowsFetched"]
    assert h.metrics(h.epoch - 1)["binshiftBinsAwaited"] >= 64
    # A row takes 27 bytes for its key and 17 for its value.
    assert 44 * fetched < copied() - before <= 3 * 44 * fetched
    h.finish(migration)
    assert h.came("Shipped") == 64
    h.assert_never_migrated(tmp_path)


@pytest.mark.long
def test_rows_come_in_several_pieces_and_one_that_is_too_large_with_its_bin(history, tmp_path):
    h = history("long")
    # The first task with the large key asks for its bin.
    migration = h.switched({"keys": 120})
    keys = {row["k"] for row in rows(3, keys=120)}
    assert "key10" in keys & {row["k"] for row in rows(0)}
    fetched = h.metrics(3)["binshiftRowsFetched"]
    assert 0 < fetched < len(keys)
    h.finish(migration)
    h.assert_never_migrated(tmp_path)


def test_keys_that_an_operator_above_drops_are_asked_for_once(spark, history, tmp_path):
    h = history("count-distinct")
    known = [f"key{i}" for i in range(200)]
    take(h, known)
    # The second partition keeps its bins, and gets those of the first.
    controller = h.run.attach()
    owners = controller.routing().assignment
    new = [f"new{i}" for i in range(100)]
    bin_of = bins_of(spark.createDataFrame([(k,) for k in new], "k string"))
    of_first, of_second = ([k for k in new if owners[bin_of[k]] == owner] for owner in (0, 1))
    with Fault(*BLOCKED), Fault("rows.request", "count") as requests:
        migration = controller.rescale([1] * len(owners), strategy=OnDemand())
        take(h, known)
        # Keys of bins that are here are counted; known keys are dropped, and none of their rows is looked up.
        for key in of_second[:4]:
            take(h, [*known, key])
            assert [metrics["binshiftBinsShipped"] for metrics in h.metrics_of_all(h.epoch - 1)] == [0, 0]
        assert requests.count == 2
        take(h, [*known, of_first[0]])
        assert requests.count == 4
    h.finish(migration)
    h.assert_never_migrated(tmp_path)


@pytest.mark.long
def test_rows_behind_the_first_64_megabytes_come_with_their_bins(history, tmp_path):
    h = history("long")
    keys = [f"key{i}" for i in range(1000, 1680)]
    take(h, keys)
    migration = h.submitted("shuffled")
    # One of the two old owners has more than half of 680 texts of 210 kB.
    take(h, keys)
    take(h, keys)
    fetched = sum(h.metrics(epoch)["binshiftRowsFetched"] for epoch in range(1, h.epoch))
    assert 0 < fetched < len(keys)
    h.finish(migration)
    h.assert_never_migrated(tmp_path)


@pytest.mark.long
@pytest.mark.parametrize(
    ("name", "conf"),
    [
        ("variables", {}),
        pytest.param("variables", AVRO | CHECKSUMS, marks=NEEDS_CHECKSUMS),
        ("variables", IDS),
        ("variables-in-python", {}),
        ("initial-state", {}),
    ],
)
def test_variables_of_the_keys_that_are_touched_come_while_no_bin_does(history, tmp_path, name, conf):
    h = history(name, **conf)
    with Fault(*BLOCKED):
        migration = h.switched(*INPUTS.values())
        assert all(h.metrics(epoch)["binshiftBinsShipped"] == 0 for epoch in INPUTS)
        # The rows of each variable, and Spark's own rows in addition.
        keys = {row["k"] for row in rows(3, keys=120)}
        assert h.metrics(3)["binshiftRowsFetched"] >= len(h.query.state) * len(keys)
    h.finish(migration)
    assert h.came("Shipped") == 64
    h.run.stop()
    h.run.start()
    h.feed({})
    h.assert_never_migrated(tmp_path, **conf)


@pytest.mark.long
@pytest.mark.parametrize(("before", "after"), [(4, 2), (2, 7)])
def test_epochs_go_on_while_no_bin_comes_with_another_number_of_partitions(history, tmp_path, before, after):
    h = history(**{"spark.sql.shuffle.partitions": str(before)})
    h.feed({}, {})
    with Fault(*BLOCKED):
        migration = h.switching(after, {"keys": 120})
        # Bins that come on demand are not copied ahead.
        orders = json.loads((h.run.checkpoint / "binshift/shipping.json").read_text())["orders"]
        assert [order["delivery"] for order in orders] == ["on-demand"]
        h.feed(*INPUTS.values())
        assert all(h.metrics(epoch)["binshiftBinsShipped"] == 0 for epoch in range(h.epoch))
    h.finish(migration)
    h.assert_never_migrated(tmp_path)


@pytest.mark.parametrize(
    "name", ["count", *(pytest.param(n, marks=pytest.mark.long) for n in ("variables", "join"))]
)
def test_what_a_driver_has_written_that_dies_before_the_bins_came_is_there(history, tmp_path, name):
    h = history(name)
    with Fault(*BLOCKED):
        h.switched(*INPUTS.values())
        h.run.stop()
    # As if the driver had died after the last epoch's tasks.
    h.run.forget(5)
    h.run.start()
    h.feed({})
    # The bins leave again; their owner only has them from its recovery.
    h.epoch, _ = shift(h.run, h.epoch, OnDemand())
    # A join reports both of its sides.
    assert h.came("Shipped") == (128 if name == "join" else 64)
    h.feed({})
    h.assert_never_migrated(tmp_path)


def test_only_keys_that_the_old_owner_has_not_seen_are_new_while_no_bin_comes(history, tmp_path):
    h = history("dedup")
    with Fault(*BLOCKED):
        migration = h.switched(*INPUTS.values())
        seen = set()
        for epoch in range(6):
            keys = {row["k"] for row in rows(epoch, **INPUTS.get(epoch, {}))}
            assert h.run.outputs[epoch] == sorted((k,) for k in keys - seen)
            # Before any bin has come, an epoch has keys that the old owner has, and new ones.
            assert epoch != 3 or (keys & seen and keys - seen)
            seen |= keys
        assert all(h.metrics(epoch)["binshiftBinsShipped"] == 0 for epoch in INPUTS)
    h.finish(migration)
    h.assert_never_migrated(tmp_path)


@pytest.mark.long
@pytest.mark.parametrize("name", ["count", "dedup", "count-distinct", "variables", "join"])
def test_epochs_go_on_with_rows_wherever_bins_move(history, tmp_path, name):
    h = history(name)
    h.feed({}, {})
    for target in (3, "shuffled", 2):
        with Fault(*BLOCKED):
            migration = h.switching(target, {"keys": 150})
            h.feed({"keys": 90}, {"n": 5})
            of_all = [m for epoch in range(h.epoch - 3, h.epoch) for m in h.metrics_of_all(epoch)]
            assert all(metrics["binshiftBinsShipped"] == 0 for metrics in of_all)
        h.finish(migration)
    h.run.stop()
    h.run.start()
    h.feed({})
    h.assert_never_migrated(tmp_path)


def test_a_scan_is_opened_when_it_is_read_and_all_bins_are_here(spark):
    scans = spark._jvm.org.apache.spark.sql.execution.streaming.state.binshift.provider.TestWaitingScan
    assert scans.read() == "open close wait open row row close"
    assert scans.closedUnread() == "fails"
    # Nothing is left open.
    assert scans.closedWhileItWaits() == "open close wait fails"
    # No bin may come into a store that another task may use.
    assert scans.readAfterTheStoreIsCommitted() == "fails"


@pytest.mark.long
def test_a_task_that_fails_while_rows_come_in_is_retried_from_the_checkpoint(history, tmp_path):
    h = history("forgetful")
    with Fault("rows.add", "throw") as fault:
        migration = h.switched(*INPUTS.values())
        assert fault.happened
        h.finish(migration)
    h.assert_never_migrated(tmp_path)


@pytest.mark.long
def test_a_task_that_fails_while_bins_come_below_what_was_written_is_retried(history, tmp_path):
    h = history("forgetful")
    with Fault(*BLOCKED):
        migration = h.switched(*INPUTS.values())
    with Fault("rows.overlay", "throw") as fault:
        h.finish(migration)
        assert fault.happened
    h.assert_never_migrated(tmp_path)


@pytest.mark.long
def test_bins_that_cannot_be_taken_in_below_what_was_written_come_from_the_checkpoint(history, tmp_path):
    h = history("forgetful")
    with Fault(*BLOCKED):
        migration = h.switched(*INPUTS.values())
    with Fault("switch.ingest", "throw") as fault:
        h.finish(migration)
        assert fault.happened
    h.feed({})
    assert h.came("FromCheckpoint") > 0
    assert failed_tasks(h.run) == 0
    h.assert_never_migrated(tmp_path)


@pytest.mark.long
@pytest.mark.parametrize(
    ("point", "action"),
    [("rows.request", "throw"), ("rows.answer", "throw"), ("rows.answer", "damage"), ("export.link", "throw")],
)
def test_whole_bins_come_where_rows_cannot_be_asked_for(history, tmp_path, point, action):
    h = history()
    with Fault(point, action, always=True):
        migration = h.switched({"keys": 120}, {})
        assert h.metrics(3)["binshiftRowsFetched"] == 0
        h.finish(migration)
    assert h.came("Shipped", "FromCheckpoint") == 64
    h.assert_never_migrated(tmp_path)


@pytest.mark.long
@pytest.mark.parametrize(("point", "action"), [("rows.request", "damage"), ("rows.push", "throw")])
def test_what_is_lost_on_the_way_is_asked_for_again(history, tmp_path, point, action):
    h = history()
    with Fault(*BLOCKED):
        with Fault(point, action) as fault:
            migration = h.switched({"keys": 120})
            assert fault.happened
        assert h.metrics(3)["binshiftRowsFetched"] == len({row["k"] for row in rows(3, keys=120)})
        assert h.metrics(3)["binshiftBinsShipped"] == 0
    h.finish(migration)
    h.assert_never_migrated(tmp_path)


@pytest.mark.parametrize("point", ["rows.ask", "rows.push"])
def test_whole_bins_come_in_time_where_a_connection_for_rows_takes_long(spark, history, tmp_path, point):
    """As if a machine didn't answer: Spark connects on the sending thread."""
    shipping = spark._jvm.org.apache.spark.sql.execution.streaming.state.binshift.shipping
    h = history(**{SHIP + "timeout": "2s"})
    with Fault(point, "count") as sending, Fault(point, "block"):
        migration = h.switched({"keys": 120})
        assert sending.count > 0
        assert h.metrics(3)["binshiftRowsFetched"] == 0
        # The threads that look rows up for others are free.
        assert until(lambda: shipping.ShippingThreads.answers().getActiveCount() == 0)
    h.finish(migration)
    assert h.came("Shipped", "FromCheckpoint") == 64
    h.assert_never_migrated(tmp_path)


def test_a_migration_is_not_over_while_an_epoch_runs_and_bins_are_on_their_way(history, tmp_path):
    h = history()
    with Fault(*BLOCKED):
        migration = h.switched({})
        with Fault("rows.request", "count") as asked, Fault("rows.request", "block"):
            h.run.feed(rows(h.epoch, keys=120))
            assert until(lambda: asked.count > 0)
            assert not migration.status.is_over
        h.run.query.processAllAvailable()
        h.epoch += 1
        assert not migration.status.is_over
    h.finish(migration)
    h.assert_never_migrated(tmp_path)


def test_a_snapshot_that_is_due_waits_for_the_bins_and_has_what_was_written(history, tmp_path):
    h = history("forgetful", **{MIN_DELTAS: "1"})
    migration = h.switched(*INPUTS.values())
    # Each commit makes a snapshot.
    assert h.metrics(3)["binshiftBinsAwaited"] <= 2
    h.finish(migration)
    h.run.stop()
    h.run.start()
    h.feed({})
    h.assert_never_migrated(tmp_path)


def test_what_is_read_from_the_checkpoint_later_is_not_logged_above_what_was_written(history, tmp_path):
    # No snapshot hides what the changelogs say.
    h = history("forgetful", **{MIN_DELTAS: "1000"})
    with ExitStack() as lost:
        with Fault(*BLOCKED):
            h.switched(*INPUTS.values())
            lost.enter_context(Fault("stage.file", "throw", always=True))
        while h.metrics(h.epoch - 1)["binshiftBinsAwaited"] > 0:
            # A key that wasn't written before.
            h.feed({"n": 1, "keys": 1})
    assert h.came("FromCheckpoint") == 64
    h.run.stop()
    h.run.start()
    h.feed({"n": 1, "keys": 1})
    h.assert_never_migrated(tmp_path, **{MIN_DELTAS: "1000"})


def test_bins_that_are_lost_on_the_way_are_read_from_the_checkpoint_below_what_was_written(history, tmp_path):
    h = history("forgetful")
    with Fault("stage.file", "throw", always=True), Fault("export.start", "throw", always=True):
        migration = h.switched(*INPUTS.values())
        assert sum(h.metrics(epoch)["binshiftRowsFetched"] for epoch in INPUTS) > 0
        h.finish(migration)
    assert h.came("FromCheckpoint", "Recopied") > 0
    h.assert_never_migrated(tmp_path)


def take(h, keys):
    """Feeds one row of each key, in one epoch."""
    h.take([{"k": k, "v": 1, "t": "2024-01-01 00:00:00"} for k in keys])
