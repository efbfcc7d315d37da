"""The states of a migration, and its state at one moment."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from enum import StrEnum

from binshift.display import brief

__all__ = ["MigrationState", "MigrationStatus", "because"]


class MigrationState(StrEnum):
    """The states that a migration can be in."""

    #: The next step takes effect at an epoch that hasn't begun, because the query has no new data.
    WAITING = "waiting"
    #: Bins are being copied to their new owners; the next step takes effect when the copies are there.
    PREPARING = "preparing"
    #: Epochs are running, and steps with them.
    RUNNING = "running"
    #: The last step has been committed.
    FINISHED = "finished"
    #: It was cancelled and no step is in flight.
    CANCELLED = "cancelled"
    #: The query has ended. The migration carries on when the query is started again.
    STOPPED = "stopped"
    #: It takes no further step, and those that it has taken are undone.
    ROLLING_BACK = "rolling-back"
    #: All steps that it has taken are undone.
    ROLLED_BACK = "rolled-back"


@dataclass(frozen=True, slots=True, repr=False)
class MigrationStatus:
    """A migration at one moment.

    Parameters
    ----------
    state : MigrationState
        Where it stands.
    steps_done, steps_total : int
        Steps whose epochs have been committed, also if they were undone since, and steps of the plan.
    next_epoch : int or None
        Epoch at which a step is scheduled that has not been committed yet.
    committed_epoch : int
        Newest committed epoch of the query; -1 if there is none.
    message : str
        The same for people, as text.
    earliest_epoch : int or None
        The earliest epoch at which the next step can take effect, because partitions are opened and bins copied
        first. None if that isn't known, for example outside of the driver.
    misplaced : int
        Partitions that don't run yet on the executors to which they were moved.
    steps_undone : int
        Steps that were undone by now, if the migration is or was rolled back.
    """

    state: MigrationState
    _: KW_ONLY
    steps_done: int
    steps_total: int
    next_epoch: int | None
    committed_epoch: int
    message: str
    earliest_epoch: int | None = None
    misplaced: int = 0
    steps_undone: int = 0

    @property
    def is_over(self) -> bool:
        """True if nothing more will happen, unless somebody rolls it back."""
        return self.state in (MigrationState.FINISHED, MigrationState.CANCELLED, MigrationState.ROLLED_BACK)

    def __str__(self) -> str:
        return self.message

    def __repr__(self) -> str:
        return brief(self, self.message)


def because(why: str | None) -> str:
    """The reason that a driver gives, to follow a state in a message; empty if it gives none."""
    return f" because {why}" if why else ""
