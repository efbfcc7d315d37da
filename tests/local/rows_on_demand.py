"""Queries whose rows are fetched on demand, and runs that are compared with runs without migrations."""

import json

import pandas as pd
from pyspark.sql import functions as F

from binshift import OnDemand
from harness import STOCK, StreamRun, assert_same_results
from local.migrations import MAX_EPOCHS, feed_until, shifted
from local.processors import remembering
from local.queries import BOTH_SIDES, QUERIES, Query, in_jvm

#: At this fault, all bins wait except those that a scan asks for.
BLOCKED = ("fetch.chunk", "block")
#: Twice as many keys as before, so half are new; then few keys; then known keys and others.
INPUTS = {3: {"keys": 120}, 4: {"n": 5}, 5: {"keys": 90}}

#: More epochs than pass between the submission of a plan and its switch.
FEW_EPOCHS = 10

#: As in old queries: all operators have one watermark, both to drop late rows and to forget state.
ONE_WATERMARK = {"spark.sql.streaming.statefulOperator.allowMultiple": "false"}
#: Each arriving row makes the operator forget up to two.
FORGETTING_BY_THE_ROW = {"spark.sql.streaming.statefulOperator.incrementalCleanupFactor": "2"}


def forgetful(df):
    """Counts the rows of a key; every third row deletes the state, and the next creates it again."""

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
    """Two operators that share an exchange and look up state by key."""
    return df.dropDuplicates(["k"]).groupBy("k").count()


def keep_long_texts(df):
    """Keeps 180 kB for most keys, so that answers have several pieces; one key's rows are too large for any."""
    times = F.when(F.col("k") == "key10", 1_500_000).otherwise(30_000)
    return df.groupBy("k").agg(F.max(F.repeat("k", times)).alias("long")).select("k", F.length("long"))


def count_in_windows(df):
    return df.withWatermark("t", "2 minutes").groupBy(F.window("t", "1 minute"), "k").count()


def count_distinct_times(df):
    """Like `count_distinct`, with an event time by which both operators forget."""
    late = df.withWatermark("t", "2 minutes")
    return late.dropDuplicates(["k", "t"]).groupBy("k", "t").count()


def distinct_times_twice(df):
    """Two such operators side by side; a task reads the exchanges of both."""
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
    """Joins rows of a key with near times; both sides' watermarks are two minutes behind."""

    def join(df):
        left, right = two_sides(df)
        near = F.expr("k = rk AND rt >= lt - INTERVAL 1 MINUTE AND rt <= lt + INTERVAL 3 MINUTES")
        return left.join(right, near, how)

    return join


def same_windows(df):
    """Joins rows of a key and a window; they are forgotten by the window in the key."""
    windows = df.withWatermark("t", "2 minutes").withColumn("w", F.window("t", "1 minute")).drop("t")
    left = windows.select("k", "w", F.col("v").alias("lv"))
    return left.join(windows.where("v % 3 > 0").select("k", "w", F.col("v").alias("rv")), ["k", "w"])


def valid_until(df):
    """A join where Spark forgets by the left side's event time, although rows fulfil the condition longer."""
    left, right = two_sides(df)
    left = left.withColumn("until", F.expr("lt + INTERVAL 1 HOUR"))
    return left.join(right, F.expr("k = rk AND rt <= until")).drop("until")


def same_seconds(df):
    """A join where Spark forgets as if times weren't rounded, although later rows fulfil the condition, too."""
    left, right = two_sides(df)
    return left.join(right, F.expr("k = rk AND cast(rt AS long) <= cast(lt AS long) + 60"))


def within_a_day(df):
    """A join where Spark forgets after 24 hours, and the condition counts days, some of which are longer."""
    left, right = two_sides(df)
    return left.join(right, F.expr("k = rk AND rt <= lt + INTERVAL 24 HOURS"))


def windows_in_order(df):
    """A join where Spark forgets by the ends of windows, and the condition compares their beginnings."""
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
    """Two sources look for files one after the other; files should come when neither is about to look."""
    return {"spark.sql.streaming.pollingDelay": "250ms"} if query.state == BOTH_SIDES else {}


def settle(run, query):
    """Waits until both sources of a join have just looked for files, as they won't look again at once."""
    if query.state == BOTH_SIDES:
        run.query.processAllAvailable()


class History:
    """A run, and its input for comparison with a run that never migrates."""

    def __init__(self, run, query):
        self.run, self.query, self.epoch = run, query, 0

    def feed(self, *inputs):
        for kwargs in inputs:
            settle(self.run, self.query)
            self.run.run(self.epoch, **kwargs)
            self.epoch += 1

    def take(self, *inputs):
        """Feeds rows, and waits for all of their epochs."""
        for data in inputs:
            settle(self.run, self.query)
            self.run.feed(data)
            self.run.query.processAllAvailable()
        self.epoch = max(self.run.outputs) + 1

    def take_until_over(self, migration, inputs):
        """Feeds these inputs until the migration has ended."""
        while not migration.status.is_over:
            assert self.epoch < MAX_EPOCHS
            self.take(next(inputs))

    def switched(self, *inputs):
        """Moves every bin to the next partition, and feeds `inputs` while the bins are held up."""
        self.feed({}, {})
        migration = self.submitted("shuffled")
        self.feed({}, *inputs)
        return migration

    def switching(self, target, given):
        """Feeds the same input until any operator fetches rows; before that, new partitions are opened."""
        migration = self.submitted(target)
        last = self.epoch + FEW_EPOCHS
        while not any(metrics["binshiftRowsFetched"] for metrics in self.metrics_of_all(self.epoch - 1)):
            assert self.epoch < last
            self.feed(given)
        return migration

    def submitted(self, target):
        """Submits a move of every bin to the next partition, or another number of partitions."""
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
        return self.metrics_of_all(epoch)[operator]

    def metrics_of_all(self, epoch):
        """The metrics of each operator; Spark begins with the last operator of the plan."""
        return [operator.customMetrics for operator in self.run.progress(epoch).stateOperators]

    def came(self, *ways):
        """The number of bins that came in this run of the query, including those after the switch's epoch."""
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
