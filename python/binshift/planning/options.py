"""Options for carrying out a plan."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from binshift.errors import PlanError, impossible
from binshift.numbers import is_whole

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

    Raises
    ------
    PlanError
        If `start_epoch` is not a whole number of at least 0.
    """

    start_epoch: int | None = None
    prepare: bool = True
    place_on: tuple[str, ...] = ()
    vacate: str | None = None
    places: Mapping[int, str] = field(default_factory=dict)
    application: str | None = None

    def __post_init__(self) -> None:
        epoch = self.start_epoch
        if epoch is not None and not is_whole(epoch):
            raise impossible(PlanError, "start_epoch", epoch, "a whole number of at least 0")

    @property
    def moves_partitions(self) -> bool:
        """True if whole partitions move to other executors. Only the driver knows when they have arrived."""
        return self.vacate is not None or bool(self.places)

    def as_dict(self) -> dict[str, Any]:
        """The options in the form that the driver reads. The application is included only if one is named."""
        application = {} if self.application is None else {"application": self.application}
        return {
            "start_epoch": self.start_epoch,
            "prepare": self.prepare,
            "place_on": list(self.place_on),
            "vacate": self.vacate,
            "places": {str(p): executor for p, executor in sorted(self.places.items())},
            **application,
        }
