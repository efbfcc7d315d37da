"""Where partitions run, and how many there should be when executors join. Pure functions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from binshift.errors import PlanError

__all__ = ["Placement"]


@dataclass(frozen=True, slots=True)
class Placement:
    """The live executors, and for each partition those that its operators are on.

    Parameters
    ----------
    executors : tuple of str
        Ids of the live executors.
    partitions : tuple of tuple of str
        For each partition the executors that hold its state; none while it has not run.
    """

    executors: tuple[str, ...]
    partitions: tuple[tuple[str, ...], ...]

    @classmethod
    def of(cls, data: Mapping[str, Any]) -> Placement:
        """From what the driver says of it."""
        return cls(tuple(data["executors"]), tuple(tuple(p) for p in data["partitions"]))

    @property
    def idle(self) -> tuple[str, ...]:
        """Live executors that run no partition, as those do that have just joined; none if all are so."""
        used = {e for executors in self.partitions for e in executors} & set(self.executors)
        return tuple(e for e in self.executors if e not in used) if used else ()

    def partitions_with_idle(self, most: int) -> int:
        """Partitions when each idle executor gets as many new ones as the others have on average."""
        now, idle = len(self.partitions), len(self.idle)
        used = len(self.executors) - idle
        return min(most, now + idle * max(1, round(now / used))) if idle else min(most, now)

    def partitions_on(self, executor: str) -> list[int]:
        """The partitions with state on an executor."""
        return [p for p, executors in enumerate(self.partitions) if executor in executors]

    def leaving(self, executor: str) -> list[int]:
        """The partitions with state on an executor that is to be emptied.

        Raises
        ------
        PlanError
            If the executor is not alive, or no partition is on another one.
        """
        self.require_live([executor])
        found = self.partitions_on(executor)
        if len(found) == len(self.partitions):
            raise PlanError(
                f"all {len(found)} partitions are on executor {executor}; rescale to more partitions first, "
                "placed on another executor",
                condition="NO_OTHER_EXECUTOR",
                executor=executor,
            )
        return found

    def require_live(self, executors: Sequence[str]) -> None:
        """Refuses an executor that is not alive."""
        for executor in executors:
            if executor not in self.executors:
                alive = ", ".join(self.executors)
                raise PlanError(
                    f"executor {executor!r} is not alive; alive are: {alive}",
                    condition="EXECUTOR_NOT_ALIVE",
                    executor=executor,
                )
