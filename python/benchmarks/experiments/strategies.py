"""Key-count while it migrates, by strategy, bins, keys and rate."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from operator import itemgetter
from typing import Any

from experiments.common import (
    AIM,
    BATCHED,
    BINS,
    IDLE,
    MEGAPHONE,
    ON_DEMAND,
    PREPARED,
    STOCK,
    UNPREPARED,
    Size,
    counting,
    excess,
    grown,
    paced,
)
from keycount import keytext
from openloop.action import Action
from openloop.experiment import Experiment, Figure, compared, spread, spread_if_any
from openloop.results import Record

__all__ = ["shapes", "strategies"]

Value = Callable[[Mapping[str, Any]], float]
#: The figure that the overview shows for some of them.
HEADLINES = {"more-bins": "longest epoch", "more-keys": "longest", "more-load": "largest latency"}


def strategies(size: Size) -> list[Experiment]:
    """By strategy; resources and Spark's own restart look at the same runs."""
    load = counting(size)
    optimized, fluid = Action("rescale", "optimized", size=16), Action("rescale", "fluid")
    moving = [UNPREPARED, PREPARED, _unprepared(BATCHED), BATCHED, _unprepared(optimized), optimized, ON_DEMAND]
    cases = paced("rescale", load, [*moving, IDLE, STOCK])
    # With a bin per epoch, 1024 bins would take half an hour.
    cases += paced("rescale", load, [fluid, _unprepared(fluid)], bins=64)

    def latencies(records: Sequence[Record]) -> list[Figure]:
        found = _against("excess latency, ", records, excess, UNPREPARED, BATCHED)
        for case in cases:
            same = [r.values for r in records if r.case == case.name]
            name = case.name["run"] + (f", {case.name['bins']} bins" if "bins" in case.name else "")
            # No epoch shows that a stopped query takes no input.
            if case.name["run"] != STOCK.name:
                found += spread_if_any(f"longest ÷ median epoch: {name}", [v["ratio"] for v in same])
            found += spread_if_any(f"largest ÷ steady latency: {name}", [v["latency_ratio"] for v in same])
        # An idle run has long epochs, too, because of the machine.
        for action in (PREPARED, BATCHED, optimized):
            found += _against("longest ÷ median epoch: ", records, itemgetter("ratio"), action, IDLE)
        return found + _speeds(records)

    def resources(records: Sequence[Record]) -> list[Figure]:
        found: list[Figure] = []
        for what, key in (("outside the heap", "native_growth"), ("of the old generation", "heap_growth")):
            for action in (*moving, IDLE, STOCK):
                growths = [r.values[key] for r in records if r.case == {"run": action.name}]
                found += spread_if_any(f"peak memory {what} ÷ before: {action.name}", growths)
        for what, key in (("processor time", "cpu_seconds"), ("bytes written", "written_bytes")):
            for action in (PREPARED, BATCHED, optimized):
                found += _against(f"{what} a second: ", records, partial(_per_second, key), action, IDLE)
        return found

    def restarts(records: Sequence[Record]) -> list[Figure]:
        found: list[Figure] = []
        for action in (PREPARED, BATCHED, ON_DEMAND, IDLE):
            found += _against("excess latency, ", records, excess, STOCK, action)
        return found

    title = f"key-count, {size.keys:,} keys, 4 to 8 partitions"
    group = "key-count"
    claims = {MEGAPHONE: "fluid, batched: orders of magnitude below all-at-once", AIM: "batched: 1.2 medians"}
    memory = {MEGAPHONE: "memory: all-at-once 1.9, others 1", AIM: "memory: 1.1 at most"}
    return [
        Experiment("rescale", title, claims, cases, latencies, group, size.repeats),
        Experiment("resources", "resources of the same runs", memory, [], resources, group,
                   headline="peak memory outside the heap", runs_of="rescale"),
        Experiment("restart", "Spark's own stop, offline repartition and restart", {AIM: "100 at least"}, [],
                   restarts, group, headline="excess", runs_of="rescale"),
        _long_rows(size),
    ]  # fmt: skip


def _long_rows(size: Size) -> Experiment:
    """A step without copies in which bytes take most of the time: rows of 100 bytes."""

    def figures(records: Sequence[Record]) -> list[Figure]:
        found: list[Figure] = []
        for action in (UNPREPARED, IDLE):
            same = [r.values for r in records if r.case["run"] == action.name]
            found += spread_if_any(f"longest ÷ median epoch: {action.name}", [v["ratio"] for v in same])
        return found + _speeds(records)

    load = keytext(size.keys, size.rows, size.intervals, size.interval)
    return Experiment(
        "long-rows",
        f"the same with rows of 100 bytes, {size.keys:,} keys, 4 to 8 partitions",
        {AIM: "bytes moved a second ÷ cp: 0.3 at least"},
        paced("long-rows", load, [UNPREPARED, IDLE]),
        figures,
        "key-count",
        size.repeats,
        headline="bytes moved",
    )


def _against(what: str, records: Sequence[Record], value: Value, over: Action, under: Action) -> list[Figure]:
    name = f"{what}{over.name} ÷ {under.name}"
    return compared(name, records, value, {"run": over.name}, {"run": under.name})


def _unprepared(action: Action) -> Action:
    return replace(action, prepared=False)


def _speeds(records: Sequence[Record]) -> list[Figure]:
    speeds = [_speed(r.values) for r in records if r.case["run"] == UNPREPARED.name]
    return spread_if_any(f"bytes moved a second ÷ cp of the same files: {UNPREPARED.name}", speeds)


def _speed(values: Mapping[str, Any]) -> float:
    """For a move without copies, in one epoch: bytes a second, divided by those of copying the same files."""
    share = sum(values["bins"]) / BINS
    return share * float(values["copy_seconds"]) / ((values["longest_ms"] - values["steady_ms"]) / 1000)


def _per_second(key: str, values: Mapping[str, Any]) -> float:
    return float(values[key] / values["window_seconds"])


def shapes(size: Size) -> list[Experiment]:
    """How the longest epoch changes with bins, keys, both, and the rate."""
    fine = Action("rescale", "optimized", prepared=False, size=1)
    smaller = counting(size, keys=size.more_keys[0])
    bins_cases = [
        c for bins in (16, 64, 256) for c in paced("more-bins", smaller, [UNPREPARED, fine], bins=bins)
    ]
    by_keys_actions = [UNPREPARED, PREPARED, BATCHED, IDLE, STOCK]
    keys_cases = [
        c for keys in size.more_keys
        for c in paced("more-keys", counting(size, keys=keys), by_keys_actions, keys=keys)
    ]  # fmt: skip
    per_bin = size.more_keys[0] // 16
    fixed_cases = [
        c for bins in (16, 64, 256)
        for c in paced("keys-per-bin", counting(size, keys=per_bin * bins // 4), [fine], bins=bins)
    ]  # fmt: skip
    rates = [size.rows // 4, size.rows, 2 * size.rows, 3 * size.rows]
    rate_cases = [
        c for rows in rates
        for c in paced("more-load", counting(replace(size, rows=rows)), [UNPREPARED, BATCHED], rows=rows)
    ]  # fmt: skip

    def slope(
        key: str, low: float, high: float, names: Sequence[str], records: Sequence[Record]
    ) -> list[Figure]:
        found: list[Figure] = []
        for what, value in (
            ("longest epoch", "longest_ms"),
            ("longest ÷ median epoch", "ratio"),
            ("largest latency", "longest_latency"),
        ):
            # If a query is stopped, no epoch shows that.
            for name in (n for n in names if (n == STOCK.name) == (what == "largest latency")):
                found += grown(records, what, value, name, key, low, high)
        return found

    small, large = min(size.more_keys), max(size.more_keys)
    keys_names = [a.name for a in by_keys_actions]
    by_bins = partial(slope, "bins", 16, 256, [UNPREPARED.name, fine.name])
    by_keys = partial(slope, "keys", small, large, keys_names)
    at_fixed = partial(slope, "bins", 16, 256, [fine.name])
    rows = [
        (
            "more-bins",
            "number of bins",
            {MEGAPHONE: "the largest latency of fluid and batched falls with bins"},
            bins_cases,
            by_bins,
        ),
        (
            "more-keys",
            "number of keys",
            {MEGAPHONE: "linear", AIM: "prepared: 1.3 at most, at 16 × the keys"},
            keys_cases,
            by_keys,
        ),
        ("keys-per-bin", "a fixed number of keys per bin", {MEGAPHONE: "constant"}, fixed_cases, at_fixed),
        (
            "more-load",
            "offered load",
            {MEGAPHONE: "a 10 to 100 × lower latency"},
            rate_cases,
            partial(_by_rate, size, rates),
        ),
    ]
    return [Experiment(*row, "shape", size.repeats, HEADLINES.get(row[0], "")) for row in rows]


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
