"""Measures the cost of the provider when nothing migrates."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import stores
from experiments.common import AIM, MEGAPHONE, Size
from keycount import keycount
from openloop.bench import Bench
from openloop.experiment import Case, Experiment, Figure, compared, spread_if_any
from openloop.results import Record
from openloop.workload import Workload
from streams import LOOKS_AT, nexmark

__all__ = ["overhead"]


def overhead(size: Size) -> list[Experiment]:
    kinds = [{"provider": "stock"}, *({"provider": "binshift", "bins": 2**n} for n in (4, 7, 10, 14))]
    few = min(size.intervals, 24)
    loads = {"key-count": keycount(size.few_keys, 10 * size.rows, few, size.interval)}
    for q in ("q3", "q4", "q5", "q8"):
        # Without bids, an epoch with as many events would take little more than an empty one.
        events = 50 if q in LOOKS_AT else 10
        loads[q] = nexmark(q, events * size.rate, few, size.fill, size.interval)
    cases = [
        Case({"load": name, **kind}, partial(_do_throughput, {"load": name, **kind}, load, kind))
        for name, load in loads.items()
        for kind in (kinds if name == "key-count" else [kinds[0], kinds[3]])
    ]
    operations = [Case({"operation": op}, partial(_do_store, op)) for op in stores.OPERATIONS]

    def throughputs(records: Sequence[Record]) -> list[Figure]:
        found: list[Figure] = []
        for name in (c.name for c in cases if c.name["provider"] == "binshift"):
            what, stock = f"{name['load']}, {name['bins']} bins", {"load": name["load"], "provider": "stock"}
            for figure, value, over, under in (
                ("throughput", lambda v: v["rows_per_second"], name, stock),
                ("time of the slowest epochs", lambda v: v["slow_rows_per_second"], stock, name),
                ("time of a lookup within RocksDB", lambda v: v.get("get_us", 0), name, stock),
            ):
                found += compared(f"{figure} ÷ stock: {what}", records, value, dict(over), dict(under))
        return found

    def costs(records: Sequence[Record]) -> list[Figure]:
        found: list[Figure] = []
        for op in stores.OPERATIONS:
            ratios = [r.values["ratio"] for r in records if r.case["operation"] == op]
            found += spread_if_any(f"rows per second ÷ stock: {op}", ratios)
        return found

    claims = {MEGAPHONE: "p99 1.6 to 2.5 × native at 2^12 bins", AIM: "1.0, never below 0.97"}
    return [
        Experiment(
            "throughput",
            "steady throughput by number of bins",
            claims,
            cases,
            throughputs,
            "overhead",
            size.repeats,
            "throughput",
        ),
        Experiment(
            "operations", "operations of the store", claims, operations, costs, "overhead", size.repeats, "rows"
        ),
    ]


def _do_throughput(
    name: Mapping[str, Any], load: Workload, kind: Mapping[str, Any], bench: Bench, repeat: int
) -> Record:
    return bench.throughput("throughput", name, repeat, load, **kind)


def _do_store(op: str, bench: Bench, repeat: int) -> Record:
    return bench.store("operations", {"operation": op}, repeat, op, 200_000, 50_000)
