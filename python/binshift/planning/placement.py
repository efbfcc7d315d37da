"""Decides where partitions should run, and how many there should be. Pure functions."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from binshift.errors import ConfigurationError, PlanError, impossible

__all__ = ["Placement", "executor_ids"]


@dataclass(frozen=True, slots=True)
class Placement:
    """The live executors, and for each partition the executors that hold its state.

    Parameters
    ----------
    executors : tuple of str
        Ids of the live executors, without those that Spark decommissions.
    partitions : tuple of tuple of str
        For each partition the executors that hold its state; empty before it has run.
    decommissioned : tuple of str
        Ids of executors that get no tasks: Spark is about to remove them, or excludes them after failures.
    leaving : tuple of str
        Ids of live executors that were drained. Nothing is placed there unless somebody asks for it.
    application : str, optional
        The application of these executors; None if an older jar doesn't say.
    excluded : tuple of str
        Those of `decommissioned` that Spark excludes for a while. They are among the application's executors.
    configured : int, optional
        Executors that the application should have, including those that haven't joined yet; None if unknown.
    """

    executors: tuple[str, ...]
    partitions: tuple[tuple[str, ...], ...]
    decommissioned: tuple[str, ...] = ()
    leaving: tuple[str, ...] = ()
    application: str | None = None
    configured: int | None = None
    excluded: tuple[str, ...] = ()

    @classmethod
    def of(cls, data: Mapping[str, Any]) -> Placement:
        """Parses the driver's answer."""
        return cls(
            tuple(data["executors"]),
            tuple(tuple(p) for p in data["partitions"]),
            tuple(data.get("decommissioned", ())),
            tuple(data.get("leaving", ())),
            data.get("application"),
            data.get("configured"),
            tuple(data.get("excluded", ())),
        )

    @property
    def in_all(self) -> int:
        """Executors that Spark counts as the application's, which excludes those that it is decommissioning."""
        return len(self.executors) + len(self.excluded)

    @property
    def rejoined(self) -> Placement:
        """The same placement, but executors that were drained count like any other."""
        return replace(self, leaving=())

    @property
    def idle(self) -> tuple[str, ...]:
        """Live executors that run no partition, such as new ones; empty if no executor runs any."""
        used = {e for executors in self.partitions for e in executors} & set(self.executors)
        return tuple(e for e in self._open if e not in used) if used else ()

    def partitions_with_idle(self, most: int) -> int:
        """Partitions in all if each idle executor gets as many new ones as the others have on average."""
        now, idle = len(self.partitions), len(self.idle)
        used = len(self._open) - idle
        return min(most, now + idle * max(1, round(now / used))) if idle else min(most, now)

    def spread(self, loads: Sequence[float] = (), place_on: Sequence[str] = ()) -> dict[int, str]:
        """The partitions that move so that all executors run equally many, within one, with few moves.

        Parameters
        ----------
        loads : sequence of float
            Load of each partition, which the moves even out. Without it, each partition counts the same.
        place_on : sequence of str
            Executors to which partitions may go; by default all that are open.

        Returns
        -------
        dict
            The new executor of each partition that moves.
        """
        residents = _Residents(self, loads, place_on or self._open)
        residents.house(p for p, executors in enumerate(self.partitions) if executors and self._home(p) is None)
        residents.level()
        return residents.moved

    def drained(self, executor: str, place_on: Sequence[str] = ()) -> dict[int, str]:
        """The partitions on an executor that should be emptied, each with its new executor.

        Raises
        ------
        PlanError
            If the executor doesn't exist, one of `place_on` is not alive, or there is no other executor.
        """
        if executor not in self.decommissioned:
            self.require_live([executor])
        self.require_live(place_on)
        others = [e for e in place_on or self._open if e != executor]
        if not others:
            raise PlanError(
                f"no other executor than {executor} can take its partitions; add an executor first, or drain "
                "another one",
                condition="NO_OTHER_EXECUTOR",
                executor=executor,
            )
        residents = _Residents(replace(self, leaving=(*self.leaving, executor)), (), others)
        residents.house(p for p, executors in enumerate(self.partitions) if executor in executors)
        return residents.moved

    def require_live(self, executors: Sequence[str]) -> None:
        """Refuses an executor that is not alive, or gets no tasks."""
        for executor in executors:
            if executor not in self.executors:
                if executor in self.excluded:
                    why = "gets no tasks, because Spark excludes it after failures; those that do are"
                elif executor in self.decommissioned:
                    why = "gets no tasks, because Spark decommissions it; those that do are"
                else:
                    why = "is not alive; alive are"
                raise PlanError(
                    f"executor {executor!r} {why}: {', '.join(self.executors)}",
                    condition="EXECUTOR_NOT_ALIVE",
                    executor=executor,
                )

    @property
    def _open(self) -> tuple[str, ...]:
        """Executors that may get partitions."""
        return tuple(e for e in self.executors if e not in self.leaving)

    def _home(self, partition: int) -> str | None:
        """The first open executor of a partition. A partition may be on several executors for a while."""
        return next((e for e in self.partitions[partition] if e in self._open), None)


def executor_ids(place_on: Sequence[str]) -> tuple[str, ...]:
    """The executors that an argument `place_on` names.

    Raises
    ------
    ConfigurationError
        If it is a single string, whose letters would be taken for executors, or contains something else than
        strings.
    """
    if isinstance(place_on, str | bytes | Mapping) or not isinstance(place_on, Iterable):
        raise impossible(
            ConfigurationError, "place_on", place_on, f"a list of ids: place_on=[{str(place_on)!r}]"
        )
    ids = tuple(place_on)
    if any(not isinstance(e, str) for e in ids):
        wanted = f"ids as text: place_on={[str(e) for e in ids]!r}"
        raise impossible(ConfigurationError, "place_on", ids, wanted)
    return ids


class _Residents:
    """Tracks which partitions each executor gets, and the load that this adds up to."""

    def __init__(self, placement: Placement, loads: Sequence[float], receivers: Sequence[str]) -> None:
        self.moved: dict[int, str] = {}
        self._receivers = receivers
        n = len(placement.partitions)
        self._loads = loads if len(loads) == n else [1.0] * n
        self._on: dict[str, list[int]] = {e: [] for e in (*placement._open, *receivers)}
        for p in range(len(placement.partitions)):
            if (home := placement._home(p)) is not None:
                self._on[home].append(p)

    def house(self, partitions: Iterable[int]) -> None:
        """Gives each of `partitions`, heaviest first, to the receiver with the fewest."""
        leaving = set(partitions)
        for on in self._on.values():
            on[:] = [p for p in on if p not in leaving]
        for p in sorted(leaving, key=lambda p: (-self._loads[p], p)):
            self._give(p, min(self._receivers, key=self._rank))

    def level(self) -> None:
        """Moves partitions from the executor with most to the receiver with fewest, until they are even."""
        while True:
            most = max(self._on, key=self._rank)
            fewest = min(self._receivers, key=self._rank)
            if len(self._on[most]) - len(self._on[fewest]) <= 1:
                return
            wanted = (self._load(most) - self._load(fewest)) / 2
            p = min(self._on[most], key=lambda p: (abs(self._loads[p] - wanted), p))
            self._on[most].remove(p)
            self._give(p, fewest)

    def _give(self, partition: int, executor: str) -> None:
        self._on[executor].append(partition)
        self.moved[partition] = executor

    def _rank(self, executor: str) -> tuple[int, float]:
        return len(self._on[executor]), self._load(executor)

    def _load(self, executor: str) -> float:
        return sum(self._loads[p] for p in self._on[executor])
