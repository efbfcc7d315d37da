"""The queries that the tests run: from the input (k, v, t) to a DataFrame, with their output mode."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from harness import StreamRun
from local.processors import count_until_silent, everything_in_pandas, everything_in_rows


def with_a_point_in_rows(built: DataFrame) -> DataFrame:
    """The query with a fault point: each output row passes `query.row` before the store commits."""
    name = "org.apache.spark.sql.execution.streaming.state.binshift.TestFailingRow"
    return built.where(F.expr(f"java_method('{name}', 'goesOn') = 'true'"))


def count_by_key(df: DataFrame) -> DataFrame:
    return df.groupBy("k").agg(F.count("*").alias("n"), F.sum("v").alias("total"))


def counted(run: StreamRun) -> list[tuple[Any, ...]]:
    """The state of a query like `count_by_key`."""
    return sorted((*key, *value) for key, value in run.state())


def counted_at_once(
    run: StreamRun, build: Callable[[DataFrame], DataFrame] = count_by_key
) -> list[tuple[Any, ...]]:
    """The state that a batch over all input gives."""
    return sorted(tuple(r) for r in build(run.batch()).collect())


def tumbling(df: DataFrame) -> DataFrame:
    late = df.withWatermark("t", "90 seconds")
    return late.groupBy(F.window("t", "1 minute"), "k").agg(F.count("*").alias("n"))


def sliding_by_two_columns(df: DataFrame) -> DataFrame:
    late = df.withWatermark("t", "2 minutes").withColumn("even", F.col("v") % 2)
    return late.groupBy(F.window("t", "2 minutes", "1 minute"), "even", "k").agg(F.sum("v").alias("total"))


def deduplicate(df: DataFrame) -> DataFrame:
    return df.dropDuplicates(["k"]).select("k")


def deduplicate_with_watermark(df: DataFrame) -> DataFrame:
    # Keys come back in each epoch with the same event time, and once more after their state is evicted.
    late = df.withColumn("t", F.date_trunc("minute", "t")).withWatermark("t", "2 minutes")
    return late.dropDuplicates(["k", "t"]).select("k", "t")


def deduplicate_within_watermark(df: DataFrame) -> DataFrame:
    return df.withWatermark("t", "2 minutes").dropDuplicatesWithinWatermark(["k"]).select("k")


def session_of_fixed_gap(df: DataFrame) -> DataFrame:
    late = df.withWatermark("t", "2 minutes")
    return late.groupBy(F.session_window("t", "30 seconds"), "k").agg(
        F.count("*").alias("n"), F.sum("v").alias("s")
    )


def session_of_dynamic_gap(df: DataFrame) -> DataFrame:
    gap = F.when(F.col("v") % 2 == 0, "20 seconds").otherwise("70 seconds")
    late = df.withWatermark("t", "2 minutes").withColumn("even", F.col("v") % 2 == 0)
    return late.groupBy(F.session_window("t", gap), "even", "k").agg(F.count("*").alias("n"))


def sides(df: DataFrame) -> tuple[DataFrame, DataFrame]:
    """Two streams from one: values below 24 on the left, and from 16 on the right."""
    left = df.where("v < 24").select("k", F.col("v").alias("lv"), F.col("t").alias("lt"))
    right = df.where("v >= 16").select(F.col("k").alias("rk"), F.col("v").alias("rv"), F.col("t").alias("rt"))
    return left.withWatermark("lt", "1 minute"), right.withWatermark("rt", "2 minutes")


def interval_join(how: str) -> Callable[[DataFrame], DataFrame]:
    def build(df: DataFrame) -> DataFrame:
        left, right = sides(df)
        near = F.expr("k = rk AND rt >= lt - INTERVAL 90 SECONDS AND rt <= lt + INTERVAL 2 MINUTES")
        return left.join(right, near, how)

    return build


def window_join(df: DataFrame) -> DataFrame:
    left, right = sides(df)
    # A stream may only have one event-time column.
    left = left.withColumn("w", F.window("lt", "2 minutes")).drop("lt")
    right = right.withColumnRenamed("rk", "k").withColumn("w", F.window("rt", "2 minutes")).drop("rt")
    return left.join(right, ["k", "w"], "leftOuter")


def plain_join(df: DataFrame) -> DataFrame:
    left, right = sides(df)
    return left.join(right, F.col("k") == F.col("rk"))


def in_jvm(name: str) -> Callable[[DataFrame], DataFrame]:
    """A query of tests/jvm/JvmQueries.scala."""

    def build(df: DataFrame) -> DataFrame:
        queries = df.sparkSession._jvm.binshift.tests.JvmQueries
        return DataFrame(getattr(queries, name)(df._jdf), df.sparkSession)

    return build


@dataclass(frozen=True)
class Query:
    """A query, and the options with which the `statestore` source reads all of its state."""

    build: Callable[[DataFrame], DataFrame]
    mode: str
    state: tuple[dict[str, str], ...] = ({},)


BOTH_SIDES = ({"joinSide": "left"}, {"joinSide": "right"})
TIMERS = {"readRegisteredTimers": "true"}
VARIABLES = (
    {"stateVarName": "count"},
    {"stateVarName": "values"},
    {"stateVarName": "minutes"},
    TIMERS,
)

QUERIES = {
    "count": Query(count_by_key, "update"),
    "count-complete": Query(count_by_key, "complete"),
    "tumbling-append": Query(tumbling, "append"),
    "tumbling-update": Query(tumbling, "update"),
    "sliding-append": Query(sliding_by_two_columns, "append"),
    "session-fixed": Query(session_of_fixed_gap, "append"),
    "session-dynamic": Query(session_of_dynamic_gap, "append"),
    "dedup": Query(deduplicate, "append"),
    "dedup-watermark": Query(deduplicate_with_watermark, "append"),
    "dedup-within-watermark": Query(deduplicate_within_watermark, "append"),
    "join-inner": Query(interval_join("inner"), "append", BOTH_SIDES),
    "join-left": Query(interval_join("leftOuter"), "append", BOTH_SIDES),
    "join-right": Query(interval_join("rightOuter"), "append", BOTH_SIDES),
    "join-full": Query(interval_join("fullOuter"), "append", BOTH_SIDES),
    "join-semi": Query(interval_join("leftSemi"), "append", BOTH_SIDES),
    "join-window": Query(window_join, "append", BOTH_SIDES),
    "join-unbounded": Query(plain_join, "append", BOTH_SIDES),
    "pandas-with-state": Query(count_until_silent("EventTimeTimeout"), "update"),
    "jvm-with-state": Query(in_jvm("countUntilSilent"), "update"),
    "tws-pandas": Query(everything_in_pandas, "update", VARIABLES),
    "tws-rows": Query(everything_in_rows, "update", VARIABLES),
    "tws-jvm": Query(in_jvm("transformed"), "update", VARIABLES),
    "tws-initial-state": Query(in_jvm("transformedWithInitialState"), "update", ({"stateVarName": "sum"},)),
}

#: Queries that can go on as these, which have one more state variable.
GROWN = {"tws-jvm": in_jvm("transformedWithOneMore")}


def bins_of(df: DataFrame, bins: int = 64) -> dict[str, int]:
    """The bin of each key `k`, by Spark's own hash in a batch query."""
    hashed = df.select("k", F.pmod(F.hash("k"), F.lit(bins)).alias("bin")).distinct()
    return {row["k"]: row["bin"] for row in hashed.collect()}
