"""The queries that the tests run: from the input (k, v, t) to a DataFrame, with their output mode."""

from collections.abc import Callable

from pyspark.sql import DataFrame
from pyspark.sql import functions as F


def count_by_key(df: DataFrame) -> DataFrame:
    return df.groupBy("k").agg(F.count("*").alias("n"), F.sum("v").alias("total"))


def tumbling(df: DataFrame) -> DataFrame:
    late = df.withWatermark("t", "90 seconds")
    return late.groupBy(F.window("t", "1 minute"), "k").agg(F.count("*").alias("n"))


def sliding_by_two_columns(df: DataFrame) -> DataFrame:
    late = df.withWatermark("t", "2 minutes").withColumn("even", F.col("v") % 2)
    return late.groupBy(F.window("t", "2 minutes", "1 minute"), "even", "k").agg(F.sum("v").alias("total"))


def deduplicate(df: DataFrame) -> DataFrame:
    return df.dropDuplicates(["k"]).select("k")


def deduplicate_with_watermark(df: DataFrame) -> DataFrame:
    # Keys come back in every epoch with the same event time, and once more when the state is evicted.
    late = df.withColumn("t", F.date_trunc("minute", "t")).withWatermark("t", "2 minutes")
    return late.dropDuplicates(["k", "t"]).select("k", "t")


def deduplicate_within_watermark(df: DataFrame) -> DataFrame:
    return df.withWatermark("t", "2 minutes").dropDuplicatesWithinWatermark(["k"]).select("k")


def session_of_fixed_gap(df: DataFrame) -> DataFrame:
    late = df.withWatermark("t", "2 minutes")
    return late.groupBy(F.session_window("t", "30 seconds"), "k").agg(F.count("*").alias("n"), F.sum("v").alias("s"))


def session_of_dynamic_gap(df: DataFrame) -> DataFrame:
    gap = F.when(F.col("v") % 2 == 0, "20 seconds").otherwise("70 seconds")
    late = df.withWatermark("t", "2 minutes").withColumn("even", F.col("v") % 2 == 0)
    return late.groupBy(F.session_window("t", gap), "even", "k").agg(F.count("*").alias("n"))


def sides(df: DataFrame) -> tuple[DataFrame, DataFrame]:
    """Two streams out of one: values below 24 on the left, those from 16 on the right."""
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
    # A stream may have one event-time column only.
    left = left.withColumn("w", F.window("lt", "2 minutes")).drop("lt")
    right = right.withColumnRenamed("rk", "k").withColumn("w", F.window("rt", "2 minutes")).drop("rt")
    return left.join(right, ["k", "w"], "leftOuter")


def plain_join(df: DataFrame) -> DataFrame:
    left, right = sides(df)
    return left.join(right, F.col("k") == F.col("rk"))


QUERIES = {
    "count": (count_by_key, "update"),
    "count-complete": (count_by_key, "complete"),
    "tumbling-append": (tumbling, "append"),
    "tumbling-update": (tumbling, "update"),
    "sliding-append": (sliding_by_two_columns, "append"),
    "session-fixed": (session_of_fixed_gap, "append"),
    "session-dynamic": (session_of_dynamic_gap, "append"),
    "join-inner": (interval_join("inner"), "append"),
    "join-left": (interval_join("leftOuter"), "append"),
    "join-right": (interval_join("rightOuter"), "append"),
    "join-full": (interval_join("fullOuter"), "append"),
    "join-semi": (interval_join("leftSemi"), "append"),
    "join-window": (window_join, "append"),
    "join-unbounded": (plain_join, "append"),
    "dedup": (deduplicate, "append"),
    "dedup-watermark": (deduplicate_with_watermark, "append"),
    "dedup-within-watermark": (deduplicate_within_watermark, "append"),
}
