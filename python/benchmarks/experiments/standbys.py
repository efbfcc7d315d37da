"""An executor dies: how long the next epoch takes with and without a standby, by the size of the state."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from experiments.common import AIM, Size, alone
from openloop.experiment import Case, Experiment, Figure, spread_if_any
from openloop.results import Record

__all__ = ["standbys"]

SCRIPT = Path(__file__).parents[1] / "lostexecutor.py"
ID = "lost-executor"


def standbys(size: Size) -> Experiment:
    rows = (size.keys // 50, size.keys // 5)
    names = [{"rows": n, "standbys": k} for n in rows for k in (1, 0)]
    # The suite's session has no executor that may die.
    cases = [Case(name, partial(alone, SCRIPT, ID, name)) for name in names]

    def figures(records: Sequence[Record]) -> list[Figure]:
        found: list[Figure] = []
        for n in rows:
            for count in (1, 0):
                runs = [r.values for r in records if r.case == {"rows": n, "standbys": count}]
                what = f"{n:,} rows, {count} standbys"
                found += spread_if_any(f"first epoch after ÷ median epoch: {what}", [_first(v) for v in runs])
                if count:
                    shares = [v["standby_seconds"] / v["query_seconds"] for v in runs]
                    found += spread_if_any(f"processor time of standbys ÷ of the query: {what}", shares)
        return found

    title = "an executor is killed; the next epoch, with a standby of its partitions and without"
    claims = {AIM: "2 median epochs at most, the same at both sizes; 0.1 of the query's processor time"}
    return Experiment(ID, title, claims, cases, figures, "standbys", size.repeats, "first epoch")


def _first(values: Mapping[str, Any]) -> float:
    return float(values["first_ms"] / values["median_ms"])
