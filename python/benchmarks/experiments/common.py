"""The sizes of experiments, and code that several of them share."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from operator import itemgetter
from pathlib import Path
from typing import Any

from keycount import keycount
from openloop.action import Action, Phases
from openloop.bench import Bench
from openloop.experiment import Case, Figure, compared
from openloop.resources import Others
from openloop.results import Record
from openloop.workload import Workload

__all__ = [
    "AIM",
    "BATCHED",
    "BINS",
    "IDLE",
    "MECES",
    "MEGAPHONE",
    "ON_DEMAND",
    "PREPARED",
    "SIZES",
    "STOCK",
    "UNPREPARED",
    "Size",
    "alone",
    "counting",
    "excess",
    "grown",
    "paced",
]

UNPREPARED = Action("rescale", "all-at-once", prepared=False)
PREPARED = Action("rescale", "all-at-once")
BATCHED = Action("rescale", "batched", size=128)
ON_DEMAND = Action("rescale", "on-demand", prepared=False)
IDLE, STOCK = Action("idle"), Action("stock")
#: The number of bins, unless an experiment is about it.
BINS = 1024
#: The sources of the expected figures; column heads of the report.
MEGAPHONE, MECES, AIM = "the Megaphone paper claims", "the Meces paper claims", "our aim"


@dataclass(frozen=True, slots=True)
class Size:
    """How large experiments are.

    Rates are chosen so that two cores are busy for half of the time, except in `more-load`.

    `keys` are those of key-count in `rescale` and `more-load`, `more_keys` in `more-keys` and `few_keys`
    elsewhere; `rows` are its events per interval. `rate` are the events per second of NEXMark and `fill` those
    before the measured time.
    `patience` is how many seconds a run may wait for a quiet machine, or be repeated for want of one.
    """

    keys: int
    few_keys: int
    more_keys: tuple[int, ...]
    rows: int
    interval: float
    rate: int
    fill: int
    phases: Phases
    repeats: int
    intervals: int
    patience: float = 1800
    is_brief: bool = False


SIZES = {
    "quick": Size(
        300_000, 100_000, (100_000, 300_000), 5_000, 1.0, 1_000, 40_000, Phases(3, 5, 5, 10), 1, 60, 0, True
    ),
    "medium": Size(
        2_000_000, 1_000_000, (500_000, 2_000_000), 20_000, 1.0, 2_000, 200_000, Phases(4, 8, 6, 21), 3, 200
    ),
    "full": Size(
        10_000_000, 2_000_000, (1_000_000, 16_000_000), 20_000, 2.0, 2_000, 400_000, Phases(4, 8, 5, 40), 5, 300
    ),
}


def counting(size: Size, **more: Any) -> Workload:
    return keycount(more.pop("keys", size.keys), size.rows, size.intervals, size.interval, **more)


def paced(experiment: str, load: Workload, actions: Sequence[Action], **more: Any) -> list[Case]:
    """A case for each action, with its name."""
    cases = []
    for action in actions:
        name = {"run": action.name, **more}
        provider = "stock" if action.kind == "stock" else "binshift"
        options = {"provider": provider, "bins": more.get("bins", BINS)}
        cases.append(Case(name, partial(_do_paced, experiment, name, load, action, options)))
    return cases


def _do_paced(
    experiment: str,
    name: Mapping[str, Any],
    load: Workload,
    action: Action,
    options: Mapping[str, Any],
    bench: Bench,
    repeat: int,
) -> Record:
    return bench.paced(experiment, name, repeat, load, action, **options)


def excess(values: Mapping[str, Any]) -> float:
    """Seconds beyond the steady latency. Less than 10 ms can't be told from none."""
    return max(0.01, values["excess"])


def grown(
    records: Sequence[Record], what: str, value: str, run: str, key: str, low: float, high: float
) -> list[Figure]:
    """The figure for a run's value where what its case calls `key` is high ÷ where that is low."""
    over, under = {"run": run, key: high}, {"run": run, key: low}
    return compared(f"{what} at {high:,} ÷ at {low:,} {key}: {run}", records, itemgetter(value), over, under)


def alone(script: Path, experiment: str, case: Mapping[str, Any], bench: Bench, repeat: int) -> Record:
    """A run of a script that has a JVM of its own, and prints its values on its last line."""
    others = Others()
    with tempfile.TemporaryDirectory(dir=bench.runner.scratch, ignore_cleanup_errors=True) as root:
        arguments = [f"--{name}={value}" for name, value in case.items()]
        command = [sys.executable, str(script), f"{root}/run", *arguments]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(command)} failed:\n{done.stderr[-4000:]}")
    values = json.loads(done.stdout.splitlines()[-1])
    return Record(experiment, case, repeat, values | {"others": others.share()})
