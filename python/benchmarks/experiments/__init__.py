"""The experiments: what is run at which size, and the figures that result."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from experiments.audits import audits
from experiments.common import BATCHED, PREPARED, SIZES, STOCK, UNPREPARED, Size
from experiments.ondemand import assignments, both_ways, on_demand
from experiments.overhead import overhead
from experiments.queries import noise_floor, queries
from experiments.realtime import real_time
from experiments.savepoints import savepoints
from experiments.standbys import standbys
from experiments.strategies import shapes, strategies
from openloop.experiment import Experiment

__all__ = ["SIZES", "Size", "experiments"]


def experiments(size: Size) -> list[Experiment]:
    """All experiments, in the order of the report. For a brief size, one of each kind with few cases."""
    all_of_them = [
        noise_floor(size),
        *strategies(size),
        audits(size),
        *queries(size),
        *overhead(size),
        *shapes(size),
        both_ways(size),
        *on_demand(size),
        assignments(),
        standbys(size),
        savepoints(size),
        real_time(size),
    ]
    return [e for e in map(_brief, all_of_them) if e.cases or e.runs_of] if size.is_brief else all_of_them


def _brief(experiment: Experiment) -> Experiment:
    """The facts about an experiment that a look at all of them needs."""
    by_experiment: dict[str, list[dict[str, Any]]] = {
        "rescale": [{"run": a.name} for a in (UNPREPARED, PREPARED, BATCHED, STOCK)],
        "noise": [{"query": "q1"}],
        "nexmark-q4": [{"run": a.name} for a in (UNPREPARED, BATCHED)],
        "throughput": [{"load": "key-count", "provider": "stock"}, {"load": "key-count", "bins": 1024}],
        "operations": [{"operation": "update"}],
        "more-keys": [{"run": BATCHED.name}],
        "on-demand": [{}],
        "savepoints": [{"run": "savepoint"}, {"run": "fork, started"}],
        "fewest-moves": [{}],
    }
    kept = by_experiment.get(experiment.id, [])
    cases = [c for c in experiment.cases if any(k.items() <= c.name.items() for k in kept)]
    return replace(experiment, cases=cases)
