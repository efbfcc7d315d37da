"""A submitted plan on its way through a running query."""

from __future__ import annotations

import asyncio
import json
import logging
import threading
import time
from collections.abc import Callable, Generator
from concurrent.futures import Future
from typing import Any

from binshift.arguments import checked
from binshift.control.history import history_table
from binshift.display import html_table, in_bytes
from binshift.epoch_progress import EpochProgress, distinct
from binshift.errors import ConfigurationError, MigrationError, MigrationTimeout
from binshift.observation import ObservedQuery
from binshift.planning.plan import MigrationPlan, undoing
from binshift.progress import ProgressBar, has_viewer
from binshift.report import AuditReport, MigrationReport, report_of
from binshift.status import MigrationState, MigrationStatus, because

__all__ = ["Migration"]

_log = logging.getLogger("binshift")
_PROGRESS_SECONDS = 5.0
#: Audits of the last step mostly take less than one.
_AUDIT_SECONDS = 5.0
#: A message is logged if copies are expected to take longer.
_LONG_SECONDS = 60


@checked(ConfigurationError, but=("query",))
class Migration:
    """A submitted plan. Made by `Controller.submit`, `Controller.rescale` or `Controller.migration`.

    The plan is in the checkpoint, so the migration continues even if this object, or the driver, is gone.
    `status`, `wait`, `cancel`, `rollback`, and awaiting it, ask the driver; `id` and `plan` don't.
    """

    def __init__(self, query: ObservedQuery, id: str, plan: MigrationPlan) -> None:
        self._query = query
        self._id = id
        self._plan = plan
        self._lock = threading.Lock()
        self._end: Future[MigrationReport] | None = None

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
        """The present state of the migration. A property, as in PySpark, although it asks the driver each time.

        Raises
        ------
        MigrationError
            If it took no step, and ended so long ago that the driver no longer knows it.
        """
        return self._status(self._progress())

    def _progress(self) -> dict[str, Any]:
        """The driver's answer about the migration now.

        Its field `undoing` is the answer about the migration that undoes this one, if there is one.
        """
        data = self._told(self._id)
        other = data.get("rollback_id")
        return data if other is None else {**data, "undoing": self._told(other)}

    def _told(self, migration: str) -> dict[str, Any]:
        told: dict[str, Any] = json.loads(self._query._link.progress(migration))
        return told

    def _status(self, data: dict[str, Any]) -> MigrationStatus:
        state = MigrationState(data["state"])
        done, total, undoing = data["steps_done"], len(self._plan.steps), data.get("undoing")
        # Once steps are undone, the next one is one of those.
        now = data if undoing is None else undoing
        next_epoch = now.get("scheduled_epoch")
        return MigrationStatus(
            state,
            steps_done=done,
            steps_total=total,
            next_epoch=next_epoch,
            committed_epoch=data["committed_epoch"],
            message=_message(state, done, total, next_epoch, data),
            earliest_epoch=now.get("earliest_epoch"),
            misplaced=data.get("misplaced", 0),
            steps_undone=0 if undoing is None else undoing["steps_done"],
        )

    def wait(self, timeout: float | None = None, *, progress: bool = False) -> MigrationReport:
        """Blocks until the migration is over; if it is rolled back, until that is over.

        Parameters
        ----------
        timeout : float, optional
            Seconds to wait at most. By default it waits as long as the query runs.
        progress : bool
            Whether to show a bar that follows the migration: bins, bytes, rate and time left. It is shown in
            a notebook, or on stderr if that is a terminal.

        Raises
        ------
        MigrationTimeout
            If it isn't over in time. The migration continues.
        MigrationError
            If the query ends before the migration does, or for the reasons given at `status`.
        """
        deadline = None if timeout is None else time.monotonic() + timeout
        is_shown = progress and has_viewer()
        with ProgressBar(self._plan, is_shown=is_shown) as bar:
            seen = None
            while True:
                data = self._progress()
                status = self._status(data)
                if is_shown and status != seen:
                    bar.update(status, self._last_epoch())
                    seen = status
                if status.is_over:
                    report = self._report(status, data, self._audit(data.get("audit"), deadline))
                    bar.finish(report)
                    return report
                if status.state is MigrationState.STOPPED:
                    self._query._link.require_active()
                    raise MigrationError(
                        f"migration {self._id}: {status}", condition="QUERY_ENDED", migration_id=self._id
                    )
                if deadline is not None and time.monotonic() >= deadline:
                    raise MigrationTimeout(
                        f"migration {self._id} is not over after {timeout} s: {status}; it continues; wait "
                        "again, feed the query data, or cancel it",
                        migration_id=self._id,
                        timeout=timeout,
                    )
                time.sleep(self._query._link.poll_s)

    def __await__(self) -> Generator[Any, None, MigrationReport]:
        """Waits like `wait`, without blocking the event loop, and raises the same errors.

        Cancelling the task that waits doesn't cancel the migration.
        """
        return asyncio.wrap_future(self._ended()).__await__()

    def add_done_callback(self, callback: Callable[[Migration], object]) -> None:
        """Calls `callback(migration)` once the migration is over, or the query has ended before it.

        The callback runs on a thread of this library, or at once if that has happened already. By then,
        `wait(0)` returns the report, or raises. If the callback raises an error, it is logged.
        """
        self._ended().add_done_callback(lambda _: self._call(callback))

    def cancel(self) -> None:
        """Schedules no further step.

        A step that is scheduled already still takes effect, and the table that is in force then remains. If
        that was the last step, and no partition moves as a whole, the migration has finished. A finished
        migration can't be cancelled. If it is being rolled back, this ends the rollback: no further step is
        undone.

        Raises
        ------
        MigrationError
            If the query has ended. Start it again, attach, and cancel `Controller.migration()`.
        """
        try:
            self._query._link.cancel(self._id)
        except MigrationError as error:
            if error.condition != "NO_MIGRATION":
                raise
            _log.info("migration %s is over; there was nothing to cancel", self._id)
        else:
            _log.info("migration %s is cancelled", self._id)

    def rollback(self) -> None:
        """Undoes the migration: it takes no further step, and those that it has taken are undone.

        They are undone by a migration of its own, which takes the same steps back, the last one first, by the
        same strategy, and with copies made ahead if this one had them. `wait` returns when that is over.
        A migration that is over can be rolled back, too, as long as no other one has changed the routing table
        since. Nobody remembers how it was carried out, so copies are made ahead unless it was on demand, and
        no epochs stay idle between two steps. Asking again while it is rolled back changes nothing. Whole
        partitions that have moved to other executors stay there.

        Raises
        ------
        MigrationError
            If the table has changed since, or the routing log no longer has the table from before the first
            step, or this one is a rollback itself (`ROLLBACK_IMPOSSIBLE`); if another migration is under way;
            or if the query has ended.
        """
        self._query._link.rollback(self._id)
        with self._lock:
            # Whoever waits from now on waits for the end of the rollback.
            self._end = None
        _log.info("migration %s is rolled back", self._id)

    def _ended(self) -> Future[MigrationReport]:
        """The future with the result of `wait`. The first call starts a thread that completes it."""
        with self._lock:
            if self._end is None:
                self._end = Future()
                # From now on nobody can cancel the future: those who wait for it may go, but it stays.
                self._end.set_running_or_notify_cancel()
                name = f"binshift-migration-{self._id}"
                threading.Thread(target=self._follow, args=(self._end,), name=name, daemon=True).start()
            return self._end

    def _follow(self, end: Future[MigrationReport]) -> None:
        try:
            report = self.wait()
        except BaseException as error:
            end.set_exception(error)
        else:
            end.set_result(report)

    def _call(self, callback: Callable[[Migration], object]) -> None:
        try:
            callback(self)
        except Exception:
            _log.exception("migration %s: the callback %r has failed", self._id, callback)

    def _audit(self, found: dict[str, Any] | None, deadline: float | None) -> AuditReport | None:
        """The results of audits. Waits a moment for those of the last step, which continue after its epoch."""
        until = time.monotonic() + _AUDIT_SECONDS
        until = until if deadline is None else min(until, deadline)
        while found is not None and found["under_way"] and time.monotonic() < until:
            time.sleep(self._query._link.poll_s)
            found = self._progress().get("audit")
        if found is None:
            return None
        return AuditReport(
            found["drawn"], equal=found["equal"], under_way=found["under_way"], dropped=found["dropped"]
        )

    def _report(
        self, status: MigrationStatus, data: dict[str, Any], audit: AuditReport | None
    ) -> MigrationReport:
        rows, undone = (
            self._rows(self._id, status.steps_done),
            self._rows(data.get("rollback_id"), status.steps_undone),
        )
        epochs = self._epochs(max((r["epoch"] for r in rows + undone), default=None))
        rollback = None
        if status.steps_undone:
            rollback = report_of(
                data["rollback_id"],
                undoing(self._plan, status.steps_done),
                undone,
                epochs,
                steps=status.steps_undone,
                cancelled=data["undoing"]["state"] == MigrationState.CANCELLED,
            )
        return report_of(
            self._id,
            self._plan,
            rows,
            epochs,
            steps=status.steps_done,
            cancelled=status.state is MigrationState.CANCELLED,
            audit=audit,
            cancelled_because=data.get("ended_because"),
            undone=(data.get("undone") or "") if status.state is MigrationState.ROLLED_BACK else None,
            rollback=rollback,
        )

    def _rows(self, migration: str | None, steps: int) -> list[dict[str, Any]]:
        """The steps of a migration that the routing log still has."""
        if migration is None or not steps:
            # The driver would search the whole routing log in vain.
            return []
        entries = json.loads(self._query._link.history(migration))
        rows: list[dict[str, Any]] = history_table(entries).to_pylist()
        return rows

    def _epochs(self, last: int | None) -> list[EpochProgress]:
        """The epochs that Spark remembers. Waits a moment for `last`, which Spark reports after its commit."""
        link = self._query._link
        deadline = time.monotonic() + _PROGRESS_SECONDS
        while True:
            found = distinct(link.recent_progress())
            is_there = last is None or any(e.epoch >= last for e in found)
            if is_there or not link.is_active() or time.monotonic() >= deadline:
                return found
            time.sleep(self._query._link.poll_s)

    def _last_epoch(self) -> EpochProgress | None:
        progress = self._query._link.last_progress()
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
        return f"<Migration {self._id}: {self._plan.summary}>"


def _message(state: MigrationState, done: int, total: int, next_epoch: int | None, data: dict[str, Any]) -> str:
    undoing = data.get("undoing")
    now = data if undoing is None else undoing
    steps = f"{done} of {total} steps done"
    undone = f"{0 if undoing is None else undoing['steps_done']} of {done} steps undone"
    copies = ""
    if given_up := now.get("bins_given_up"):
        copies = f"; {given_up} bins could not be copied ahead, so their epochs read them from the checkpoint"
    earliest = now.get("earliest_epoch")
    soonest = "after the next epoch" if earliest is None else f"at epoch {earliest} at the earliest"
    then = soonest if next_epoch is None else f"at epoch {next_epoch}"
    after = f"the next step {now.get('waits') or f'takes effect {then}'}"
    if misplaced := data.get("misplaced"):
        after = f"{misplaced} partitions do not run on their new executors yet"
    if now.get("bins_awaited") and (expected := forecast_message(now.get("forecast"))):
        after += f"; {expected}"
    if now.get("state") == MigrationState.WAITING:
        after += ", and the query has no data for an epoch"
    goes_on = "the migration" if data.get("undone") is None and undoing is None else "its rollback"
    return {
        MigrationState.FINISHED: f"finished: {steps}{copies}",
        MigrationState.CANCELLED: f"cancelled{because(data.get('ended_because'))}: {steps}{copies}"
        f"{'' if undoing is None else f', {undone}'}",
        MigrationState.STOPPED: f"stopped: {steps}{copies}; the query has ended, and {goes_on} carries on when "
        "it is started again",
        MigrationState.PREPARING: f"preparing: {steps}{copies}; {after}",
        MigrationState.WAITING: f"waiting: {steps}{copies}; {after}",
        MigrationState.RUNNING: f"running: {steps}{copies}; {after}",
        MigrationState.ROLLING_BACK: f"rolling back{because(data.get('undone'))}: {undone}{copies}; {after}",
        MigrationState.ROLLED_BACK: f"rolled back{because(data.get('undone'))}: {undone}",
    }[state]


def forecast_message(forecast: dict[str, Any] | None) -> str:
    """A message about copying ahead, if that takes a while, or more room than there is."""
    if forecast is None:
        return ""
    parts = []
    if forecast["seconds"] >= _LONG_SECONDS:
        size, minutes = in_bytes(forecast["bytes"]), -(-forecast["seconds"] // 60)
        parts.append(f"copying {size} takes about {minutes} min, and less where tasks do not notice it")
    if forecast.get("too_much"):
        parts.append(forecast["too_much"])
    return "; ".join(parts)
