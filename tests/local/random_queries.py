"""Random queries; a number determines the query."""

from __future__ import annotations

import random

from local.compositions import SOURCE, STATEFUL, Composition, build
from local.moving import Case

TABLES = ("plain", "hashed", "sorted", "bucketed", "grouped", "wide")
JOINS = ("inner", "inner", "left", "left", "left_semi", "left_anti")
HINTS = ("broadcast", "merge", "shuffle_hash")
STREAM_JOINS = ("inner", "inner", "leftOuter", "leftOuter", "rightOuter", "fullOuter", "leftSemi")
#: Operators whose Python workers take seconds are rare.
QUICK = tuple(name for name in STATEFUL if name != "stamped")
TOPS = ("counted", "counted", "rolled_up", "cubed", "counted_in_all")
#: Sinks that process their batches take several times as long, so they are rare.
SINKS = (*["collected"] * 8, *["taken_twice"] * 2, "processed", "kept_and_processed")
SIMPLE = (
    ("filtered",),
    ("projected",),
    ("crossed",),
    ("above_a_subquery",),
    ("exploded",),
    ("coalesced", 1),
    ("coalesced", 2),
    ("in_range",),
    ("chosen_by_subquery", "hashed", False),
    ("chosen_by_subquery", "plain", True),
    ("from_the_table", "plain", "merge"),
    ("from_the_table", "sorted", "shuffle_hash"),
)

#: Settings that change plans; half of the queries have some that are not Spark's defaults.
SETTINGS: dict[str, tuple[str, ...]] = {
    "spark.sql.codegen.wholeStage": ("false",),
    "spark.sql.shuffle.partitions": ("1", "3"),
    "spark.sql.autoBroadcastJoinThreshold": ("-1",),
    "spark.sql.adaptive.enabled": ("false",),
    "spark.sql.requireAllClusterKeysForCoPartition": ("false",),
    "spark.sql.shuffle.spreadNullJoinKeys.enabled": ("true",),
    "spark.sql.execution.replaceHashWithSortAgg": ("true",),
    "spark.sql.unionOutputPartitioning": ("false",),
    "spark.sql.sources.bucketing.enabled": ("false",),
    "spark.sql.execution.reuseSubquery": ("false",),
    "spark.sql.exchange.reuse": ("false",),
    "spark.sql.streaming.join.stateFormatVersion": ("3",),
    "spark.sql.streaming.stateStore.checkpointFormatVersion": ("2",),
}


def random_query(seed: int) -> tuple[Composition, Case]:
    """A query of up to a dozen operators, and its text; Spark doesn't allow all of them."""
    rng = random.Random(seed)
    sink = rng.choice(SINKS)
    changed = [key for key in SETTINGS if rng.random() < 0.15]
    conf = {key: rng.choice(SETTINGS[key]) for key in changed}
    composition, mode = _appending(rng) if rng.random() < 0.7 else _topped(rng)
    return composition, Case(build(composition), mode, sink, conf)


def operators_of(composition: Composition) -> int:
    """The number of operators, without sources."""
    below = [part for part in composition[1:] if isinstance(part, tuple)]
    return (composition != SOURCE) + sum(map(operators_of, below))


def _appending(rng: random.Random) -> tuple[Composition, str]:
    composition = SOURCE
    while not 2 <= operators_of(composition) <= 12 or not _has_state(composition):
        composition = _random(rng, rng.randint(2, 6), 3)
    return composition, "append"


def _has_state(composition: Composition) -> bool:
    below = [part for part in composition[1:] if isinstance(part, tuple)]
    return composition[0] in {*STATEFUL, "streams_joined", "streams_joined_by_time"} or any(
        map(_has_state, below)
    )


def _topped(rng: random.Random) -> tuple[Composition, str]:
    """Adds an operator for the modes update and complete, which has to be the topmost one with state."""
    below = _random(rng, rng.randint(0, 4), rng.choice((0, 0, 1)))
    if rng.random() < 0.4:
        below = ("united", ("repartitioned", below, 2, "k"), ("repartitioned", SOURCE, 2, "k"))
    top: Composition = (rng.choice(TOPS), below)
    for _ in range(rng.choice((0, 1, 1, 2))):
        top = _joined(rng, top)
    mode = rng.choice(("update", "update", "complete"))
    return ("ordered", top) if mode == "complete" and rng.random() < 0.5 else top, mode


def _random(rng: random.Random, depth: int, stateful: int) -> Composition:
    """A composition of at most `stateful` operators with state."""
    if depth == 0:
        return SOURCE
    kinds = ("join", "join", "join", "union", "union", "self-union", "repartition", "simple", "simple")
    kind = rng.choice((*kinds, "state", "state", "state", "streams", "streams") if stateful > 0 else kinds)
    if kind in {"union", "streams"}:
        return _of_two(rng, kind, depth, stateful)
    below = _random(rng, depth - 1, stateful - (kind == "state"))
    if kind == "state":
        return (rng.choice(STATEFUL if rng.random() < 0.1 else QUICK), below)
    if kind == "join":
        return _joined(rng, below)
    if kind == "self-union":
        return ("united", below, below)
    name, *options = rng.choice(SIMPLE) if kind == "simple" else _repartitioned(rng)
    return (name, below, *options)


def _repartitioned(rng: random.Random) -> Composition:
    keys = rng.choice((("k",), ("k",), ("k", "t"), ("v",), ()))
    return ("repartitioned", rng.choice((2, 2, 3, None)) if keys else 2, *keys)


def _of_two(rng: random.Random, kind: str, depth: int, stateful: int) -> Composition:
    one = _random(rng, depth - 1, stateful - (kind == "streams"))
    other = _random(rng, max(depth - 2, 0), min(stateful, 1) if kind == "union" else 0)
    if kind == "streams":
        if rng.random() < 0.2:
            return ("streams_joined_by_time", one, other)
        return ("streams_joined", one, other, rng.choice(STREAM_JOINS))
    # Most branches have the same partitioning.
    n = rng.choice((2, 2, 2, 3))
    if rng.random() < 0.3:
        one = ("repartitioned", one, n, "k")
    return ("united", one, ("repartitioned", other, n, "k") if rng.random() < 0.7 else other)


def _joined(rng: random.Random, below: Composition) -> Composition:
    return ("joined", below, rng.choice(TABLES), rng.choice(JOINS), rng.choice(HINTS))
