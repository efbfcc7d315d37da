"""A submitted plan on its way through a running query."""

from __future__ import annotations

import json
import logging
import sys
import time
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from binshift.errors import MigrationError, MigrationTimeout
from binshift.jvm import call
from binshift.plan import MigrationPlan

if TYPE_CHECKING:
    from binshift.controller import Controller

__all__ = ["Migration", "MigrationReport", "MigrationState", "MigrationStatus"]

_log = logging.getLogger("binshift")
_POLL_SECONDS = 0.1
_PROGRESS_SECONDS = 5.0


class MigrationState(StrEnum):
    """Where a migration stands."""

    #: The next step takes effect at an epoch that has not begun, and the query has no data for one.
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


@dataclass(frozen=True, slots=True)
class MigrationStatus:
    """A migration at one moment.

    Parameters
    ----------
    state : MigrationState
        Where it stands.
    steps_done, steps_total : int
        Steps whose epochs have been committed, and steps of the plan.
    next_epoch : int or None
        Epoch at which a step is scheduled that has not been committed yet.
    committed_epoch : int
        Newest committed epoch of the query; -1 if there is none.
    message : str
        The same for people.
    """

    state: MigrationState
    steps_done: int
    steps_total: int
    next_epoch: int | None
    committed_epoch: int
    message: str

    @property
    def is_over(self) -> bool:
        """Whether nothing more will happen."""
        return self.state in (MigrationState.FINISHED, MigrationState.CANCELLED)

    def __str__(self) -> str:
        return self.message


@dataclass(frozen=True, slots=True)
class MigrationReport:
    """What a migration did.

    Parameters
    ----------
    id, strategy : str
        Of the migration.
    steps, bins_moved : int
        That took effect.
    first_epoch, last_epoch : int or None
        Epochs of the first and the last step; None if there was no step.
    bins_prepared, bins_shipped, bins_from_checkpoint : int
        How the bins came, counted per operator and store: copied before their step took effect; sent by
        their old owner's executor at the step; read from their old owner's checkpoint at the step.
    bins_recopied : int
        Of the first two, copied from the checkpoint, since the shipment was damaged or did not come.
    rows_adopted, bytes_adopted, adopt_ms : int
        Totals over all operators and partitions, from the query's progress, which Spark keeps for the
        last epochs only (`spark.sql.streaming.numRecentProgressUpdates`).
    longest_epoch_ms : int
        Longest duration of an epoch at which a step took effect.
    cancelled : bool
        Whether the migration was cancelled before its last step.
    """

    id: str
    strategy: str
    steps: int
    bins_moved: int
    first_epoch: int | None
    last_epoch: int | None
    bins_prepared: int
    bins_shipped: int
    bins_from_checkpoint: int
    bins_recopied: int
    rows_adopted: int
    bytes_adopted: int
    adopt_ms: int
    longest_epoch_ms: int
    cancelled: bool


class Migration:
    """A submitted plan. Made by `Controller.submit`, `Controller.rescale` or `Controller.migration`.

    The plan is in the checkpoint: it goes on when this object, or the driver, is gone.
    """

    def __init__(self, controller: Controller, id: str, plan: MigrationPlan) -> None:
        self._controller = controller
        self._id = id
        self._plan = plan

    @property
    def id(self) -> str:
        """Identifier, also found in the history."""
        return self._id

    @property
    def plan(self) -> MigrationPlan:
        """The plan that was submitted."""
        return self._plan

    @property
    def status(self) -> MigrationStatus:
        """Where the migration stands now."""
        data: dict[str, Any] = json.loads(call(self._controller._handle.progress, self._id))
        state = _state(data)
        done, total = data["steps_committed"], len(self._plan.steps)
        next_epoch = data.get("scheduled_epoch")
        return MigrationStatus(
            state,
            done,
            total,
            next_epoch,
            data["committed_epoch"],
            _message(state, done, total, next_epoch, data.get("bins_awaited")),
        )

    def wait(self, timeout: float | None = None, progress: bool = False) -> MigrationReport:
        """Blocks until the migration is over.

        Parameters
        ----------
        timeout : float, optional
            Seconds to wait at most; without it, as long as the query runs.
        progress : bool
            Whether to show a line on stderr that follows the migration, if stderr is a terminal.

        Raises
        ------
        MigrationTimeout
            If it is not over in time. The migration goes on.
        MigrationError
            If the query ends before the migration does.
        """
        deadline = None if timeout is None else time.monotonic() + timeout
        show = progress and sys.stderr.isatty()
        while True:
            status = self.status
            if show:
                sys.stderr.write(f"\r\033[K{status}" + ("\n" if status.is_over else ""))
            if status.is_over:
                return self._report(status)
            if status.state is MigrationState.STOPPED:
                call(self._controller._handle.requireActive)
                raise MigrationError(f"migration {self._id}: {status}")
            if deadline is not None and time.monotonic() >= deadline:
                raise MigrationTimeout(
                    f"migration {self._id} is not over after {timeout} s: {status}; it goes on; wait again, "
                    "feed the query data, or cancel it"
                )
            time.sleep(_POLL_SECONDS)

    def cancel(self) -> None:
        """Schedules no further step.

        A step that is scheduled already still takes effect; whatever table is then in force stays.

        Raises
        ------
        MigrationError
            If the query has ended. Start it again, attach, and cancel `Controller.migration`.
        """
        call(self._controller._handle.cancel, self._id)
        _log.info("migration %s is cancelled", self._id)

    def _report(self, status: MigrationStatus) -> MigrationReport:
        rows = [r for r in self._controller.history().to_pylist() if r["migration_id"] == self._id]
        epochs = {r["epoch"] for r in rows}
        taken = self._progress(epochs)
        metrics = [op.customMetrics for p in taken for op in p.stateOperators]

        def total(name: str) -> int:
            return sum(int(m.get(name, 0)) for m in metrics)

        return MigrationReport(
            id=self._id,
            strategy=self._plan.strategy,
            steps=len(rows),
            bins_moved=sum(r["bins_moved"] for r in rows),
            first_epoch=min(epochs, default=None),
            last_epoch=max(epochs, default=None),
            bins_prepared=total("binshiftBinsPrepared"),
            bins_shipped=total("binshiftBinsShipped"),
            bins_from_checkpoint=total("binshiftBinsFromCheckpoint"),
            bins_recopied=total("binshiftBinsRecopied"),
            rows_adopted=total("binshiftRowsAdopted"),
            bytes_adopted=total("binshiftBytesAdopted"),
            adopt_ms=total("binshiftAdoptMs"),
            longest_epoch_ms=max((p.durationMs.get("triggerExecution", 0) for p in taken), default=0),
            cancelled=status.state is MigrationState.CANCELLED,
        )

    def _progress(self, epochs: set[int]) -> list[Any]:
        """The progress of `epochs`, for the last of which Spark publishes it a moment after the commit."""
        query = self._controller.query
        deadline = time.monotonic() + _PROGRESS_SECONDS
        while True:
            recent = query.recentProgress
            is_there = not epochs or any(p.batchId >= max(epochs) for p in recent)
            if is_there or not query.isActive or time.monotonic() >= deadline:
                return [p for p in recent if p.batchId in epochs]
            time.sleep(_POLL_SECONDS)

    def __repr__(self) -> str:
        return f"Migration({self._id}, {self.status})"


def _state(data: dict[str, Any]) -> MigrationState:
    if data["ended"]:
        return MigrationState.CANCELLED if data["cancelled"] else MigrationState.FINISHED
    if not data["active"]:
        return MigrationState.STOPPED
    if data["idle"]:
        return MigrationState.WAITING
    return MigrationState.PREPARING if data.get("bins_awaited") else MigrationState.RUNNING


def _message(state: MigrationState, done: int, total: int, next_epoch: int | None, awaited: int | None) -> str:
    steps = f"{done} of {total} steps done"
    then = "after the next epoch" if next_epoch is None else f"at epoch {next_epoch}"
    after = f"{awaited} copies of bins are awaited" if awaited else f"the next step takes effect {then}"
    return {
        MigrationState.FINISHED: f"finished: {steps}",
        MigrationState.CANCELLED: f"cancelled: {steps}",
        MigrationState.STOPPED: f"stopped: {steps}; the query has ended, and the migration carries on when "
        "it is started again",
        MigrationState.PREPARING: f"preparing: {steps}; {after}",
        MigrationState.WAITING: f"waiting: {steps}; {after}, and the query has no data for an epoch",
        MigrationState.RUNNING: f"running: {steps}; {after}",
    }[state]
