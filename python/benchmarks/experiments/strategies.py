"""Key-count while it migrates: M1, by bins, keys and rate (M11 to M14)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from operator import itemgetter

from experiments.common import (
    BATCHED,
    IDLE,
    ON_DEMAND,
    PREPARED,
    STOCK,
    UNPREPARED,
    Size,
    counting,
    excess,
    paced,
)
from openloop.action import Action
from openloop.experiment import Experiment, Figure, compared, spread
from openloop.results import Record

__all__ = ["shapes", "strategies"]


def strategies(size: Size) -> Experiment:
    """M1, and M15 and B1 which come of the same runs."""
    load = counting(size)
    optimized = Action("rescale", "optimized", size=16)
    actions = [
        UNPREPARED, PREPARED, replace(BATCHED, prepared=False), BATCHED, optimized, ON_DEMAND, IDLE, STOCK,
    ]  # fmt: skip
    cases = paced("M1", load, actions)
    cases += paced("M1", load, [Action("rescale", "fluid")], bins=64)

    def figures(records: Sequence[Record]) -> list[Figure]:
        found: list[Figure] = []
        for case in cases:
            same = [r for r in records if r.case == case.name]
            if same:
                name = case.name["run"] + (f", {case.name['bins']} bins" if "bins" in case.name else "")
                found += [
                    spread(f"longest ÷ median epoch: {name}", [r.values["ratio"] for r in same]),
                    spread(f"largest ÷ steady latency: {name}", [r.values["latency_ratio"] for r in same]),
                    spread(f"peak memory ÷ before: {name}", [r.values["memory_growth"] for r in same]),
                ]
        # An idle run has long epochs too, as the machine has.
        for action in (PREPARED, BATCHED, optimized):
            what = f"longest ÷ median epoch: {action.name} ÷ idle"
            found += compared(what, records, itemgetter("ratio"), {"run": action.name}, {"run": IDLE.name})
        for action in (PREPARED, BATCHED, ON_DEMAND):
            what = f"excess latency, Spark's offline repartition ÷ {action.name}"
            found += compared(what, records, excess, {"run": STOCK.name}, {"run": action.name})
        return found

    title = f"key-count, {size.keys:,} keys, 4 to 8 partitions"
    return Experiment("M1", title, "fluid, batched: orders of magnitude below all-at-once", cases, figures,
                      "key-count", size.repeats)  # fmt: skip


def shapes(size: Size) -> list[Experiment]:
    """How the longest epoch changes with bins, keys, both, and the rate."""
    fine = Action("rescale", "optimized", prepared=False, size=1)
    smaller = counting(size, keys=size.more_keys[0])
    bins_cases = [c for bins in (16, 64, 256) for c in paced("M11", smaller, [UNPREPARED, fine], bins=bins)]
    by_keys_actions = [UNPREPARED, PREPARED, BATCHED, IDLE, STOCK]
    keys_cases = [
        c for keys in size.more_keys
        for c in paced("M12", counting(size, keys=keys), by_keys_actions, keys=keys)
    ]  # fmt: skip
    per_bin = size.more_keys[0] // 16
    fixed_cases = [
        c for bins in (16, 64, 256)
        for c in paced("M13", counting(size, keys=per_bin * bins // 4), [fine], bins=bins)
    ]  # fmt: skip
    rates = [size.rows // 4, size.rows, 2 * size.rows, 3 * size.rows]
    rate_cases = [
        c for rows in rates
        for c in paced("M14", counting(replace(size, rows=rows)), [UNPREPARED, BATCHED], rows=rows)
    ]  # fmt: skip

    def slope(
        key: str, low: float, high: float, names: Sequence[str], records: Sequence[Record]
    ) -> list[Figure]:
        found: list[Figure] = []
        for what, value in (("longest epoch", "longest_ms"), ("longest ÷ median epoch", "ratio")):
            for name in names:
                over, under = {"run": name, key: high}, {"run": name, key: low}
                ratio = f"{what} at {high:,} ÷ at {low:,} {key}: {name}"
                found += compared(ratio, records, itemgetter(value), over, under)
        return found

    small, large = min(size.more_keys), max(size.more_keys)
    keys_names = [a.name for a in by_keys_actions]
    by_bins = partial(slope, "bins", 16, 256, [UNPREPARED.name, fine.name])
    by_keys = partial(slope, "keys", small, large, keys_names)
    at_fixed = partial(slope, "bins", 16, 256, [fine.name])
    rows = [
        ("M11", "number of bins", "the largest latency of batched falls with bins", bins_cases, by_bins),
        (
            "M12",
            "number of keys",
            "linear; our aim, prepared: at most 1.3 at 16 × the keys",
            keys_cases,
            by_keys,
        ),
        ("M13", "a fixed number of keys per bin", "constant", fixed_cases, at_fixed),
        ("M14", "offered load", "a 10 to 100 × lower latency", rate_cases, partial(_by_rate, size, rates)),
    ]
    return [Experiment(*row, "shape", size.repeats) for row in rows]


def _by_rate(size: Size, rates: Sequence[int], records: Sequence[Record]) -> list[Figure]:
    found: list[Figure] = []
    names = (UNPREPARED.name, BATCHED.name)
    for rows in rates:
        over, under = ({"run": name, "rows": rows} for name in names)
        what = f"largest latency at {rows / size.interval:,.0f} events a second, {names[0]} ÷ {names[1]}"
        found += compared(what, records, itemgetter("longest_latency"), over, under)
    for target in (size.interval / 2, size.interval, 5 * size.interval):
        for name in names:
            mine = [r for r in records if r.case["run"] == name]
            kept = [
                max((r.case["rows"] / size.interval for r in mine
                     if r.repeat == n and r.values["longest_latency"] <= target), default=0)
                for n in sorted({r.repeat for r in mine})
            ]  # fmt: skip
            what = f"highest of these rates at which no event takes longer than {target:g} s: {name}"
            found += [spread(what, kept, " a second")] if kept else []
    return found
