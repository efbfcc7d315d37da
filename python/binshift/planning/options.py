"""Options for carrying out a plan."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from binshift.errors import PlanError, impossible
from binshift.numbers import is_whole
from binshift.planning.limits import Deadline, Guard, OnTimeout

__all__ = ["MigrationOptions"]


@dataclass(frozen=True, slots=True)
class MigrationOptions:
    """Options that are submitted together with a plan.

    Parameters
    ----------
    start_epoch : int, optional
        No step takes effect before this epoch.
    prepare : bool
        Whether bins are copied before their step takes effect.
    place_on : tuple of str
        Ids of the executors for new partitions; by default all.
    vacate : str, optional
        Id of an executor that should run no partition when the plan is done.
    places : mapping
        The new executor of each partition that should move.
    application : str, optional
        The application of these executors. A plan may be left in a checkpoint, and the driver started again
        before it takes the plan.
    deadline : Deadline, optional
        When the last step has to be taken.
    on_timeout : {"finish", "keep", "rollback"}
        What happens when the deadline passes.
    guard : Guard, optional
        How long epochs may take meanwhile.

    Raises
    ------
    PlanError
        If `start_epoch` is not a whole number of at least 0, or `on_timeout` has no deadline.
    """

    start_epoch: int | None = None
    prepare: bool = True
    place_on: tuple[str, ...] = ()
    vacate: str | None = None
    places: Mapping[int, str] = field(default_factory=dict)
    application: str | None = None
    deadline: Deadline | None = None
    on_timeout: OnTimeout = "finish"
    guard: Guard | None = None

    def __post_init__(self) -> None:
        epoch = self.start_epoch
        if epoch is not None and not is_whole(epoch):
            raise impossible(PlanError, "start_epoch", epoch, "a whole number of at least 0")
        if self.on_timeout != "finish" and self.deadline is None:
            what = f"on timeout {self.on_timeout!r} without a deadline"
            wanted = "a deadline too, such as '10 min'"
            raise impossible(PlanError, "on_timeout", self.on_timeout, wanted, what=what)

    @property
    def moves_partitions(self) -> bool:
        """True if whole partitions move to other executors. Only the driver knows when they have arrived."""
        return self.vacate is not None or bool(self.places)

    @property
    def may_end_early(self) -> bool:
        """True if the driver may end the migration before its last step. Only the driver knows why."""
        return self.on_timeout != "finish" or self.guard is not None

    def as_dict(self) -> dict[str, Any]:
        """The options in the form that the driver reads. Those that came last are left out if not asked for."""
        asked = {
            "application": self.application,
            "deadline": None if self.deadline is None else self.deadline.as_dict(),
            "on_timeout": None if self.deadline is None else self.on_timeout,
            "guard": None
            if self.guard is None
            else {"longest_epoch_s": float(self.guard.longest_epoch_s), "epochs": self.guard.epochs},
        }
        return {
            "start_epoch": self.start_epoch,
            "prepare": self.prepare,
            "place_on": list(self.place_on),
            "vacate": self.vacate,
            "places": {str(p): executor for p, executor in sorted(self.places.items())},
            **{name: value for name, value in asked.items() if value is not None},
        }
