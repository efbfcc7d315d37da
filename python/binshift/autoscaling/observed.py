"""The input of a decision: the latest epochs of a query, and the cluster that it runs on."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass

from binshift.display import brief

__all__ = ["Cluster", "Observation"]


@dataclass(frozen=True, slots=True)
class Observation:
    """One epoch that was observed.

    Parameters
    ----------
    started_s : float
        When it was triggered, in seconds of any clock.
    busy_s : float
        Seconds from its trigger to its commit.
    rows : int
        Input rows.
    partitions : int
        State partitions.
    """

    started_s: float
    _: KW_ONLY
    busy_s: float
    rows: int
    partitions: int


@dataclass(frozen=True, slots=True, repr=False)
class Cluster:
    """The cluster that the query runs on.

    Parameters
    ----------
    slots : int or None
        How many tasks can run at the same time; None if that isn't known. More partitions would wait for each
        other, so no decision wants more.
    idle : tuple of str
        Executors that run no partition.
    to_move : int
        Whole partitions that would move if the idle executors got as many as the others.
    executors : int
        Executors that run partitions, or may.
    drained : int
        Other executors, which somebody else has drained. They get no partition until that is undone.
    excluded : int
        Executors that get no tasks from Spark for a while, because too many failed. They count against a limit.
    shared : int
        Executors, drained or not, that run partitions of other queries, and so are not given back.
    empty : tuple of str
        Executors, drained or not, that run no partition of any query, and so may be given back at once.
    emptied : int
        How many of the empty executors somebody else has drained.
    is_refused : bool
        Whether executors that were asked for didn't join in time. Then no more are asked for.
    """

    slots: int | None = None
    _: KW_ONLY
    idle: tuple[str, ...] = ()
    to_move: int = 0
    executors: int = 0
    drained: int = 0
    excluded: int = 0
    shared: int = 0
    empty: tuple[str, ...] = ()
    emptied: int = 0
    is_refused: bool = False

    @property
    def own(self) -> int:
        """Executors that run nothing of other queries."""
        return self.executors + self.drained - self.shared

    @property
    def slots_per_executor(self) -> int:
        """How many tasks an executor runs at the same time, at least 1."""
        return max(1, (self.slots or 0) // max(1, self.executors))

    def __repr__(self) -> str:
        return brief(self)
