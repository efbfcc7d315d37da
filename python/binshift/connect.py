"""Talks to the driver through SQL, for Spark Connect, which has no py4j."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any
from uuid import uuid4

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from binshift import errors
from binshift.server import failure_of, require_server
from binshift.session import how_to_start_server, require_spark

__all__ = ["ConnectLink"]

_ASK = "CALL binshift.system.ask(query => :query, question => :question, argument => :argument)"
_SUBMIT = "CALL binshift.system.submit(query => :query, plan => :plan, options => :options, id => :id)"
_CANCEL = "CALL binshift.system.cancel(query => :query, migration_id => :migration)"


class ConnectLink:
    """The link to a query of a server of Spark Connect; see `QueryLink`.

    Parameters
    ----------
    session : SparkSession
        The client's session.
    query : StreamingQuery or str
        The query, or its name or id. Another session of the server may have started it.

    Raises
    ------
    ConfigurationError
        If there is no such query, or it does not use binshift, or the server has no binshift of this version.
    MigrationError
        If the query has ended.
    """

    def __init__(self, session: SparkSession, query: StreamingQuery | str) -> None:
        require_spark()
        require_server(session, how_to_start_server())
        self._session = session
        self._run = query if isinstance(query, str) else str(query.runId)
        self._query = None if isinstance(query, str) else query
        #: True if such a run existed. If it didn't, a query that is asked for by its name is reported as
        #: missing.
        self._is_known = self._query is not None
        facts = json.loads(str(self._ask("attach")))
        self._run, self._id, self._name = facts["run_id"], facts["id"], facts.get("name")
        self._is_known = True

    @property
    def poll_s(self) -> float:
        return 0.5

    @property
    def id(self) -> str:
        return str(self._id)

    @property
    def name(self) -> str | None:
        return None if self._name is None else str(self._name)

    @property
    def query(self) -> StreamingQuery:
        if self._query is None:
            own = [q for q in self._session.streams.active if str(q.runId) == self._run]
            if not own:
                raise errors.ConfigurationError(
                    f"query {self.id} was started by another session of the server, and only that session can "
                    "have its StreamingQuery; the controller works all the same",
                    condition="QUERY_OF_ANOTHER_SESSION",
                )
            self._query = own[0]
        return self._query

    def routing(self) -> str | None:
        return self._ask("routing")

    def statistics(self) -> bytes | None:
        packed = self._answer("statistics")["packed"]
        return None if packed is None else bytes(packed)

    def placement(self) -> str:
        return str(self._ask("placement"))

    def earliest_epoch(self, plan: str, *, prepare: bool) -> int | None:
        return None

    def submit(self, plan: str, options: str) -> str:
        # The client chooses the id, so that a call that Spark's client sends again starts nothing twice.
        row = self._call(_SUBMIT, plan=plan, options=options, id=str(uuid4()))
        return str(row["migration_id"])

    def cancel(self, migration: str) -> None:
        self._call(_CANCEL, migration=migration)

    def rollback(self, migration: str) -> None:
        self._ask("rollback", migration)

    def savepoint(self, name: str) -> str:
        return str(self._ask("savepoint", name))

    def current_migration(self) -> str | None:
        return self._ask("migration")

    def progress(self, migration: str) -> str:
        return str(self._ask("progress", migration))

    def history(self, migration: str | None = None) -> str:
        return str(self._ask("history") if migration is None else self._ask("history", migration))

    def sample_keys(self, n: int) -> int:
        return int(str(self._ask("sample_keys", str(n))))

    def hot_keys(self, after: int) -> str | None:
        return self._ask("hot_keys", str(after))

    def has_begun(self) -> bool:
        return self._ask("has_begun") == "true"

    def require_active(self) -> None:
        self._ask("require_active")

    def is_active(self) -> bool:
        try:
            return bool(self._facts()["is_active"])
        except errors.MigrationError:
            # The server has forgotten the run.
            return False

    def recent_progress(self) -> list[dict[str, Any]]:
        return list(json.loads(str(self._ask("recent_progress"))))

    def last_progress(self) -> dict[str, Any] | None:
        text = self._ask("last_progress")
        return None if text is None else json.loads(text)

    def planned_epoch(self) -> tuple[int, float]:
        told = json.loads(str(self._ask("planned_epoch")))
        return int(told["epoch"]), told["at_ms"] / 1000

    def task_slots(self) -> int | None:
        return int(self._facts()["task_slots"])

    def trigger_interval_ms(self) -> int:
        return int(self._facts()["trigger_interval_ms"])

    def reports_kept(self) -> int:
        return int(self._facts()["reports_kept"])

    def is_real_time(self) -> bool:
        return bool(self._facts()["is_real_time"])

    def require_own_executors(self) -> None:
        raise errors.ConfigurationError(
            "a client of Spark Connect cannot change the number of executors, because other clients of the "
            "server use them, too; leave out max_executors, or run the autoscaler in the server's driver",
            condition="EXECUTORS_NOT_OURS",
        )

    def request_executors(self, total: int) -> None:
        self.require_own_executors()

    def give_back_executors(self, executors: Sequence[str]) -> list[str]:
        self.require_own_executors()
        return []

    def leave_executors_to_others(self) -> None:
        """Does nothing, because this link never asks for executors."""

    def executors_of_others(self) -> list[str]:
        self.require_own_executors()
        return []

    def _facts(self) -> dict[str, Any]:
        facts: dict[str, Any] = json.loads(str(self._ask("facts")))
        return facts

    def _ask(self, question: str, argument: str | None = None) -> str | None:
        answer = self._answer(question, argument)["answer"]
        return None if answer is None else str(answer)

    def _answer(self, question: str, argument: str | None = None) -> Any:
        return self._call(_ASK, question=question, argument=argument)

    def _call(self, statement: str, **arguments: str | None) -> Any:
        try:
            return self._session.sql(statement, {"query": self._run, **arguments}).collect()[0]
        except PySparkException as error:
            failure = failure_of(error)
            if failure is None:
                raise
            if failure.condition == "QUERY_NOT_FOUND" and self._is_known:
                # The same words that the server uses for a run that it remembers.
                message = f"run {self._run} of the query has ended; start the query again and attach to it"
                failure = errors.from_jvm("MigrationError", message, "QUERY_ENDED", {})
            raise failure from None
