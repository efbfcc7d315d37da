"""NEXMark while a query migrates."""

from __future__ import annotations

from collections.abc import Sequence

from experiments.common import BATCHED, IDLE, MEGAPHONE, UNPREPARED, Size, excess, paced
from openloop.experiment import Experiment, Figure, compared, spread_if_any
from openloop.results import Record
from openloop.workload import Workload
from streams import LOOKS_AT, nexmark

__all__ = ["noise_floor", "queries"]


def noise_floor(size: Size) -> Experiment:
    stateless = ("q1", "q2")
    cases = [
        case for q in stateless
        for case in paced(
            "noise", nexmark(q, size.rate, size.intervals, 4_000, size.interval), [IDLE], query=q)
    ]  # fmt: skip

    def figures(records: Sequence[Record]) -> list[Figure]:
        found: list[Figure] = []
        for q in stateless:
            ratios = [r.values["latency_ratio"] for r in records if r.case["query"] == q]
            found += spread_if_any(f"largest ÷ steady latency, nothing moves: {q.upper()}", ratios)
        return found

    title = "NEXMark Q1 and Q2, which have no state"
    claims = {MEGAPHONE: "no spike: 1"}
    return Experiment("noise", title, claims, cases, figures, "noise floor", size.repeats, "largest")


#: Queries whose state keeps few of the events get this many times as many events.
HISTORY = 15

CLAIMS = {
    "q3": ("nexmark-q3", "Q3, incremental join", "all-at-once ÷ batched 10"),
    "q4": ("nexmark-q4", "Q4, average of closed auctions", "all-at-once ÷ batched 20 or more"),
    "q5": ("nexmark-q5", "Q5, sliding windows", "all-at-once 10 × the periodic peaks, batched none"),
    "q6": ("nexmark-q6", "Q6, last 10 prices of a seller", "all-at-once ÷ batched 20 or more"),
    "q7": ("nexmark-q7", "Q7, windowed maximum, tiny state", "no difference: 1"),
    "q8": ("nexmark-q8", "Q8, window join", "all-at-once ÷ batched above 1"),
}


def queries(size: Size) -> list[Experiment]:
    def figures(records: Sequence[Record]) -> list[Figure]:
        unprepared, batched = {"run": UNPREPARED.name}, {"run": BATCHED.name}
        found = compared(
            "excess, all-at-once unprepared ÷ batched prepared", records, excess, unprepared, batched
        )
        for name in (UNPREPARED.name, BATCHED.name, IDLE.name):
            ratios = [r.values["latency_ratio"] for r in records if r.case["run"] == name]
            found += spread_if_any(f"largest ÷ steady latency: {name}", ratios)
        return found

    found = []
    for q, (id, title, claim) in CLAIMS.items():
        cases = paced(id, _load(q, size), [UNPREPARED, BATCHED, IDLE])
        found.append(
            Experiment(id, f"NEXMark {title}", {MEGAPHONE: claim}, cases, figures, "nexmark", size.repeats)
        )
    return found


def _load(query: str, size: Size) -> Workload:
    """A query with enough state for its moves to be noticeable, as far as windows allow."""
    if query in LOOKS_AT:
        return nexmark(query, size.rate, size.intervals, HISTORY * size.fill, size.interval)
    # Q6 is slower than the others, because part of it is Python.
    rate = size.rate // 2 if query == "q6" else size.rate
    # Auctions are open for as long as those that fill the state take to begin: queries 4 and 6 keep them,
    # query 5 counts the bids for each of them.
    return nexmark(query, rate, size.intervals, size.fill, size.interval, seconds_open=size.fill // rate)
