"""The queries that the tests run: from the input (k, v, t) to a DataFrame, with their output mode."""

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


QUERIES = {
    "count": (count_by_key, "update"),
    "count-complete": (count_by_key, "complete"),
    "tumbling-append": (tumbling, "append"),
    "tumbling-update": (tumbling, "update"),
    "sliding-append": (sliding_by_two_columns, "append"),
    "dedup": (deduplicate, "append"),
    "dedup-watermark": (deduplicate_with_watermark, "append"),
    "dedup-within-watermark": (deduplicate_within_watermark, "append"),
}
