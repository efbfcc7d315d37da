"""A submitted plan on its way through a running query."""

from __future__ import annotations

import json
import logging
import time
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from binshift.display import html_table
from binshift.epoch_log import EpochProgress, epochs
from binshift.errors import MigrationError, MigrationTimeout
from binshift.jvm import call, last_progress
from binshift.plan import MigrationPlan
from binshift.progress import ProgressBar, has_viewer
from binshift.report import MigrationReport, report_of

if TYPE_CHECKING:
    from binshift.controller import Controller

__all__ = ["Migration", "MigrationState", "MigrationStatus"]

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
            Whether to show a bar that follows the migration (bins, bytes, rate and time left), in a
            notebook, or on stderr if that is a terminal.

        Raises
        ------
        MigrationTimeout
            If it is not over in time. The migration goes on.
        MigrationError
            If the query ends before the migration does.
        """
        deadline = None if timeout is None else time.monotonic() + timeout
        is_shown = progress and has_viewer()
        with ProgressBar(self._plan, is_shown) as bar:
            seen = None
            while True:
                status = self.status
                if is_shown and status != seen:
                    bar.update(status, self._last_epoch())
                    seen = status
                if status.is_over:
                    report = self._report(status)
                    bar.finish(report)
                    return report
                if status.state is MigrationState.STOPPED:
                    call(self._controller._handle.requireActive)
                    raise MigrationError(f"migration {self._id}: {status}")
                if deadline is not None and time.monotonic() >= deadline:
                    raise MigrationTimeout(
                        f"migration {self._id} is not over after {timeout} s: {status}; it goes on; wait "
                        "again, feed the query data, or cancel it"
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
        last = max((r["epoch"] for r in rows), default=None)
        cancelled = status.state is MigrationState.CANCELLED
        return report_of(self._id, self._plan.strategy, rows, self._epochs(last), cancelled)

    def _epochs(self, last: int | None) -> list[EpochProgress]:
        """What Spark remembers; of the epoch `last`, it publishes the progress a moment after the commit."""
        query = self._controller.query
        deadline = time.monotonic() + _PROGRESS_SECONDS
        while True:
            found = epochs(query)
            is_there = last is None or any(e.epoch >= last for e in found)
            if is_there or not query.isActive or time.monotonic() >= deadline:
                return found
            time.sleep(_POLL_SECONDS)

    def _last_epoch(self) -> EpochProgress | None:
        progress = last_progress(self._controller.query)
        return None if progress is None else EpochProgress.of(progress)

    def _repr_html_(self) -> str:
        plan, status = self._plan, self.status
        row = (
            f"{plan.source.partitions} → {plan.target.partitions}",
            plan.strategy,
            f"{status.steps_done} of {status.steps_total}",
            str(len(plan.moves)),
            str(status.state),
        )
        head = ("partitions", "strategy", "steps done", "bins to move", "state")
        return html_table(f"Migration {self._id}", head, [row], str(status))

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
