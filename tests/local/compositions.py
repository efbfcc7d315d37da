"""Streaming queries composed of operators, each from columns (k, v, t) to the same, so that all fit together.

A composition is a tuple: the name of an operator, its options, and the compositions that it reads. Its
text is all that is needed to make it again.
"""

from __future__ import annotations

import json
import os
import random
from collections.abc import Callable, Iterable
from typing import Any

from pyspark.sql import DataFrame, SparkSession, Window
from pyspark.sql import functions as F

from harness import Row, StreamRun

KEYS = 14
COLUMNS = ("k", "v", "t")
Composition = tuple[Any, ...]
SOURCE: Composition = ("source",)

TABLES = ("plain", "hashed", "sorted", "bucketed", "grouped", "wide")
JOINS = ("inner", "inner", "left", "left", "left_semi", "left_anti")
HINTS = ("broadcast", "merge", "shuffle_hash")


def epoch_rows(epoch: int) -> list[dict[str, Any]]:
    """Rows of one event time, so that it does not matter which of several rows of a key comes first."""
    rows = []
    for i in range(26):
        row = {"v": i + epoch, "t": f"2026-01-01 {epoch // 60:02}:{epoch % 60:02}:00"}
        number = (i * 5 + epoch * 3) % KEYS
        rows.append(row | ({"k": f"key{number}"} if number else {}))
    return rows


def make_tables(spark: SparkSession) -> None:
    """Static tables (k, g) that differ in how they are partitioned; two keys have no row, and one has two."""
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


def unique(df: DataFrame) -> DataFrame:
    return df.dropDuplicates(["k"]).select("k", F.lit(1).cast("long").alias("v"), "t")


def unique_at_time(df: DataFrame) -> DataFrame:
    return df.dropDuplicates(["k", "t"]).select("k", F.lit(1).cast("long").alias("v"), "t")


def unique_for_a_while(df: DataFrame) -> DataFrame:
    return df.dropDuplicatesWithinWatermark(["k"]).select("k", F.lit(1).cast("long").alias("v"), "t")


def unique_by_value(df: DataFrame) -> DataFrame:
    return df.dropDuplicates(["k", "v", "t"])


def windowed(df: DataFrame) -> DataFrame:
    counted = df.groupBy(F.window("t", "2 minutes"), "k").agg(F.sum("v").alias("v"))
    return counted.select("k", "v", F.window_time("window").alias("t"))


def windowed_distinct(df: DataFrame) -> DataFrame:
    counted = df.groupBy("k", F.window("t", "1 minute")).agg(F.approx_count_distinct("v").alias("v"))
    return counted.select("k", "v", F.window_time("window").alias("t"))


def in_sessions(df: DataFrame) -> DataFrame:
    counted = df.groupBy(F.session_window("t", "30 seconds"), "k").agg(F.sum("v").alias("v"))
    return counted.select("k", "v", F.window_time("session_window").alias("t"))


def by_key_and_time(df: DataFrame) -> DataFrame:
    return df.groupBy("k", "t").agg(F.sum("v").alias("v")).select(*COLUMNS)


def streams_joined(one: DataFrame, other: DataFrame, how: str) -> DataFrame:
    right = other.select(F.col("k").alias("rk"), F.col("v").alias("rv"), F.col("t").alias("rt"))
    near = F.expr("k = rk AND rt >= t - INTERVAL 1 MINUTE AND rt <= t + INTERVAL 1 MINUTE AND (v + rv) % 4 = 0")
    return one.join(right, near, how).select("k", (F.col("v") + F.coalesce("rv", F.lit(7))).alias("v"), "t")


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
)


def build(composition: Composition) -> Callable[[DataFrame], DataFrame]:
    """The query of a composition."""

    def made(df: DataFrame, part: Composition) -> DataFrame:
        name, *arguments = part
        if name == "source":
            return source(df)
        return OPERATORS[name](*(made(df, a) if isinstance(a, tuple) else a for a in arguments))

    return lambda df: made(df, composition)


def collected(batch: DataFrame) -> list[Row]:
    return [tuple(r) for r in batch.collect()]


def taken_twice(batch: DataFrame) -> list[Row]:
    return [(batch.count(),), *collected(batch)]


def processed(batch: DataFrame) -> list[Row]:
    """Several actions, with batch operators that may take the stream's partitioning for granted."""
    static = table(batch, "hashed").hint("merge")
    other = table(batch, "bucketed").hint("shuffle_hash")
    doubled = batch.repartition(2, "k").union(batch)
    last = F.row_number().over(Window.partitionBy("k").orderBy(F.col("v").desc()))
    return [
        *collected(batch.join(static, "k", "left").join(other, "k")),
        *collected(batch.hint("merge").join(doubled.groupBy("k").agg(F.count("*").alias("n")), "k")),
        *collected(batch.withColumn("place", last).where("place = 1").select("k", "v")),
    ]


def kept_and_processed(batch: DataFrame) -> list[Row]:
    kept = batch.persist()
    try:
        return processed(kept)
    finally:
        kept.unpersist(blocking=True)


SINKS = {f.__name__: f for f in (collected, taken_twice, processed, kept_and_processed)}


class ComposedRun(StreamRun):
    """A run whose batches go through a sink of `SINKS`."""

    sink = "collected"

    def feed(self, data: Iterable[dict[str, Any]]) -> None:
        """Files are read in the order of their times, also where many are written at once."""
        number = len(list(self.input.glob("*.json")))
        temporary = self.root / "next"
        temporary.write_text("\n".join(json.dumps(r) for r in data))
        os.utime(temporary, (1e9 + number, 1e9 + number))
        os.replace(temporary, self.input / f"{number:06}.json")

    def _keep(self, batch: DataFrame, epoch: int) -> None:
        self.outputs[epoch] = sorted(SINKS[self.sink](batch), key=repr)


def random_composition(rng: random.Random, depth: int, stateful: int) -> Composition:
    """A composition of at most `stateful` operators with state, in append mode; some are not valid."""
    if depth == 0:
        return SOURCE
    kinds = ("join", "join", "join", "union", "union", "repartition", "simple")
    kind = rng.choice((*kinds, "state", "state", "state", "streams") if stateful > 0 else kinds)
    if kind in {"union", "streams"}:
        return _of_two(rng, kind, depth, stateful)
    below = random_composition(rng, depth - 1, stateful - (kind == "state"))
    if kind == "state":
        return (rng.choice(STATEFUL), below)
    if kind == "join":
        return _joined(rng, below)
    if kind == "repartition":
        keys = rng.choice((("k",), ("k",), ("k", "t"), ("v",), ()))
        return ("repartitioned", below, rng.choice((2, 2, 3, None)) if keys else 2, *keys)
    simple = rng.choice(("filtered", "projected", "crossed", "above_a_subquery", "exploded", "coalesced"))
    return (simple, below, 2) if simple == "coalesced" else (simple, below)


def _of_two(rng: random.Random, kind: str, depth: int, stateful: int) -> Composition:
    one = random_composition(rng, depth - 1, stateful - (kind == "streams"))
    other = random_composition(rng, max(depth - 2, 0), min(stateful, 1) if kind == "union" else 0)
    if kind == "streams":
        return ("streams_joined", one, other, rng.choice(("inner", "inner", "leftOuter")))
    # Most branches are partitioned alike.
    n = rng.choice((2, 2, 2, 3))
    if rng.random() < 0.3:
        one = ("repartitioned", one, n, "k")
    return ("united", one, ("repartitioned", other, n, "k") if rng.random() < 0.7 else other)


def _joined(rng: random.Random, below: Composition) -> Composition:
    return ("joined", below, rng.choice(TABLES), rng.choice(JOINS), rng.choice(HINTS))


def random_query(seed: int) -> tuple[Composition, str, str]:
    """A composition, an output mode and the name of a sink."""
    rng = random.Random(seed)
    sink = rng.choice(("collected", "collected", "collected", "taken_twice", "processed", "kept_and_processed"))
    if rng.random() < 0.7:
        composition = SOURCE
        while not any(operator in repr(composition) for operator in (*STATEFUL, "streams_joined")):
            composition = random_composition(rng, rng.randint(2, 5), 3)
        return composition, "append", sink
    below = random_composition(rng, rng.randint(0, 3), rng.choice((0, 0, 1)))
    if rng.random() < 0.4:
        below = ("united", ("repartitioned", below, 2, "k"), ("repartitioned", SOURCE, 2, "k"))
    top: Composition = (rng.choice(("counted", "counted", "rolled_up", "cubed", "counted_in_all")), below)
    if rng.random() < 0.5:
        top = _joined(rng, top)
    mode = rng.choice(("update", "update", "complete"))
    return ("ordered", top) if mode == "complete" and rng.random() < 0.5 else top, mode, sink
