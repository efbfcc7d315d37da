"""Asking a query that runs in another process, through its checkpoint.

A request is a file in `<checkpoint>/binshift/requests`. The driver, which looks there every few seconds,
takes it, writes an answer of the same name to `<checkpoint>/binshift/answers`, and deletes the request. A query
that is stopped finds the request when it is started, so a plan can be left for it.
"""

from __future__ import annotations

import contextlib
import json
import time
from typing import Any
from uuid import uuid4

from pyarrow import fs

from binshift import errors
from binshift.control.damage import NOT_UNDERSTOOD, reason_of
from binshift.control.directory import ControlDir
from binshift.control.signing import secret_of, signed
from binshift.planning.options import MigrationOptions
from binshift.planning.plan import MigrationPlan

__all__ = ["Mailbox"]

_FORMAT = 1
_REQUESTS = "binshift/requests"
_ANSWERS = "binshift/answers"
_POLL_SECONDS = 0.2


class Mailbox:
    """The requests and answers of one checkpoint."""

    def __init__(self, checkpoint: ControlDir) -> None:
        self._checkpoint = checkpoint
        self._files = checkpoint.files

    def submit(self, plan: MigrationPlan, options: MigrationOptions) -> str:
        """Leaves a plan for the query; returns the request's id. The answer has the migration's id."""
        return self._send("submit", plan=json.loads(plan.to_json()), options=options.as_dict())

    def cancel(self, migration: str) -> str:
        """Asks that a migration takes no further step; returns the request's id."""
        return self._send("cancel", migration_id=migration)

    def ask(self, kind: str, timeout: float, **fields: Any) -> dict[str, Any]:
        """Asks the running query for its status, placement or stats, and waits for the answer.

        Parameters
        ----------
        kind : str
        timeout : float
            Seconds to wait.
        fields
            What the question is about: `migration_id` with `status`; by default the one under way.

        Raises
        ------
        MigrationTimeout
            If the query does not answer in time. The request is taken back.
        """
        request = self._send(kind, **fields)
        try:
            return self.answer(request, timeout)
        except errors.MigrationTimeout:
            self.take_back(request)
            raise

    def answer(self, request: str, timeout: float) -> dict[str, Any]:
        """The answer to a request, which is then deleted.

        Raises
        ------
        BinshiftError
            The error that the driver answered with.
        MigrationTimeout
            If there is no answer after `timeout` seconds. The request stays.
        """
        deadline = time.monotonic() + timeout
        name = f"{_ANSWERS}/{request}.json"
        while (text := self._files.find(name)) is None:
            if time.monotonic() >= deadline:
                raise errors.MigrationTimeout(
                    f"the query did not answer in {timeout:g} s: it has to run, and to have got data since it "
                    f"was started; the request is {self._checkpoint.uri}/{_REQUESTS}/{request}.json",
                    condition="NO_ANSWER",
                    timeout=timeout,
                )
            time.sleep(_POLL_SECONDS)
        self._delete_answer(request)
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
        """With its checksum, which Hadoop's local file system has beside it, and which nobody else deletes."""
        system = self._files.filesystem
        system.delete_file(self._files.path(f"{_ANSWERS}/{request}.json"))
        if isinstance(system, fs.LocalFileSystem):
            with contextlib.suppress(FileNotFoundError):
                system.delete_file(self._files.path(f"{_ANSWERS}/.{request}.json.crc"))

    def take_back(self, request: str) -> bool:
        """Deletes a request that the query has not taken yet; whether it was there."""
        try:
            self._files.filesystem.delete_file(self._files.path(f"{_REQUESTS}/{request}.json"))
        except FileNotFoundError:
            return False
        return True

    def pending(self) -> int:
        """Requests that the query has not taken yet."""
        names = self._files.sizes(_REQUESTS)
        return sum(1 for n in names if n.endswith(".json") and not n.startswith("."))

    def _send(self, kind: str, **fields: Any) -> str:
        """A request is visible as a whole or not at all: the driver passes over names that begin with a dot."""
        id_ = str(uuid4())
        request = {"format": _FORMAT, "id": id_, "kind": kind, **fields}
        if (secret := secret_of()) is not None:
            request = signed(request, secret, self._checkpoint.query_id() or "")
        folder, system = self._files.path(_REQUESTS), self._files.filesystem
        system.create_dir(folder, recursive=True)
        hidden = f"{folder}/.{id_}.json"
        with system.open_output_stream(hidden) as stream:
            stream.write(json.dumps(request).encode())
        system.move(hidden, f"{folder}/{id_}.json")
        return id_
