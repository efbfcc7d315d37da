"""Rows that are fetched on demand before their bins come, which follow, against runs that never migrated."""

import json
from contextlib import ExitStack
from datetime import datetime, timedelta
from itertools import count

import pandas as pd
import pytest
from pyspark.sql import functions as F

from binshift import OnDemand
from harness import STOCK, Fault, StreamRun, assert_same_results, rows, until
from local.migrations import MAX_EPOCHS, NEVER, SHIP, failed_tasks, feed_until, shift, shifted
from local.processors import remembering
from local.queries import BOTH_SIDES, QUERIES, Query, in_jvm
from local.settings import AVRO, CHECKSUMS, IDS, JOIN_3, MIN_DELTAS, NEEDS_CHECKSUMS, ONE_EPOCH

pytestmark = pytest.mark.usefixtures("nothing_left")

#: Each bin but those that are asked for by a scan waits at this point.
BLOCKED = ("fetch.chunk", "block")
#: Twice as many keys as before, so that half of them are new; then few; then those that are known, and others.
INPUTS = {3: {"keys": 120}, 4: {"n": 5}, 5: {"keys": 90}}

#: For old queries: one watermark for all operators, by which an epoch drops late rows and forgets.
ONE_WATERMARK = {"spark.sql.streaming.statefulOperator.allowMultiple": "false"}
#: With each row that arrives, up to two are forgotten.
FORGETTING_BY_THE_ROW = {"spark.sql.streaming.statefulOperator.incrementalCleanupFactor": "2"}


def forgetful(df):
    """Counts the rows of a key, whose state goes with every third of them and comes back with the next."""

    def count(key, batches, state):
        n = (state.get[0] if state.exists else 0) + sum(len(rows) for rows in batches)
        if n % 3 == 0:
            if state.exists:
                state.remove()
        else:
            state.update((n,))
        yield pd.DataFrame({"k": [key[0]], "n": [n]})

    return df.groupBy("k").applyInPandasWithState(count, "k string, n long", "n long", "update", "NoTimeout")


def count_distinct(df):
    """Two operators that share an exchange, both of which look up by key."""
    return df.dropDuplicates(["k"]).groupBy("k").count()


def keep_long_texts(df):
    """Keeps 180 kB of most keys, which makes an answer of several pieces, and of one too much for any."""
    times = F.when(F.col("k") == "key10", 1_500_000).otherwise(30_000)
    return df.groupBy("k").agg(F.max(F.repeat("k", times)).alias("long")).select("k", F.length("long"))


def count_in_windows(df):
    return df.withWatermark("t", "2 minutes").groupBy(F.window("t", "1 minute"), "k").count()


def count_distinct_times(df):
    """The same, with an event time by which both forget."""
    late = df.withWatermark("t", "2 minutes")
    return late.dropDuplicates(["k", "t"]).groupBy("k", "t").count()


def distinct_times_twice(df):
    """Two such operators side by side, whose exchanges a task reads both."""
    late = df.withWatermark("t", "2 minutes")
    return (
        late.dropDuplicates(["k", "t"])
        .select("k", "v")
        .union(late.where("v % 2 = 0").dropDuplicates(["k", "t"]).select("k", "v"))
    )


def two_sides(df):
    left = df.select("k", F.col("v").alias("lv"), F.col("t").alias("lt")).withWatermark("lt", "2 minutes")
    right = df.where("v % 3 > 0").select(F.col("k").alias("rk"), F.col("v").alias("rv"), F.col("t").alias("rt"))
    return left, right.withWatermark("rt", "2 minutes")


def near_times(how):
    """Joins rows of a key whose times are near, on both sides of which a watermark is two minutes behind."""

    def join(df):
        left, right = two_sides(df)
        near = F.expr("k = rk AND rt >= lt - INTERVAL 1 MINUTE AND rt <= lt + INTERVAL 3 MINUTES")
        return left.join(right, near, how)

    return join


def same_windows(df):
    """Joins rows of a key and a window, which are forgotten by their key."""
    windows = df.withWatermark("t", "2 minutes").withColumn("w", F.window("t", "1 minute")).drop("t")
    left = windows.select("k", "w", F.col("v").alias("lv"))
    return left.join(windows.where("v % 3 > 0").select("k", "w", F.col("v").alias("rv")), ["k", "w"])


def valid_until(df):
    """Spark forgets by the event time of the left side, though rows fulfil the condition longer."""
    left, right = two_sides(df)
    left = left.withColumn("until", F.expr("lt + INTERVAL 1 HOUR"))
    return left.join(right, F.expr("k = rk AND rt <= until")).drop("until")


def same_seconds(df):
    """Spark forgets as if the times were not rounded, by which later rows fulfil the condition."""
    left, right = two_sides(df)
    return left.join(right, F.expr("k = rk AND cast(rt AS long) <= cast(lt AS long) + 60"))


def within_a_day(df):
    """Spark forgets after 24 hours, and the condition counts days, of which some are longer."""
    left, right = two_sides(df)
    return left.join(right, F.expr("k = rk AND rt <= lt + INTERVAL 24 HOURS"))


def windows_in_order(df):
    """Spark forgets by the end of a window, and the condition compares how windows begin."""
    left, right = two_sides(df)
    left = left.withColumn("lw", F.window("lt", "1 minute")).drop("lt")
    right = right.withColumn("rw", F.window("rt", "10 minutes")).drop("rt")
    return left.join(right, F.expr("k = rk AND lw > rw")).drop("lw", "rw")


VARIABLES = tuple({"stateVarName": name} for name in ("total", "values", "classes"))

ROWS = {
    "count": QUERIES["count"],
    "forgetful": Query(forgetful, "update"),
    "dedup": QUERIES["dedup"],
    "count-distinct": Query(count_distinct, "update"),
    "long": Query(keep_long_texts, "update"),
    "windows": Query(count_in_windows, "update"),
    "dedup-times": QUERIES["dedup-watermark"],
    "count-distinct-times": Query(count_distinct_times, "update"),
    "distinct-times-twice": Query(distinct_times_twice, "update"),
    "variables": Query(in_jvm("remembered"), "update", VARIABLES),
    "variables-in-python": Query(remembering, "update", VARIABLES),
    "join": QUERIES["join-unbounded"],
    "join-inner": QUERIES["join-inner"],
    "join-semi": QUERIES["join-semi"],
    "join-left": QUERIES["join-left"],
    "join-full": QUERIES["join-full"],
    "valid-until": Query(valid_until, "append", BOTH_SIDES),
    "same-seconds": Query(same_seconds, "append", BOTH_SIDES),
    "within-a-day": Query(within_a_day, "append", BOTH_SIDES),
    "windows-in-order": Query(windows_in_order, "append", BOTH_SIDES),
    "near-times": Query(near_times("inner"), "append", BOTH_SIDES),
    "near-times-semi": Query(near_times("leftSemi"), "append", BOTH_SIDES),
    "same-windows": Query(same_windows, "append", BOTH_SIDES),
    # With a key of two columns.
    "initial-state": QUERIES["tws-initial-state"],
}


def polling(query):
    """Two sources look for files one after the other. So a file comes when neither has looked for a while."""
    return {"spark.sql.streaming.pollingDelay": "250ms"} if query.state == BOTH_SIDES else {}


def settle(run, query):
    """Waits until both sources of a join have just looked for files, which they do not again at once."""
    if query.state == BOTH_SIDES:
        run.query.processAllAvailable()


class History:
    """A run, and the same input for one that never migrates."""

    def __init__(self, run, query):
        self.run, self.query, self.epoch = run, query, 0

    def feed(self, *inputs):
        for kwargs in inputs:
            settle(self.run, self.query)
            self.run.run(self.epoch, **kwargs)
            self.epoch += 1

    def take(self, *inputs):
        """Feeds these rows, with as many epochs as they take."""
        for data in inputs:
            settle(self.run, self.query)
            self.run.feed(data)
            self.run.query.processAllAvailable()
        self.epoch = max(self.run.outputs) + 1

    def take_until_over(self, migration, inputs):
        """Feeds as many of these as the migration takes."""
        while not migration.status.is_over:
            assert self.epoch < MAX_EPOCHS
            self.take(next(inputs))

    def switched(self, *inputs):
        """Moves every bin to the next partition, with `inputs` while the bins are held up."""
        self.feed({}, {})
        migration = self.submitted("shuffled")
        self.feed({}, *inputs)
        return migration

    def switching(self, target, given):
        """Feeds the same until rows are fetched: new partitions are opened first."""
        migration = self.submitted(target)
        while not self.metrics(self.epoch - 1)["binshiftRowsFetched"]:
            assert self.epoch < MAX_EPOCHS
            self.feed(given)
        return migration

    def submitted(self, target):
        """Moves every bin to the next partition, or has another number of partitions."""
        controller = self.run.attach()
        to = shifted(controller) if target == "shuffled" else target
        return controller.rescale(to, strategy=OnDemand())

    def finish(self, migration):
        def is_over():
            settle(self.run, self.query)
            return migration.status.is_over

        self.epoch = feed_until(self.run, self.epoch, is_over)
        self.feed({"keys": 120})

    def metrics(self, epoch, operator=0):
        return self.run.progress(epoch).stateOperators[operator].customMetrics

    def came(self, *ways):
        """Bins that came in this run of the query, also after the epoch of their switch."""
        epochs = [p for p in self.run.query.recentProgress if "addBatch" in p.durationMs]
        return sum(p.stateOperators[0].customMetrics[f"binshiftBins{way}"] for p in epochs for way in ways)

    def assert_never_migrated(self, tmp_path, inputs=INPUTS, **conf):
        oracle = StreamRun(
            self.run.spark,
            tmp_path / "oracle",
            self.query.build,
            self.query.mode,
            STOCK,
            conf=polling(self.query) | conf,
        ).start()
        for file in sorted(self.run.input.glob("*.json")):
            settle(oracle, self.query)
            oracle.feed(json.loads(line) for line in file.read_text().splitlines())
            oracle.query.processAllAvailable()
        oracle.stop()
        assert self.run.outputs == oracle.outputs
        assert_same_results(self.run, oracle, self.query.state)
        return oracle


@pytest.fixture
def history(stream):
    def make(name="count", **conf):
        query = ROWS[name]
        conf = {SHIP + "timeout": NEVER, **polling(query), **conf}
        return History(stream(query.build, mode=query.mode, conf=conf).start(), query)

    return make


@pytest.mark.long
@pytest.mark.parametrize("name", ["count", "forgetful", "dedup"])
def test_epochs_go_on_with_the_rows_that_they_touch_while_no_bin_comes(history, tmp_path, name):
    h = history(name)
    with Fault(*BLOCKED):
        migration = h.switched(*INPUTS.values())
        fetched = [h.metrics(epoch)["binshiftRowsFetched"] for epoch in INPUTS]
        assert all(h.metrics(epoch)["binshiftBinsShipped"] == 0 for epoch in INPUTS)
        assert all(h.metrics(epoch)["binshiftBinsAwaited"] >= 64 for epoch in INPUTS)
    # A row is fetched once, also one that is not there.
    touched = [{row["k"] for row in rows(epoch, **kwargs)} for epoch, kwargs in INPUTS.items()]
    assert fetched == [len(keys - set().union(*touched[:i])) for i, keys in enumerate(touched)]
    h.finish(migration)
    assert h.came("Shipped") == 64
    h.run.stop()
    h.run.start()
    h.feed({})
    h.assert_never_migrated(tmp_path)


def test_little_more_travels_before_the_first_epoch_ends_than_the_rows_that_it_touches(
    spark, history, tmp_path
):
    shipping = spark._jvm.org.apache.spark.sql.execution.streaming.state.binshift.shipping
    copied = shipping.ShippingThreads.copiedBytes
    h = history("count")
    h.take([{"k": f"key{i}", "v": 1, "t": "2024-01-01 00:00:00"} for i in range(20_000)])
    before = copied()
    # Bins come behind it, though nothing holds them up.
    migration = h.switching("shuffled", {"keys": 2000, "n": 1000})
    fetched = h.metrics(h.epoch - 1)["binshiftRowsFetched"]
    assert h.metrics(h.epoch - 1)["binshiftBinsAwaited"] >= 64
    # A row takes 27 bytes for its key and 17 for its value.
    assert 44 * fetched < copied() - before <= 3 * 44 * fetched
    h.finish(migration)
    assert h.came("Shipped") == 64
    h.assert_never_migrated(tmp_path)


def test_rows_come_in_several_pieces_and_one_that_is_too_large_with_its_bin(history, tmp_path):
    h = history("long")
    # The bin of the large one is asked for by the first task that has it.
    migration = h.switched({"keys": 120})
    keys = {row["k"] for row in rows(3, keys=120)}
    assert "key10" in keys & {row["k"] for row in rows(0)}
    fetched = h.metrics(3)["binshiftRowsFetched"]
    assert 0 < fetched < len(keys)
    h.finish(migration)
    h.assert_never_migrated(tmp_path)


@pytest.mark.long
def test_rows_behind_the_first_64_megabytes_come_with_their_bins(history, tmp_path):
    h = history("long")
    keys = [f"key{i}" for i in range(1000, 1680)]
    once = [{"k": k, "v": 1, "t": "2024-01-01 00:00:00"} for k in keys]
    h.take(once)
    migration = h.submitted("shuffled")
    # One of the two old owners has more than half of 680 texts of 210 kB.
    h.take(once, once)
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
        # Those of each variable, and what Spark keeps of its own beside them.
        keys = {row["k"] for row in rows(3, keys=120)}
        assert h.metrics(3)["binshiftRowsFetched"] >= len(h.query.state) * len(keys)
    h.finish(migration)
    assert h.came("Shipped") == 64
    h.run.stop()
    h.run.start()
    h.feed({})
    h.assert_never_migrated(tmp_path, **conf)


@pytest.mark.long
@pytest.mark.parametrize(
    ("name", "conf"),
    [
        ("join", {}),
        ("join", JOIN_3),
        ("join-inner", ONE_EPOCH),
        ("join-inner", ONE_EPOCH | JOIN_3 | IDS),
        pytest.param("join-semi", ONE_EPOCH | CHECKSUMS, marks=NEEDS_CHECKSUMS),
    ],
)
def test_a_join_has_the_numbers_and_values_of_the_keys_that_are_touched_while_no_bin_comes(
    history, tmp_path, name, conf
):
    h = history(name, **conf)
    with Fault(*BLOCKED):
        migration = h.switched(*INPUTS.values())
        assert all(h.metrics(epoch)["binshiftBinsShipped"] == 0 for epoch in INPUTS)
        assert all(h.metrics(epoch)["binshiftBinsAwaited"] >= 64 for epoch in INPUTS)
        keys = {row["k"] for row in rows(3, keys=120)}
        assert h.metrics(3)["binshiftRowsFetched"] >= len(keys)
    h.finish(migration)
    h.run.stop()
    h.run.start()
    h.feed({})
    h.assert_never_migrated(tmp_path, **conf)


@pytest.mark.parametrize(
    "name", ["join-left", "join-full", "valid-until", "same-seconds", "within-a-day", "windows-in-order"]
)
def test_a_join_waits_for_its_bins_if_later_rows_or_its_outputs_need_what_it_removes(history, tmp_path, name):
    h = history(name, **ONE_EPOCH)
    migration = h.switched({})
    assert [h.metrics(epoch)["binshiftRowsFetched"] for epoch in (2, 3)] == [0, 0]
    h.finish(migration)
    h.assert_never_migrated(tmp_path, **ONE_EPOCH)


@pytest.mark.parametrize("name", ["near-times", "same-windows"])
def test_a_join_forgets_nothing_whose_values_have_not_come_though_it_counts_them(history, tmp_path, name):
    h = history(name, **ONE_EPOCH)
    h.take(*map(on_the_edges, range(6)))
    with ExitStack() as held:
        for side in ("left", "right"):
            held.enter_context(Fault(f"fetch.chunk.{side}-keyWithIndexToValue", "block"))
        counts = held.enter_context(Fault("fetch.chunk.left-keyToNumValues", "count"))
        migration = h.submitted("shuffled")
        h.take(*map(on_the_edges, range(6, 10)))
        assert until(lambda: counts.count > 0)
        # Counts are taken in, and what they count expires.
        h.take(*map(on_the_edges, range(10, 16)))
        assert all(h.metrics(epoch)["binshiftBinsShipped"] == 0 for epoch in range(6, h.epoch))
        assert h.metrics(h.epoch - 1)["binshiftBinsAwaited"] > 0
    minutes = count(16)
    h.take_until_over(migration, map(on_the_edges, minutes))
    h.run.stop()
    h.run.start()
    h.take(on_the_edges(next(minutes)))
    h.assert_never_migrated(tmp_path, **ONE_EPOCH)


@pytest.mark.parametrize(("before", "after"), [(4, 2), (2, 7)])
def test_epochs_go_on_while_no_bin_comes_with_another_number_of_partitions(history, tmp_path, before, after):
    h = history(**{"spark.sql.shuffle.partitions": str(before)})
    h.feed({}, {})
    with Fault(*BLOCKED):
        migration = h.switching(after, {"keys": 120})
        # What comes on demand is not copied ahead as well.
        orders = json.loads((h.run.checkpoint / "binshift/shipping.json").read_text())["orders"]
        assert [order["on_demand"] for order in orders] == [True]
        h.feed(*INPUTS.values())
        assert all(h.metrics(epoch)["binshiftBinsShipped"] == 0 for epoch in range(h.epoch))
    h.finish(migration)
    h.assert_never_migrated(tmp_path)


@pytest.mark.parametrize("name", ["count", "variables", "join"])
def test_what_a_driver_has_written_that_dies_before_the_bins_came_is_there(history, tmp_path, name):
    h = history(name)
    with Fault(*BLOCKED):
        h.switched(*INPUTS.values())
        h.run.stop()
    # As if it had died after the last epoch's tasks.
    h.run.forget(5)
    h.run.start()
    h.feed({})
    # The bins leave again, which their owner has from its recovery alone.
    h.epoch, _ = shift(h.run, h.epoch, OnDemand())
    # A join tells of both of its sides.
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
            # Of the keys of an epoch at which no bin has come, the old owner has some and others not.
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
            assert all(h.metrics(epoch)["binshiftBinsShipped"] == 0 for epoch in range(h.epoch - 3, h.epoch))
        h.finish(migration)
    h.run.stop()
    h.run.start()
    h.feed({})
    h.assert_never_migrated(tmp_path)


def on_the_edges(minute):
    """Rows of a minute, and late ones, of which not each key has the same.

    With a watermark two minutes behind, an epoch forgets what is three minutes old, and drops what is four.
    """
    edges = [(0, 0), (3, 1), (3, 0), (3, -1), (4, 1), (4, 0), (4, -1), (5, 0)]
    start = datetime(2026, 1, 1, 1) + timedelta(minutes=minute)
    return [
        {"k": f"key{k}", "v": k, "t": str(start - timedelta(minutes=minutes) + timedelta(seconds=seconds))}
        for k in range(12 + minute % 3)
        for minutes, seconds in edges
        if seconds == minutes == 0 or (k + minute) % 2
    ]


def dropped_rows(run, epochs):
    """Late rows that each operator has dropped, by epoch."""
    return [[op.numRowsDroppedByWatermark for op in run.progress(e).stateOperators] for e in epochs]


@pytest.mark.parametrize(
    ("name", "target", "conf"),
    [
        ("windows", 3, ONE_EPOCH),
        ("windows", "shuffled", ONE_EPOCH),
        ("windows", "shuffled", ONE_EPOCH | ONE_WATERMARK),
        ("dedup-times", 3, ONE_EPOCH),
        ("dedup-times", "shuffled", ONE_EPOCH | ONE_WATERMARK),
        ("dedup-times", "shuffled", ONE_EPOCH | FORGETTING_BY_THE_ROW),
        # An epoch without rows forgets, too.
        ("dedup-times", "shuffled", {}),
        ("count-distinct-times", "shuffled", ONE_EPOCH),
        ("distinct-times-twice", "shuffled", ONE_EPOCH),
        ("near-times", 3, ONE_EPOCH),
        ("near-times", "shuffled", ONE_EPOCH | JOIN_3),
        ("near-times", "shuffled", ONE_EPOCH | ONE_WATERMARK),
        ("near-times-semi", "shuffled", {}),
        ("same-windows", "shuffled", ONE_EPOCH),
        ("same-windows", 3, JOIN_3),
    ],
)
def test_what_is_forgotten_late_is_met_by_no_row(history, tmp_path, name, target, conf):
    h = history(name, **conf)
    h.take(*map(on_the_edges, range(6)))
    minutes = count(6)
    with Fault(*BLOCKED):
        begun = h.epoch
        migration = h.submitted(target)
        while not any(h.metrics(epoch)["binshiftRowsFetched"] for epoch in range(begun, h.epoch)):
            assert h.epoch < MAX_EPOCHS
            h.take(on_the_edges(next(minutes)))
        # Until all that the old owner had is older than the watermark, and longer.
        for _ in range(6):
            h.take(on_the_edges(next(minutes)))
        blocked = range(begun, h.epoch)
        assert all(h.metrics(epoch)["binshiftBinsShipped"] == 0 for epoch in blocked)
        # What is known is forgotten at once.
        last = [op for epoch in blocked[-2:] for op in h.run.progress(epoch).stateOperators]
        assert any(op.numRowsRemoved for op in last)
    h.take_until_over(migration, map(on_the_edges, minutes))
    epochs = range(h.epoch)
    dropped = dropped_rows(h.run, epochs)
    h.run.stop()
    h.run.start()
    h.take(on_the_edges(next(minutes)))
    assert dropped == dropped_rows(h.assert_never_migrated(tmp_path, **conf), epochs)
    assert any(map(any, dropped))


@pytest.mark.parametrize("name", ["windows", "dedup-times", "near-times"])
def test_what_is_forgotten_while_no_bin_comes_stays_so_when_the_driver_dies(history, tmp_path, name):
    h = history(name, **ONE_EPOCH)
    h.take(*map(on_the_edges, range(6)))
    with Fault(*BLOCKED):
        h.submitted("shuffled")
        h.take(*map(on_the_edges, range(6, 12)))
        last = h.run.progress(h.epoch - 1).stateOperators[0]
        assert last.numRowsRemoved > 0
        assert last.customMetrics["binshiftBinsShipped"] == 0
        assert last.customMetrics["binshiftBinsAwaited"] > 0
        h.run.stop()
    # As if it had died after the last epoch's tasks.
    h.run.forget(h.epoch - 1)
    h.run.start()
    h.take(*map(on_the_edges, range(12, 15)))
    h.assert_never_migrated(tmp_path, **ONE_EPOCH)


def test_a_scan_is_opened_when_it_is_read_and_all_bins_are_here(spark):
    scans = spark._jvm.org.apache.spark.sql.execution.streaming.state.binshift.provider.TestWaitingScan
    assert scans.read() == "open close wait open row row close"
    assert scans.closedUnread() == "fails"
    # Nothing is left open.
    assert scans.closedWhileItWaits() == "open close wait fails"
    # No bin comes into a store that another task may have.
    assert scans.readAfterTheStoreIsCommitted() == "fails"


def test_a_task_that_fails_while_rows_come_in_is_retried_from_the_checkpoint(history, tmp_path):
    h = history("forgetful")
    with Fault("rows.add", "throw") as fault:
        migration = h.switched(*INPUTS.values())
        assert fault.happened
        h.finish(migration)
    h.assert_never_migrated(tmp_path)


def test_a_task_that_fails_while_bins_come_below_what_was_written_is_retried(history, tmp_path):
    h = history("forgetful")
    with Fault(*BLOCKED):
        migration = h.switched(*INPUTS.values())
    with Fault("rows.overlay", "throw") as fault:
        h.finish(migration)
        assert fault.happened
    h.assert_never_migrated(tmp_path)


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
    # Each commit makes one.
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
            # None of the keys that were written before.
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
