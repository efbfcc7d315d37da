"""Streaming queries composed of operators, each from columns (k, v, t) to the same, so that all fit together.

A composition is a tuple: the name of an operator, its options, and the compositions that it reads. Its
text is all that is needed to make it again.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pandas as pd
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from local.processors import Stamping, seen

KEYS = 14
COLUMNS = ("k", "v", "t")
Composition = tuple[Any, ...]
SOURCE: Composition = ("source",)


def epoch_rows(epoch: int) -> list[dict[str, Any]]:
    """Rows with a single event time, so that the order of a key's rows doesn't matter."""
    rows = []
    for i in range(26):
        row = {"v": i + epoch, "t": f"2026-01-01 {epoch // 60:02}:{epoch % 60:02}:00"}
        number = (i * 5 + epoch * 3) % KEYS
        rows.append(row | ({"k": f"key{number}"} if number else {}))
    return rows


def make_tables(spark: SparkSession) -> None:
    """Static tables (k, g) with different partitionings; two keys have no row, and one has two."""
    base = spark.createDataFrame([(f"key{i}", i % 5) for i in [*range(KEYS - 2), 1]], "k string, g long")
    base.createOrReplaceGlobalTempView("plain")
    hashed = base.repartition(2, "k").cache()
    hashed.createOrReplaceGlobalTempView("hashed")
    base.repartition(2, "k").sortWithinPartitions("k").cache().createOrReplaceGlobalTempView("sorted")
    base.repartition(3, "k").cache().createOrReplaceGlobalTempView("wide")
    base.groupBy("k").agg(F.max("g").alias("g")).createOrReplaceGlobalTempView("grouped")
    base.write.mode("overwrite").bucketBy(2, "k").sortBy("k").saveAsTable("binshift_bucketed")
    spark.table("binshift_bucketed").createOrReplaceGlobalTempView("bucketed")


def table(df: DataFrame, name: str) -> DataFrame:
    return df.sparkSession.table(f"global_temp.{name}")


def source(df: DataFrame) -> DataFrame:
    return df.withWatermark("t", "1 minute")


def filtered(df: DataFrame) -> DataFrame:
    return df.where("v % 3 <> 0")


def projected(df: DataFrame) -> DataFrame:
    return df.select("k", (F.col("v") * 2 + 1).alias("v"), "t")


def repartitioned(df: DataFrame, n: int | None, *keys: str) -> DataFrame:
    return df.repartition(n, *keys) if n is not None else df.repartition(*keys)


def united(one: DataFrame, other: DataFrame) -> DataFrame:
    return one.union(other)


def joined(df: DataFrame, name: str, how: str, hint: str) -> DataFrame:
    other = table(df, name).hint(hint)
    if how in {"left_semi", "left_anti"}:
        return df.join(other, "k", how)
    return df.join(other, "k", how).select("k", (F.col("v") + F.coalesce("g", F.lit(100))).alias("v"), "t")


def crossed(df: DataFrame) -> DataFrame:
    most = table(df, "plain").agg(F.max("g").alias("g"))
    return df.crossJoin(most).select("k", (F.col("v") + F.col("g")).alias("v"), "t")


def above_a_subquery(df: DataFrame) -> DataFrame:
    return df.where("v > (SELECT min(g) + 2 FROM global_temp.hashed)")


def exploded(df: DataFrame) -> DataFrame:
    return df.select("k", F.explode(F.array("v", F.col("v") + 1)).alias("v"), "t")


def coalesced(df: DataFrame, n: int) -> DataFrame:
    return df.coalesce(n)


def from_the_table(df: DataFrame, name: str, hint: str) -> DataFrame:
    """The stream on the right of an outer join."""
    wide = table(df, name).hint(hint).join(df, "k", "right")
    return wide.select("k", (F.col("v") + F.coalesce("g", F.lit(100))).alias("v"), "t")


def in_range(df: DataFrame) -> DataFrame:
    return df.repartitionByRange(3, "k")


def chosen_by_subquery(df: DataFrame, name: str, negated: bool) -> DataFrame:
    df.createOrReplaceTempView("stream")
    word = "NOT EXISTS" if negated else "EXISTS"
    return df.sparkSession.sql(
        f"SELECT k, v, t FROM stream WHERE {word} (SELECT 1 FROM global_temp.{name} g WHERE g.k = stream.k)"
    )


def limited(df: DataFrame, n: int) -> DataFrame:
    # The order of rows is undefined, so all rows are made alike.
    return df.select(F.lit("any").alias("k"), F.lit(1).cast("long").alias("v"), "t").limit(n)


def in_pandas(df: DataFrame) -> DataFrame:
    """A stateless function in pandas on one group of an epoch at a time."""

    def doubled(rows: pd.DataFrame) -> pd.DataFrame:
        return rows.assign(v=rows.v * 2)

    return df.groupBy("k").applyInPandas(doubled, "k string, v long, t timestamp")


def unique(df: DataFrame) -> DataFrame:
    return df.dropDuplicates(["k"]).select("k", F.lit(1).cast("long").alias("v"), "t")


def unique_at_time(df: DataFrame) -> DataFrame:
    return df.dropDuplicates(["k", "t"]).select("k", F.lit(1).cast("long").alias("v"), "t")


def unique_for_a_while(df: DataFrame) -> DataFrame:
    return df.dropDuplicatesWithinWatermark(["k"]).select("k", F.lit(1).cast("long").alias("v"), "t")


def unique_by_value(df: DataFrame) -> DataFrame:
    return df.dropDuplicates(["k", "v", "t"])


def distinct(df: DataFrame) -> DataFrame:
    return df.select("k", "t").distinct().select("k", F.lit(1).cast("long").alias("v"), "t")


def stamped(df: DataFrame) -> DataFrame:
    schema = "k string, t timestamp, n long"
    counted = df.groupBy("k").transformWithState(Stamping(), schema, "Append", "EventTime", None, "t")
    return counted.select("k", F.col("n").alias("v"), "t")


def seen_in_pandas(df: DataFrame) -> DataFrame:
    schema = "k string, v long, t timestamp"
    return df.groupBy("k").applyInPandasWithState(seen, schema, "n long", "append", "NoTimeout")


def windowed(df: DataFrame) -> DataFrame:
    counted = df.groupBy(F.window("t", "2 minutes"), "k").agg(F.sum("v").alias("v"))
    return counted.select("k", "v", F.window_time("window").alias("t"))


def windowed_distinct(df: DataFrame) -> DataFrame:
    counted = df.groupBy("k", F.window("t", "1 minute")).agg(F.approx_count_distinct("v").alias("v"))
    return counted.select("k", "v", F.window_time("window").alias("t"))


def in_sessions(df: DataFrame) -> DataFrame:
    counted = df.groupBy(F.session_window("t", "30 seconds"), "k").agg(F.sum("v").alias("v"))
    return counted.select("k", "v", F.window_time("session_window").alias("t"))


def sliding(df: DataFrame) -> DataFrame:
    window = F.window("t", "2 minutes", "1 minute")
    counted = df.groupBy(window, (F.col("v") % 3).alias("m"), "k").agg(F.sum("v").alias("v"))
    return counted.select("k", "v", F.window_time("window").alias("t"))


def by_key_and_time(df: DataFrame) -> DataFrame:
    return df.groupBy("k", "t").agg(F.sum("v").alias("v")).select(*COLUMNS)


def streams_joined(one: DataFrame, other: DataFrame, how: str) -> DataFrame:
    right = other.select(F.col("k").alias("rk"), F.col("v").alias("rv"), F.col("t").alias("rt"))
    near = F.expr("k = rk AND rt >= t - INTERVAL 1 MINUTE AND rt <= t + INTERVAL 1 MINUTE AND (v + rv) % 4 = 0")
    pairs = one.join(right, near, how)
    if how == "leftSemi":
        return pairs
    key, value = F.coalesce("k", "rk").alias("k"), F.coalesce("v", F.lit(7)) + F.coalesce("rv", F.lit(7))
    if how in {"rightOuter", "fullOuter"}:
        # A row without a match only has its own side's time, so the time is taken from either side.
        return pairs.select(key, value.alias("v"), F.coalesce("t", "rt").alias("t"))
    return pairs.select("k", value.alias("v"), "t")


def streams_joined_by_time(one: DataFrame, other: DataFrame) -> DataFrame:
    """A join by two columns, one of which is the event time."""
    right = other.select("k", "t", F.col("v").alias("rv"))
    return one.join(right, ["k", "t"]).where("(v + rv) % 4 = 0").select("k", F.expr("v + rv").alias("v"), "t")


def counted(df: DataFrame) -> DataFrame:
    return df.groupBy("k").agg(F.sum("v").alias("v"), F.max("t").alias("t")).select(*COLUMNS)


def counted_in_all(df: DataFrame) -> DataFrame:
    return df.agg(F.sum("v").alias("v"), F.max("t").alias("t")).select(F.lit("all").alias("k"), "v", "t")


def rolled_up(df: DataFrame) -> DataFrame:
    rolled = df.rollup("k", (F.col("v") % 3).alias("m"))
    return rolled.agg(F.sum("v").alias("v"), F.max("t").alias("t")).select(*COLUMNS)


def cubed(df: DataFrame) -> DataFrame:
    cube = df.cube("k", (F.col("v") % 2).alias("m"))
    return cube.agg(F.sum("v").alias("v"), F.max("t").alias("t")).select(*COLUMNS)


def ordered(df: DataFrame) -> DataFrame:
    return df.orderBy("v", "k")


OPERATORS: dict[str, Callable[..., DataFrame]] = {
    f.__name__: f
    for f in (
        source,
        filtered,
        projected,
        repartitioned,
        united,
        joined,
        unique,
        unique_at_time,
        unique_for_a_while,
        unique_by_value,
        windowed,
        windowed_distinct,
        in_sessions,
        by_key_and_time,
        streams_joined,
        counted,
        counted_in_all,
        rolled_up,
        cubed,
        ordered,
        crossed,
        above_a_subquery,
        exploded,
        coalesced,
        from_the_table,
        in_range,
        chosen_by_subquery,
        limited,
        in_pandas,
        distinct,
        stamped,
        seen_in_pandas,
        sliding,
        streams_joined_by_time,
    )
}

#: Operators that keep state, and work in append mode.
STATEFUL = (
    "unique",
    "unique_at_time",
    "unique_for_a_while",
    "unique_by_value",
    "windowed",
    "windowed_distinct",
    "in_sessions",
    "by_key_and_time",
    "distinct",
    "sliding",
    "stamped",
)


def build(composition: Composition) -> Callable[[DataFrame], DataFrame]:
    """The query of a composition."""

    def made(df: DataFrame, part: Composition) -> DataFrame:
        name, *arguments = part
        if name == "source":
            return source(df)
        return OPERATORS[name](*(made(df, a) if isinstance(a, tuple) else a for a in arguments))

    return lambda df: made(df, composition)
