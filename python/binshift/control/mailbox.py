"""Sends requests to a query that runs in another process, through its checkpoint.

A request is a file in `<checkpoint>/binshift/requests`. The driver, which looks there every few seconds, takes
it, writes an answer of the same name to `<checkpoint>/binshift/answers`, and deletes the request. A stopped
query finds the request when it is started, so you can leave a plan for it.

As long as a request's file exists, the request can be taken back, and no second plan can be left beside it.
"""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any
from uuid import uuid4

from pyarrow import fs

from binshift import errors
from binshift.control.damage import NOT_UNDERSTOOD, reason_of
from binshift.control.directory import ControlDir
from binshift.control.signing import secret_of, signed
from binshift.planning.options import MigrationOptions
from binshift.planning.plan import MigrationPlan

__all__ = ["Mailbox", "Waiting"]

_FORMAT = 1
_REQUESTS = "binshift/requests"
_ANSWERS = "binshift/answers"
_POLL_SECONDS = 0.2


@dataclass(frozen=True, slots=True)
class Waiting:
    """A request that the query has not served yet.

    Parameters
    ----------
    id : str
        Id of the request. Once the query has accepted a plan, it is also the migration's id.
    kind : str
        `submit`, `cancel`, `rollback`, or a question; empty if the file doesn't say it.
    left_at : datetime or None
        When the request was left, if the file system knows.
    plan : MigrationPlan or None
        The plan to submit, if it is understood.
    """

    id: str
    kind: str
    left_at: datetime | None
    plan: MigrationPlan | None

    @property
    def is_plan(self) -> bool:
        """True if the request would start a migration, which a rollback does as well, or isn't understood."""
        return self.kind in ("submit", "rollback", "")

    def __str__(self) -> str:
        what = self.kind or "of an unknown kind"
        if self.plan is not None:
            what = f"a plan {self.plan.source.partitions} -> {self.plan.target.partitions} partitions"
        when = "" if self.left_at is None else f", left {self.left_at.astimezone():%Y-%m-%d %H:%M:%S}"
        return f"{self.id} ({what}{when})"


class Mailbox:
    """The requests and answers of one checkpoint."""

    def __init__(self, checkpoint: ControlDir) -> None:
        self._checkpoint = checkpoint
        self._files = checkpoint.files

    def submit(self, plan: MigrationPlan, options: MigrationOptions) -> str:
        """Leaves a plan for the query; returns the request's id. The answer has the migration's id."""
        return self._send("submit", plan=json.loads(plan.to_json()), options=options.as_dict())

    def cancel(self, migration: str) -> str:
        """Asks the query to cancel a migration; returns the request's id."""
        return self._send("cancel", migration_id=migration)

    def rollback(self, migration: str) -> str:
        """Asks the query to roll a migration back; returns the request's id."""
        return self._send("rollback", migration_id=migration)

    def ask(self, kind: str, timeout: float, **fields: Any) -> dict[str, Any]:
        """Asks the running query for its status, placement or stats, and waits for the answer.

        Parameters
        ----------
        kind : str
        timeout : float
            Seconds to wait.
        fields
            What the question is about: `migration_id` for `status`, by default the one under way.

        Raises
        ------
        MigrationTimeout
            If the query does not answer in time.

        The request is taken back when nobody waits for its answer any more, for whatever reason.
        """
        request = str(uuid4())
        try:
            self._send(kind, request, **fields)
            answer = self._awaited(request, timeout, "the request was taken back")
        except BaseException:
            # If the storage refuses this, too, the first error is the one to be told.
            with contextlib.suppress(errors.StorageError):
                self.take_back(request)
            raise
        return self._result(request, answer)

    def answer(self, request: str, timeout: float) -> dict[str, Any]:
        """The answer to a request, which is then deleted.

        Raises
        ------
        BinshiftError
            The error that the driver answered with.
        MigrationTimeout
            If there is no answer after `timeout` seconds. The request stays.
        """
        stays = (
            f"the request {self._checkpoint.uri}/{_REQUESTS}/{request}.json stays, and takes effect when the "
            "query continues; withdraw it with 'binshift cancel'"
        )
        return self._result(request, self._awaited(request, timeout, stays))

    def is_served(self, seconds: float, is_vain: Callable[[], bool]) -> bool:
        """True if a query serves a request, with any answer.

        Parameters
        ----------
        seconds : float
            How long to wait for an answer.
        is_vain : callable
            Returns True once it is in vain to wait.
        """
        request = self._send("status")
        deadline = time.monotonic() + seconds
        is_there = False
        try:
            while not (is_there := self._files.exists(f"{_ANSWERS}/{request}.json")):
                if time.monotonic() >= deadline or is_vain():
                    return False
                time.sleep(_POLL_SECONDS)
        finally:
            if not is_there:
                self.take_back(request)
        self._delete_answer(request)
        return True

    def _awaited(self, request: str, timeout: float, otherwise: str) -> bytes:
        """Waits for the text of the answer. If there is none, the error says what becomes of the request."""
        deadline = time.monotonic() + timeout
        name = f"{_ANSWERS}/{request}.json"
        while (text := self._files.find(name)) is None:
            if time.monotonic() >= deadline:
                raise errors.MigrationTimeout(
                    f"the query did not answer in {timeout:g} s; it answers only while it runs, and after it "
                    f"has had data since its start; {otherwise}",
                    condition="NO_ANSWER",
                    timeout=timeout,
                )
            time.sleep(_POLL_SECONDS)
        self._delete_answer(request)
        return text

    def _result(self, request: str, text: bytes) -> dict[str, Any]:
        """The result in an answer; raises the error if it has one."""
        name = f"{_ANSWERS}/{request}.json"
        try:
            data = json.loads(text)
            error = data.get("error")
            if error is not None:
                refused = errors.from_jvm(
                    str(error["kind"]),
                    str(error["message"]),
                    str(error["condition"]),
                    dict(error["parameters"]),
                )
            else:
                result = dict(data["result"])
        except NOT_UNDERSTOOD as damage:
            raise errors.ConfigurationError(
                f"{self._checkpoint.uri}/{name} is damaged ({reason_of(damage)}); ask again",
                condition="CHECKPOINT_DAMAGED",
                file=name,
            ) from damage
        if error is not None:
            raise refused
        return result

    def _delete_answer(self, request: str) -> None:
        """Deletes an answer and its checksum, which Hadoop's local file system writes and nobody deletes."""
        system, name = self._files.filesystem, f"{_ANSWERS}/{request}.json"
        with self._files.reaching("delete", name):
            system.delete_file(self._files.path(name))
        if isinstance(system, fs.LocalFileSystem):
            with contextlib.suppress(FileNotFoundError):
                system.delete_file(self._files.path(f"{_ANSWERS}/.{request}.json.crc"))

    def take_back(self, request: str) -> bool:
        """Deletes a request that the query hasn't taken yet; returns whether it was still there."""
        return self._files.delete(f"{_REQUESTS}/{request}.json")

    def waiting(self) -> list[Waiting]:
        """The requests that the query hasn't served yet, oldest first."""
        times = self._files.times(_REQUESTS)
        ids = [n.removesuffix(".json") for n in times if n.endswith(".json") and not n.startswith(".")]
        found = []
        for id_ in sorted(ids, key=lambda i: (times[f"{i}.json"] or datetime.min.replace(tzinfo=UTC), i)):
            # If a request is gone, it was served since they were listed.
            if (text := self._files.find(f"{_REQUESTS}/{id_}.json")) is not None:
                found.append(_waiting(id_, text, times[f"{id_}.json"]))
        return found

    def _send(self, kind: str, id_: str | None = None, **fields: Any) -> str:
        """Writes a request."""
        id_ = id_ or str(uuid4())
        request = {"format": _FORMAT, "id": id_, "kind": kind, **fields}
        if (secret := secret_of()) is not None:
            request = signed(request, secret, self._checkpoint.query_id() or "")
        self._files.write(f"{_REQUESTS}/{id_}.json", json.dumps(request).encode())
        return id_


def _waiting(id_: str, text: bytes, left_at: datetime | None) -> Waiting:
    """Parses a request's file. If it isn't understood, the query will refuse it, too."""
    try:
        request = json.loads(text)
        if "signed" in request:
            request = json.loads(request["signed"])
        kind = str(request["kind"])
        plan = MigrationPlan.from_json(json.dumps(request["plan"])) if kind == "submit" else None
    except (*NOT_UNDERSTOOD, errors.PlanError):
        return Waiting(id_, "", left_at, None)
    return Waiting(id_, kind, left_at, plan)
