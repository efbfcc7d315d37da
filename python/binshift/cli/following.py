"""Sends a plan to a query through its checkpoint, and follows the migration until it is over."""

from __future__ import annotations

import sys
import time
from typing import Any

import click

from binshift.cli.output import print_json, summary_of
from binshift.control.directory import ControlDir, PlannedMigration
from binshift.control.mailbox import Mailbox, Waiting
from binshift.errors import MigrationError, MigrationTimeout
from binshift.planning.limits import rollback_of, undone_by
from binshift.planning.options import MigrationOptions
from binshift.planning.plan import MigrationPlan
from binshift.progress import ProgressBar
from binshift.status import MigrationState, MigrationStatus, because

__all__ = ["Follower", "followed_back", "require_none_waiting", "send"]

_POLL_SECONDS = 0.5
#: How long the query, which may have been stopped, has to say how a migration ended. This is in addition to the
#: time that the user wants to wait.
_ANSWER_SECONDS = 30.0


class Follower:
    """A plan on its way into a query that runs elsewhere."""

    def __init__(self, checkpoint: ControlDir, plan: MigrationPlan, options: MigrationOptions) -> None:
        self.checkpoint, self.plan, self.options = checkpoint, plan, options
        #: Why the driver ends it before its last step, once the migration's file has said so.
        self._why: str | None = None

    def status(self, migration: str) -> MigrationStatus:
        """The state of the migration, from its file and the routing log.

        Neither says how a migration of whole partitions has ended, or one with a deadline or a guard that took
        only some of its steps, so the query is asked.

        Raises
        ------
        MigrationError
            If the query doesn't know, because it was started again since, or has an older jar.
        MigrationTimeout
            If the query doesn't answer in half a minute.
        """
        # The order matters: a migration that ends between two reads is seen by the first.
        under_way = self.checkpoint.migration()
        committed = self.checkpoint.committed_epoch()
        mine = under_way if under_way is not None and under_way.id == migration else None
        is_undone = under_way is not None and undone_by(under_way.id) == migration
        done, next_epoch = self.checkpoint.steps_of(migration, is_over=mine is None)
        undone = 0 if mine is not None else self.checkpoint.steps_of(rollback_of(migration), is_over=True)[0]
        total = len(self.plan.steps)
        goes_on = mine is not None and (_fetches(self.plan) or self.options.moves_partitions)
        is_unclear = (
            self.options.moves_partitions or undone > 0 or (self.options.may_end_early and done < total)
        )
        if mine is not None and mine.stopped_because:
            self._why = mine.stopped_because
        if is_undone or (mine is not None and mine.rolls_back):
            state = MigrationState.ROLLING_BACK
        elif undone == done > 0:
            state = MigrationState.ROLLED_BACK
        elif mine is None and is_unclear:
            done, state = self._end(migration)
        elif done == total and not goes_on:
            state = MigrationState.FINISHED
        elif mine is not None:
            state = MigrationState.RUNNING
        else:
            state = MigrationState.CANCELLED
        steps = f"{done} of {total} steps done" + (f", {undone} of them undone" if undone else "")
        return MigrationStatus(
            state,
            steps_done=done,
            steps_total=total,
            next_epoch=next_epoch,
            committed_epoch=committed,
            message=f"{str(state).replace('-', ' ')}{because(self._why)}: {steps}",
            steps_undone=undone,
        )

    def _end(self, migration: str) -> tuple[int, MigrationState]:
        """Steps done, and how it ended, according to the query. It also says why."""
        answer = Mailbox(self.checkpoint).ask("status", _ANSWER_SECONDS, migration_id=migration)
        told = answer["progress"]
        if "migration_id" not in answer:
            reason = (
                "the query's jar is older than this client and does not tell how it ended; see "
                "'binshift status' for its partitions, and install one version"
            )
        elif told is None:
            reason = (
                "the query was started again since, so it does not know whether the migration was cancelled; "
                "give the same command again, which moves the bins that have not moved yet"
            )
        else:
            self._why = told.get("undone") or told.get("ended_because") or self._why
            return int(told["steps_done"]), MigrationState(told["state"])
        raise MigrationError(
            f"migration {migration} is over, but {reason}", condition="QUERY_ENDED", migration_id=migration
        )

    def wait(self, request: str, seconds: float) -> tuple[str, MigrationStatus]:
        """The migration's id and its last status, once it is over.

        Raises
        ------
        BinshiftError
            The error by which the driver refused the plan.
        MigrationError
            See `status`.
        MigrationTimeout
            If there is no answer, or the migration isn't over in time. It continues.
        """
        deadline = time.monotonic() + seconds
        try:
            migration: str = Mailbox(self.checkpoint).answer(request, seconds)["migration_id"]
        except KeyboardInterrupt:
            click.echo(
                f"request {request} still waits for the query; withdraw it with 'binshift cancel'", err=True
            )
            raise
        with ProgressBar(self.plan, is_shown=sys.stderr.isatty()) as bar:
            while True:
                status = self.status(migration)
                bar.update(status, None)
                if status.is_over:
                    return migration, status
                if time.monotonic() >= deadline:
                    raise MigrationTimeout(
                        f"migration {migration} is not over after {seconds:g} s: {status}; it continues; see "
                        "'binshift status'",
                        migration_id=migration,
                        timeout=seconds,
                    )
                time.sleep(_POLL_SECONDS)


def send(follower: Follower, *, as_json: bool, wait: float | None, replace: bool) -> None:
    """Leaves the plan for the query, and follows it if wanted.

    Parameters
    ----------
    follower : Follower
    as_json : bool
    wait : float, optional
        Seconds to follow it.
    replace : bool
        Whether to withdraw a plan that the query hasn't taken yet. Without it, such a plan is an error.

    Raises
    ------
    MigrationError
        If another migration is under way or waits, or this one was cancelled or rolled back while it was
        followed.
    """
    _require_none_under_way(follower.checkpoint)
    mailbox = Mailbox(follower.checkpoint)
    withdrawn = _withdrawn(mailbox, replace=replace)
    if withdrawn:
        # The query may just have taken one of them.
        _require_none_under_way(follower.checkpoint)
    request = mailbox.submit(follower.plan, follower.options)
    facts: dict[str, Any] = {"request": request, "replaced": withdrawn, **summary_of(follower.plan)}
    if wait is None:
        text = f"request {request} takes effect soon if the query runs, and otherwise when it is started"
    else:
        migration, status = follower.wait(request, wait)
        facts |= {"migration_id": migration, "state": str(status.state), "steps_done": status.steps_done}
        text = f"migration {migration} {status}"
        if status.state is MigrationState.ROLLED_BACK:
            raise MigrationError(
                f"{text}; the partitions are as before; see 'binshift history'",
                condition="MIGRATION_ROLLED_BACK",
                migration_id=migration,
            )
        if status.state is MigrationState.CANCELLED:
            raise MigrationError(
                f"{text}; it was cancelled, or no longer fits the routing table; see 'binshift history'",
                condition="MIGRATION_CANCELLED",
                migration_id=migration,
            )
    if as_json:
        print_json(facts)
    else:
        click.echo(text)


def followed_back(checkpoint: ControlDir, request: str, migration: str, seconds: float) -> None:
    """Waits until a migration is rolled back, as a request has asked for. At the end, the query is asked.

    Raises
    ------
    BinshiftError
        The error by which the driver refused the request.
    MigrationError
        If it isn't rolled back, because somebody has cancelled that, or the query doesn't know.
    MigrationTimeout
        If there is no answer, or the rollback isn't over in time. It continues.
    """
    deadline = time.monotonic() + seconds
    mailbox = Mailbox(checkpoint)
    mailbox.answer(request, seconds)
    while True:
        under_way = checkpoint.migration()
        state = None
        if under_way is None or under_way.id not in (migration, rollback_of(migration)):
            told = mailbox.ask("status", _ANSWER_SECONDS, migration_id=migration)["progress"]
            if told is None:
                raise MigrationError(
                    f"the query was started again since, so it does not know whether migration {migration} is "
                    "rolled back; see 'binshift history'",
                    condition="QUERY_ENDED",
                    migration_id=migration,
                )
            state = MigrationState(told["state"])
        if state is MigrationState.ROLLED_BACK:
            return
        if state in (MigrationState.CANCELLED, MigrationState.FINISHED):
            raise MigrationError(
                f"migration {migration} is {state}, and not rolled back as a whole, because its rollback was "
                "cancelled; see 'binshift history'",
                condition="MIGRATION_CANCELLED",
                migration_id=migration,
            )
        if time.monotonic() >= deadline:
            raise MigrationTimeout(
                f"migration {migration} is not rolled back after {seconds:g} s; the rollback continues; see "
                "'binshift status'",
                migration_id=migration,
                timeout=seconds,
            )
        time.sleep(_POLL_SECONDS)


def require_none_waiting(mailbox: Mailbox) -> None:
    """Raises if a plan, or a rollback, waits for the query, because that comes first."""
    if waiting := [w for w in mailbox.waiting() if w.is_plan]:
        raise _waits(waiting[0])


def _require_none_under_way(checkpoint: ControlDir) -> None:
    other = checkpoint.migration()
    goes_on = other is not None and (not other.cancelled or other.rolls_back)
    if other is not None and goes_on and not _is_done(checkpoint, other):
        raise MigrationError(
            f"migration {other.id} is under way; wait for it, or cancel it with 'binshift cancel', before you "
            "start another one",
            condition="MIGRATION_UNDER_WAY",
            migration_id=other.id,
        )


def _withdrawn(mailbox: Mailbox, *, replace: bool) -> list[str]:
    """Withdraws the plans that wait for the query, and returns their ids. A rollback that waits stays."""
    waiting = [w for w in mailbox.waiting() if w.is_plan]
    for w in waiting:
        if w.kind == "rollback" or not replace:
            raise _waits(w, "" if w.kind == "rollback" else "replace it with --replace, or ")
    return [w.id for w in waiting if mailbox.take_back(w.id)]


def _waits(request: Waiting, otherwise: str = "") -> MigrationError:
    return MigrationError(
        f"request {request} waits for the query; {otherwise}withdraw it with 'binshift cancel'",
        condition="REQUEST_WAITING",
        request=request.id,
    )


def _is_done(checkpoint: ControlDir, migration: PlannedMigration) -> bool:
    """True if the last step is committed. The driver forgets a migration only when it plans the next epoch."""
    done, _ = checkpoint.steps_of(migration.id)
    is_taken = done == len(migration.plan.steps)
    return is_taken and not _fetches(migration.plan) and not migration.moves_partitions


def _fetches(plan: MigrationPlan) -> bool:
    """True if bins still travel after the last step. Only the driver knows when they have arrived."""
    return plan.on_demand
