"""A savepoint and a fork of a query that runs: how long they take, and whether the query notices."""

from __future__ import annotations

from collections.abc import Sequence
from operator import itemgetter

from experiments.common import AIM, IDLE, Size, counting, paced
from openloop.action import Action
from openloop.experiment import Experiment, Figure, compared, spread_if_any
from openloop.results import Record

__all__ = ["savepoints"]

SAVEPOINT, FORK, STARTED = Action("savepoint"), Action("fork"), Action("fork", starts=True)


def savepoints(size: Size) -> Experiment:
    """By turns with a query that is left alone. A fork that is started has its query on the same two cores."""
    actions = (IDLE, SAVEPOINT, FORK, STARTED)

    def figures(records: Sequence[Record]) -> list[Figure]:
        found: list[Figure] = []
        for action in actions:
            runs = [r.values for r in records if r.case == {"run": action.name}]
            found += spread_if_any(f"longest ÷ median epoch: {action.name}", [v["ratio"] for v in runs])
            if action is not IDLE:
                found += spread_if_any(
                    f"seconds until it is ready: {action.name}", [v["seconds"] for v in runs]
                )
                found += compared(
                    f"longest epoch ÷ idle: {action.name}",
                    records,
                    itemgetter("longest_ms"),
                    {"run": action.name},
                    {"run": IDLE.name},
                )
        return found

    return Experiment(
        "savepoints",
        f"savepoints and forks, {size.keys:,} keys, 4 partitions",
        {AIM: "1.2 medians at most; ready within 5 s"},
        paced("savepoints", counting(size), list(actions)),
        figures,
        "key-count",
        size.repeats,
        headline="longest ÷ median epoch",
    )
