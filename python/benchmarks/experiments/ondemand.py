"""The experiments of the Meces paper."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from operator import itemgetter

from binshift.planning.routing import RoutingTable
from experiments.common import (
    AIM,
    MECES,
    ON_DEMAND,
    STOCK,
    UNPREPARED,
    Size,
    counting,
    excess,
    grown,
    paced,
)
from firstseen import firstseen
from openloop.bench import Bench
from openloop.experiment import Case, Experiment, Figure, compared, spread, spread_if_any
from openloop.results import Record

__all__ = ["assignments", "both_ways", "on_demand"]

#: Seconds of excess latency of Flink 2.3's adaptive scheduler in the workload of `rescale`, by the partitions
#: afterwards. The figure for more partitions is from a quiet machine of this kind; that for fewer is from a
#: busy one, the least of several.
FLINK = {8: 0.9, 4: 5.0}


def on_demand(size: Size) -> list[Experiment]:
    actions = [replace(a, before=3, after=5) for a in (STOCK, UNPREPARED, ON_DEMAND)]
    zipfs = (0.0, 0.8, 1.2)
    skewed: list[Case] = []
    for zipf in zipfs:
        load = counting(size, keys=size.few_keys, zipf=zipf)
        skewed += paced("on-demand-skewed", load, [ON_DEMAND, UNPREPARED], zipf=zipf)

    def peaks(records: Sequence[Record]) -> list[Figure]:
        found: list[Figure] = []
        for name in (STOCK.name, UNPREPARED.name):
            what = f"excess latency, {name} ÷ on-demand"
            found += compared(what, records, excess, {"run": name}, {"run": ON_DEMAND.name})
        return found

    def by_record(records: Sequence[Record]) -> list[Figure]:
        found: list[Figure] = []
        for until, value in (
            ("until four in five of its records are processed", "most_ms"),
            ("until its end", "longest_ms"),
        ):
            what = f"longest time of an epoch {until}, all-at-once ÷ on-demand"
            over, under = {"run": UNPREPARED.name}, {"run": ON_DEMAND.name}
            found += compared(what, records, itemgetter(value), over, under)
        return found

    def by_skew(records: Sequence[Record]) -> list[Figure]:
        found: list[Figure] = []
        for zipf in zipfs:
            over, under = {"run": UNPREPARED.name, "zipf": zipf}, {"run": ON_DEMAND.name, "zipf": zipf}
            what = f"excess latency, all-at-once ÷ on-demand, Zipf {zipf:g}"
            found += compared(what, records, excess, over, under)
        return found

    few, many = size.keys // 16, size.keys
    larger: list[Case] = []
    for keys in (few, many):
        larger += paced("on-demand-more-keys", counting(size, keys=keys), actions[1:], keys=keys)

    def by_keys(records: Sequence[Record]) -> list[Figure]:
        found: list[Figure] = []
        for name in (ON_DEMAND.name, UNPREPARED.name):
            for what, value in (("first epoch that takes effect", "first_ms"), ("longest epoch", "longest_ms")):
                found += grown(records, what, value, name, "keys", few, many)
        for keys in (few, many):
            what = f"first epoch that takes effect ÷ median, {keys:,} keys: {ON_DEMAND.name}"
            values = [r.values for r in records if r.case == {"run": ON_DEMAND.name, "keys": keys}]
            found += spread_if_any(what, [v["first_ms"] / v["steady_ms"] for v in values])
        what = f"excess latency, {UNPREPARED.name} ÷ on-demand, {many:,} keys"
        over, under = {"run": UNPREPARED.name, "keys": many}, {"run": ON_DEMAND.name, "keys": many}
        return found + compared(what, records, excess, over, under)

    counted = paced("on-demand", counting(size, keys=size.few_keys), actions)
    seen = firstseen(size.few_keys, size.rows, size.intervals, size.interval)
    passed = paced("on-demand-by-record", seen, actions[1:])
    restart = {MECES: "about 20 times lower than a restart"}
    group, n = "fetching", size.repeats
    title = "scale out 3 to 5: restart, order-unaware, on demand"
    hot_first = {MECES: "hot first is lower than random order"}
    return [
        Experiment("on-demand", title, restart, counted, peaks, group, n, "excess"),
        Experiment(
            "on-demand-by-record", "each new key is passed", restart, passed, by_record, group, n, "longest"
        ),
        Experiment(
            "on-demand-more-keys",
            "number of keys",
            {AIM: "on demand: 1.3 at most, at 16 × the keys"},
            larger,
            by_keys,
            group,
            n,
            "first epoch",
        ),
        Experiment("on-demand-skewed", "skewed keys", hot_first, skewed, by_skew, group, n, "excess"),
    ]


def both_ways(size: Size) -> Experiment:
    """More partitions and fewer, compared with another engine that restarts its job."""
    load, cases = counting(size), []
    for before, after in ((4, 8), (8, 4)):
        actions = [replace(a, before=before, after=after) for a in (ON_DEMAND, UNPREPARED)]
        cases += paced("both-ways", load, actions, after=after)

    def figures(records: Sequence[Record]) -> list[Figure]:
        found: list[Figure] = []
        for after, flink in FLINK.items():
            for name in (ON_DEMAND.name, UNPREPARED.name):
                same = [r.values for r in records if r.case == {"run": name, "after": after}]
                what = f"excess latency ÷ Flink's: {name}, to {after} partitions"
                found += spread_if_any(what, [excess(v) / flink for v in same])
                what = f"longest ÷ median epoch: {name}, to {after} partitions"
                found += spread_if_any(what, [v["ratio"] for v in same])
        return found

    title = f"key-count, {size.keys:,} keys, 4 to 8 partitions and 8 to 4"
    return Experiment(
        "both-ways", title, {AIM: "0.5 of Flink's at most"}, cases, figures, "key-count", size.repeats, "excess"
    )


def assignments() -> Experiment:
    """No query runs; the tables are counted."""
    name = {"bins": 128, "before": 25, "after": 30}

    def do(bench: Bench, repeat: int) -> Record:
        table = RoutingTable(25, _ranges(128, 25))
        moved = {
            "contiguous": len(table.moves_to(RoutingTable(30, _ranges(128, 30)))),
            "minimal": len(table.moves_to(table.balanced(30))),
        }
        return Record("fewest-moves", name, repeat, moved)

    def figures(records: Sequence[Record]) -> list[Figure]:
        kinds = ("contiguous", "minimal")
        return [spread(f"bins moved: {kind}", [r.values[kind] for r in records]) for kind in kinds]

    title = "minimal assignment against contiguous ranges, 25 to 30 partitions, 128 bins"
    claims = {MECES: "15, and 115 with contiguous ranges"}
    return Experiment("fewest-moves", title, claims, [Case(name, do)], figures, "fetching", 1, "bins")


def _ranges(bins: int, partitions: int) -> tuple[int, ...]:
    """Each partition owns neighbouring bins, as Flink's operators own key groups."""
    return tuple(b * partitions // bins for b in range(bins))
