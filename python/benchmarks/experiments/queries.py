"""NEXMark while a query migrates: M2 to M8."""

from __future__ import annotations

from collections.abc import Sequence

from experiments.common import (
    BATCHED,
    IDLE,
    UNPREPARED,
    Size,
    excess,
    paced,
)
from openloop.experiment import Experiment, Figure, compared, spread
from openloop.results import Record
from streams import nexmark

__all__ = ["noise_floor", "queries"]


def noise_floor(size: Size) -> list[Experiment]:
    def figures(records: Sequence[Record]) -> list[Figure]:
        return [spread("largest ÷ steady latency", [r.values["latency_ratio"] for r in records])]

    return [
        Experiment(
            "M2", f"NEXMark {q.upper()}, no state: the noise floor", "no spike: 1",
            paced("M2", nexmark(q, size.rate, size.intervals, 4_000, size.interval), [IDLE], query=q),
            figures, "noise floor", size.repeats,
        )
        for q in ("q1", "q2")
    ]  # fmt: skip


CLAIMS = {
    "q3": ("M3", "Q3, incremental join", "all-at-once ÷ batched 10"),
    "q4": ("M4", "Q4, average of closed auctions", "all-at-once ÷ batched 20 or more"),
    "q5": ("M5", "Q5, sliding windows", "all-at-once 10 × the periodic peaks, batched none"),
    "q6": ("M6", "Q6, last 10 prices of a seller", "all-at-once ÷ batched 20 or more"),
    "q7": ("M7", "Q7, windowed maximum, tiny state", "no difference: 1"),
    "q8": ("M8", "Q8, window join", "all-at-once ÷ batched above 1"),
}


def queries(size: Size) -> list[Experiment]:
    def figures(records: Sequence[Record]) -> list[Figure]:
        unprepared, batched = {"run": UNPREPARED.name}, {"run": BATCHED.name}
        found = compared(
            "excess, all-at-once unprepared ÷ batched prepared", records, excess, unprepared, batched
        )
        for name in (UNPREPARED.name, BATCHED.name, IDLE.name):
            ratios = [r.values["latency_ratio"] for r in records if r.case["run"] == name]
            if ratios:
                found.append(spread(f"largest ÷ steady latency: {name}", ratios))
        return found

    found = []
    for q, (id, title, claim) in CLAIMS.items():
        # Python's share of Q6 makes it slower than the others.
        rate = size.rate // 2 if q == "q6" else size.rate
        load = nexmark(q, rate, size.intervals, size.fill, size.interval)
        cases = paced(id, load, [UNPREPARED, BATCHED, IDLE])
        found.append(Experiment(id, f"NEXMark {title}", claim, cases, figures, "NEXMark", size.repeats))
    return found
