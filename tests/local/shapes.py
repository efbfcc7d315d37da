"""A catalogue of shapes of streaming plans, named by their special features."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from local.compositions import SOURCE, Composition, build
from local.moving import Case
from local.queries import in_jvm
from local.settings import IDS, JOIN_3, JOIN_4
from local.stars import STARS

HASHED = ("repartitioned", SOURCE, 2, "k")
OTHER = ("repartitioned", ("projected", SOURCE), 2, "k")


@dataclass(frozen=True)
class Shape(Case):
    """A query and the expected treatment.

    Parameters
    ----------
    follows : bool
        True if an operator's rows have to follow the routing table.
    refused : str
        The reason, a regular expression, if binshift runs no such query with two partitions, as it begins.
    """

    follows: bool = True
    refused: str = ""


#: Plans that can be below a stateful operator.
BELOW: dict[str, Composition] = {
    "repartition by number": ("repartitioned", SOURCE, 3),
    "repartition by key": ("repartitioned", SOURCE, None, "k"),
    "repartition by key and number": HASHED,
    "repartition by another key": ("repartitioned", SOURCE, 2, "v"),
    "repartition by range": ("in_range", SOURCE),
    "coalesce": ("coalesced", SOURCE, 1),
    "union": ("united", SOURCE, ("projected", SOURCE)),
    "co-partitioned union": ("united", HASHED, OTHER),
    "union of three": ("united", ("united", HASHED, OTHER), HASHED),
    "broadcast join": ("joined", SOURCE, "plain", "inner", "broadcast"),
    "sort-merge join": ("joined", SOURCE, "grouped", "left", "merge"),
    "sort-merge join with a bucketed table": ("joined", SOURCE, "bucketed", "inner", "merge"),
    "shuffled hash join with a cached table": ("joined", SOURCE, "hashed", "left_semi", "shuffle_hash"),
    "anti join": ("joined", SOURCE, "wide", "left_anti", "merge"),
}

#: Stateful operators above these; each represents its kind.
ABOVE_THEM: dict[str, tuple[Callable[[Composition], Composition], str]] = {
    "aggregation": (lambda below: ("counted", below), "update"),
    "deduplication": (lambda below: ("unique", below), "append"),
    "window": (lambda below: ("windowed", below), "append"),
    "stream-stream join": (lambda below: ("streams_joined", below, OTHER, "inner"), "append"),
}

#: Plans that can be above a stateful operator.
ABOVE: dict[str, Callable[[Composition], Composition]] = {
    "repartition by key": lambda one: ("repartitioned", one, 2, "k"),
    "union with the stream": lambda one: ("united", one, HASHED),
    "union with itself": lambda one: ("united", one, one),
    "broadcast join": lambda one: ("joined", one, "plain", "left", "broadcast"),
    "sort-merge join": lambda one: ("joined", one, "plain", "inner", "merge"),
    "shuffled hash join": lambda one: ("joined", one, "grouped", "left", "shuffle_hash"),
    "semi join with a bucketed table": lambda one: ("joined", one, "bucketed", "left_semi", "merge"),
    "anti join with a cached table": lambda one: ("joined", one, "sorted", "left_anti", "merge"),
    "outer join from the table": lambda one: ("from_the_table", one, "hashed", "merge"),
}

#: Stateful operators below these; each represents its kind.
BELOW_THEM: dict[str, tuple[Callable[[Composition], Composition], str]] = {
    "deduplication": (lambda below: ("unique", below), "append"),
    "session window": (lambda below: ("in_sessions", below), "append"),
    "outer join of streams": (lambda below: ("streams_joined", below, OTHER, "leftOuter"), "append"),
}

#: All kinds of stateful operators that Python can express in columns (k, v, t).
OPERATORS: dict[str, tuple[Composition, str]] = {
    "aggregation, complete": (("ordered", ("counted", SOURCE)), "complete"),
    "aggregation of nothing, complete": (("counted_in_all", SOURCE), "complete"),
    "rollup": (("rolled_up", SOURCE), "update"),
    "cube": (("cubed", SOURCE), "complete"),
    "sliding window over several columns": (("sliding", SOURCE), "append"),
    "sketch in a window": (("windowed_distinct", SOURCE), "append"),
    "aggregation by key and time": (("by_key_and_time", SOURCE), "append"),
    "distinct": (("distinct", SOURCE), "append"),
    "deduplication by all columns": (("unique_by_value", SOURCE), "append"),
    "deduplication within the watermark": (("unique_for_a_while", SOURCE), "append"),
    "join of streams, right": (("streams_joined", SOURCE, OTHER, "rightOuter"), "append"),
    "join of streams, full": (("streams_joined", SOURCE, OTHER, "fullOuter"), "append"),
    "join of streams, semi": (("streams_joined", SOURCE, OTHER, "leftSemi"), "append"),
    "join of streams by two columns": (("streams_joined_by_time", SOURCE, OTHER), "append"),
    "join of a stream with itself": (("streams_joined", SOURCE, SOURCE, "inner"), "append"),
    "transformWithState": (("stamped", SOURCE), "append"),
    "applyInPandasWithState": (("seen_in_pandas", SOURCE), "append"),
    "limit": (("limited", SOURCE, 70), "append"),
}

#: Several stateful operators, with various plans between them.
CHAINS: dict[str, tuple[Composition, str]] = {
    "window of windows": (("windowed", ("windowed", SOURCE)), "append"),
    "one key, two operators": (("windowed", ("unique", SOURCE)), "append"),
    "one key, three operators": (("in_sessions", ("windowed", ("unique", SOURCE))), "append"),
    "another key, two operators": (("unique_by_value", ("unique", SOURCE)), "append"),
    "join of streams, then sessions": (("in_sessions", ("streams_joined", SOURCE, OTHER, "inner")), "append"),
    "join of streams, each deduplicated": (
        ("streams_joined", ("unique_at_time", SOURCE), ("unique_at_time", OTHER), "leftOuter"),
        "append",
    ),
    "join of streams, then of a third": (
        ("streams_joined", ("streams_joined", SOURCE, OTHER, "inner"), HASHED, "inner"),
        "append",
    ),
    "aggregation of an operator united with the stream": (
        ("windowed", ("united", ("unique", SOURCE), OTHER)),
        "append",
    ),
    "bucketed table between two operators": (
        ("in_sessions", ("joined", ("unique", SOURCE), "bucketed", "inner", "merge")),
        "append",
    ),
    "cached table between two operators": (
        ("in_sessions", ("joined", ("unique", SOURCE), "sorted", "left", "merge")),
        "append",
    ),
    "two tables between two operators": (
        (
            "windowed",
            (
                "joined",
                ("joined", ("unique", SOURCE), "plain", "inner", "shuffle_hash"),
                "hashed",
                "left",
                "merge",
            ),
        ),
        "append",
    ),
    "repartition between two operators": (("windowed", ("repartitioned", ("unique", SOURCE), 3)), "append"),
    "coalesce between two operators": (("windowed", ("coalesced", ("unique", SOURCE), 1)), "append"),
    "two unions": (("unique", ("united", ("united", HASHED, OTHER), ("windowed", SOURCE))), "append"),
    "limit of deduplicated rows": (("limited", ("unique", SOURCE), 9), "append"),
    "transformWithState, then a window": (("windowed", ("stamped", SOURCE)), "append"),
    "transformWithState of deduplicated rows": (("stamped", ("unique", SOURCE)), "append"),
    "groups in pandas below": (("unique", ("in_pandas", SOURCE)), "append"),
    "groups in pandas above": (("in_pandas", ("unique", SOURCE)), "append"),
    "subqueries below": (
        ("unique", ("chosen_by_subquery", ("above_a_subquery", SOURCE), "hashed", False)),
        "append",
    ),
    "subqueries above": (("chosen_by_subquery", ("unique", SOURCE), "bucketed", True), "append"),
    "cross join": (("unique", ("crossed", ("exploded", SOURCE))), "append"),
    "aggregation of a window by another column": (
        ("counted", ("projected", ("repartitioned", SOURCE, 2))),
        "update",
    ),
}


def typed(name: str) -> Callable[[DataFrame], DataFrame]:
    """A query of the typed API, where keys can't be null."""
    return lambda df: in_jvm(name)(df.where("k IS NOT NULL"))


def by_expression(df: DataFrame) -> DataFrame:
    """Keys that are expressions, neither columns of the input nor named like one."""
    counted = df.groupBy(F.upper("k").alias("key"), F.expr("v % 3")).agg(F.count("*").alias("n"))
    return counted.join(counted.sparkSession.table("global_temp.plain"), F.expr("lower(key) = k"), "left")


def by_double(df: DataFrame) -> DataFrame:
    zeros = df.select(F.expr("CASE WHEN v % 4 = 0 THEN -0.0D ELSE v % 4 / 2.0D END").alias("d"), "v")
    return zeros.groupBy("d").agg(F.sum("v").alias("v"))


def by_struct(df: DataFrame) -> DataFrame:
    return df.groupBy(F.struct("k", F.expr("v % 2")).alias("s")).agg(F.count("*").alias("n"))


def by_constant(df: DataFrame) -> DataFrame:
    return df.groupBy(F.lit("all"), "k").agg(F.sum("v").alias("v"))


def by_collated(df: DataFrame) -> DataFrame:
    text = df.select(F.expr("collate(if(v % 2 = 0, upper(k), k), 'UTF8_LCASE')").alias("c"), "v")
    return text.groupBy("c").agg(F.sum("v").alias("v")).select(F.lower("c").cast("string"), "v")


def read_twice(df: DataFrame) -> DataFrame:
    """A union whose branches share one exchange."""
    hashed = df.withWatermark("t", "1 minute").repartition(2, "k")
    return hashed.union(hashed).groupBy("k").agg(F.count("*").alias("n"))


#: With this setting, null keys of an outer join go to any partition.
SPREAD = {"spark.sql.shuffle.spreadNullJoinKeys.enabled": "true", "spark.sql.autoBroadcastJoinThreshold": "-1"}

SPECIAL: dict[str, Shape] = {
    "keys that are expressions": Shape(by_expression, "update"),
    "key of doubles": Shape(by_double, "update"),
    "key of structs": Shape(by_struct, "update"),
    "constant in the key": Shape(by_constant, "update"),
    "key with a collation": Shape(by_collated, "update"),
    "one exchange for two branches": Shape(read_twice, "update"),
    "flatMapGroupsWithState, with an initial state": Shape(typed("countUntilSilent"), "update"),
    "transformWithState of the JVM": Shape(typed("transformed"), "update"),
    "transformWithState, with an initial state": Shape(typed("transformedWithInitialState"), "update"),
    "join of streams, format 3": Shape(build(("streams_joined", SOURCE, OTHER, "leftOuter")), conf=JOIN_3),
    "join of streams, format 4": Shape(build(("streams_joined", HASHED, OTHER, "inner")), conf=JOIN_4),
    "checkpoint ids": Shape(build(("windowed", ("unique", SOURCE))), conf=IDS),
    "unions that forget how they are partitioned": Shape(
        build(("counted", ("united", HASHED, OTHER))),
        "update",
        conf={"spark.sql.unionOutputPartitioning": "false"},
    ),
    "adaptive execution": Shape(
        build(("joined", ("counted", SOURCE), "plain", "left", "merge")),
        "update",
        "processed",
        {"spark.sql.adaptive.enabled": "true", "spark.sql.adaptive.forceApply": "true"},
    ),
    "no broadcast by size": Shape(
        build(("chosen_by_subquery", ("unique", SOURCE), "plain", False)),
        conf={"spark.sql.autoBroadcastJoinThreshold": "-1"},
    ),
    "co-partitioned by some of the columns": Shape(
        build(("windowed", ("joined", ("unique_at_time", SOURCE), "plain", "inner", "merge"))),
        conf={"spark.sql.requireAllClusterKeysForCoPartition": "false"},
    ),
    "rows by some of the columns of the state": Shape(
        build(("unique_at_time", HASHED)),
        # As in checkpoints of old versions of Spark.
        conf={"spark.sql.streaming.statefulOperator.useStrictDistribution": "false"},
        refused=r"its rows are partitioned by hashpartitioning\(k#.*, and its state by k#\d+, t#",
    ),
    "null keys spread below": Shape(
        build(("unique", ("joined", SOURCE, "plain", "left", "merge"))), conf=SPREAD
    ),
    "null keys spread above": Shape(
        build(("joined", ("unique", SOURCE), "plain", "left", "merge")), conf=SPREAD
    ),
    "null keys spread between": Shape(
        build(("windowed", ("joined", ("unique_at_time", SOURCE), "wide", "left", "shuffle_hash"))), conf=SPREAD
    ),
    "null keys spread in a union": Shape(
        build(("unique", ("united", ("joined", SOURCE, "plain", "left", "merge"), HASHED))), conf=SPREAD
    ),
    "one partition to begin with": Shape(
        build(("joined", ("windowed", ("unique", SOURCE)), "plain", "left", "merge")),
        conf={"spark.sql.shuffle.partitions": "1"},
    ),
    "batch taken twice": Shape(build(("counted", SOURCE)), "update", "taken_twice"),
    "batch joined and grouped": Shape(build(("counted", HASHED)), "update", "processed"),
    "batch kept, joined and grouped": Shape(build(("in_sessions", SOURCE)), "append", "kept_and_processed"),
}


#: The shapes without an operator whose rows have to follow the table.
STAY = {"aggregation of nothing, complete", "limit"}


def _all() -> Iterator[tuple[str, Shape]]:
    for context, below in BELOW.items():
        for kind, (above, mode) in ABOVE_THEM.items():
            yield f"{kind} above {context}", Shape(build(above(below)), mode)
    for context, over in ABOVE.items():
        for kind, (made, mode) in BELOW_THEM.items():
            yield f"{kind} below {context}", Shape(build(over(made(SOURCE))), mode)
    for name, (composition, mode) in (OPERATORS | CHAINS).items():
        yield name, Shape(build(composition), mode, follows=name not in STAY)
    yield from SPECIAL.items()
    for name, (star, mode) in STARS.items():
        yield name, Shape(star, mode)


SHAPES: dict[str, Shape] = dict(_all())
