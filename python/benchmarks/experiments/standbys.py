"""An executor dies: what the next epoch takes with a standby and without, by the size of the state."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from experiments.common import AIM, Size
from openloop.bench import Bench
from openloop.experiment import Case, Experiment, Figure, spread_if_any
from openloop.resources import Others
from openloop.results import Record

__all__ = ["standbys"]

SCRIPT = Path(__file__).parents[1] / "lostexecutor.py"
ID = "lost-executor"


def standbys(size: Size) -> Experiment:
    rows = (size.keys // 50, size.keys // 5)
    cases = [
        Case(name, partial(_do, name)) for n in rows for name in ({"rows": n, "standbys": k} for k in (1, 0))
    ]

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


def _do(case: Mapping[str, Any], bench: Bench, repeat: int) -> Record:
    """In processes of its own, because the suite's session has no executor that may die."""
    others = Others()
    with tempfile.TemporaryDirectory(dir=bench.runner.scratch, ignore_cleanup_errors=True) as root:
        arguments = [f"--{name}={value}" for name, value in case.items()]
        command = [sys.executable, str(SCRIPT), f"{root}/run", *arguments]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(command)} failed:\n{done.stderr[-4000:]}")
    values = json.loads(done.stdout.splitlines()[-1])
    return Record(ID, case, repeat, values | {"others": others.share()})
