"""The action in a run, and the result of the run."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import binshift

__all__ = ["STRATEGIES", "Action", "Phases", "Result"]

STRATEGIES: dict[str, Callable[[int], binshift.Strategy]] = {
    "all-at-once": lambda _: binshift.AllAtOnce(),
    "fluid": lambda _: binshift.Fluid(),
    "batched": binshift.Batched,
    "optimized": binshift.Optimized,
    "on-demand": lambda _: binshift.OnDemand(),
}


@dataclass(frozen=True, slots=True)
class Action:
    """An action in the middle of a run.

    Parameters
    ----------
    kind : {'idle', 'rescale', 'stock', 'savepoint', 'fork'}
        Nothing, a live rescale, Spark's own stop, offline repartition and restart, a savepoint, or a fork.
    strategy : str
        A key of `STRATEGIES`.
    size : int
        Bins of a step, for strategies that take it.
    starts : bool
        Whether a query runs on the fork from then on.
    """

    kind: str = "idle"
    strategy: str = ""
    prepared: bool = True
    size: int = 128
    before: int = 4
    after: int = 8
    starts: bool = False

    @property
    def name(self) -> str:
        """The action's name in the report."""
        if self.kind != "rescale":
            return f"{self.kind}{', started' * self.starts}"
        return f"{self.strategy}, {'prepared' if self.prepared else 'unprepared'}"


@dataclass(frozen=True, slots=True)
class Result:
    """The result of a run. Latencies are those of events, from when they were due to the commit of their epoch.

    `steady_*` are medians of the epochs before the action, `longest_*` the largest values from the action on.
    `steps_ms` is the longest epoch at which bins changed their owner, `first_ms` the first one to which bins or
    rows of them came, 0 if there is none; `seconds` is the time of the whole action.
    `most_ms` is the longest time from the beginning of an epoch until four in five of its rows had left their
    operator, where the query observes it.

    Resources are measured for `window_seconds` from the action on; the two growths are the peak divided by the
    value before. `copy_seconds` is how long it takes to copy RocksDB's files of the state with which the run
    began, within the page cache. `others` is the part of the machine's processor time that other processes
    took, over the whole run.
    """

    workload: str
    action: str
    steady_ms: float
    longest_ms: float
    steps_ms: float
    first_ms: float
    most_ms: float
    steady_latency: float
    p99_latency: float
    longest_latency: float
    acted: float
    epochs: int
    seconds: float
    bins: tuple[int, int, int]
    window_seconds: float
    cpu_seconds: float
    written_bytes: int
    native_growth: float
    heap_growth: float
    copy_seconds: float
    others: float
    digest: str

    @property
    def ratio(self) -> float:
        """Longest epoch ÷ median epoch."""
        return self.longest_ms / self.steady_ms

    @property
    def latency_ratio(self) -> float:
        """Largest latency ÷ steady latency."""
        return self.longest_latency / self.steady_latency

    @property
    def excess(self) -> float:
        """Largest latency beyond the steady one, seconds."""
        return self.longest_latency - self.steady_latency


@dataclass(frozen=True, slots=True)
class Phases:
    """The numbers of intervals that are left out, that make the steady values, and that are watched.

    A run is watched for `window` intervals from the action on, whatever the action is. That is as long as a
    prepared migration takes, so that occasional work, such as compactions, is seen in each run. At least `tail`
    of these intervals follow the action's end.
    """

    cold: int = 4
    steady: int = 8
    tail: int = 10
    window: int = 20
