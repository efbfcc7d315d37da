"""Real-time mode: how much bins cost a record, and how long a step keeps records waiting."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from experiments.common import AIM, Size, alone
from openloop.experiment import Case, Experiment, Figure, compared, spread_if_any
from openloop.results import Record

__all__ = ["real_time"]

SCRIPT = Path(__file__).parents[1] / "realtime.py"
ID = "real-time"
STOCK, BINSHIFT = "stock", "binshift"
MEASURES = {
    "p50_ms": "median latency",
    "p99_between_ms": "99th percentile between boundaries",
    "p99_ms": "99th percentile",
    "boundary_ms": "longest gap",
}


def real_time(size: Size) -> Experiment:
    operators = ("distinct", "count")
    names = [
        {"operator": o, "keys": size.few_keys // 2, "provider": p} for o in operators for p in (STOCK, BINSHIFT)
    ]
    # The mode needs a slot for each task of a batch at once, and the suite's session has two.
    cases = [Case(name, partial(alone, SCRIPT, ID, name)) for name in names]

    def figures(records: Sequence[Record]) -> list[Figure]:
        found: list[Figure] = []
        for o in operators:
            ours, stock = {"operator": o, "provider": BINSHIFT}, {"operator": o, "provider": STOCK}
            for key, what in MEASURES.items():
                found += compared(f"{what} ÷ stock, steady: {o}", records, _value(key), ours, stock)
            for provider, how in ((BINSHIFT, "live"), (STOCK, "stopped, repartitioned, started")):
                runs = [r.values for r in records if (r.case["operator"], r.case["provider"]) == (o, provider)]
                ratios = [v["change_ms"] / v["boundary_ms"] for v in runs if "change_ms" in v]
                found += spread_if_any(f"longest gap of a change ÷ of a boundary: {o}, {how}", ratios)
        return found

    title = "4 to 8 partitions in real-time mode, against Spark's own provider"
    claims = {AIM: "latencies of 1.05 at most, gaps of 1.5 at most"}
    return Experiment(ID, title, claims, cases, figures, ID, size.repeats, "median latency")


def _value(key: str) -> Callable[[Mapping[str, Any]], float]:
    return lambda values: float(values[key])
