"""Talks to the driver's JVM about queries and sessions, through py4j."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from pyspark import SparkContext
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from binshift import driver, errors
from binshift.driver import call
from binshift.session import is_connect, jar_path, require_classic, require_spark

__all__ = ["JvmLink", "call", "gateway_of", "recent_progress"]


class JvmLink:
    """The link to a query of a classic session; see `QueryLink`.

    Raises
    ------
    ConfigurationError
        If the query or its session does not use binshift, or uses another version of its jar.
    UnsupportedVersionError
        If Spark is of another version.
    MigrationError
        If the query has ended.
    """

    def __init__(self, query: StreamingQuery) -> None:
        require_classic(query)
        self._query = query
        self._handle = call(_gateway(query, f"query {query.id}").attach, query._jsq)

    @property
    def poll_s(self) -> float:
        return 0.1

    @property
    def id(self) -> str:
        return str(self._query.id)

    @property
    def name(self) -> str | None:
        return self._query.name

    @property
    def query(self) -> StreamingQuery:
        return self._query

    def routing(self) -> str | None:
        return _text(call(self._handle.routing))

    def statistics(self) -> bytes | None:
        packed = call(self._handle.statistics)
        return None if packed is None else bytes(packed)

    def placement(self) -> str:
        return str(call(self._handle.placement))

    def earliest_epoch(self, plan: str, *, prepare: bool) -> int | None:
        epoch = int(call(self._handle.earliestEpoch, plan, prepare))
        return epoch if epoch >= 0 else None

    def submit(self, plan: str, options: str) -> str:
        return str(call(self._handle.submit, plan, options))

    def cancel(self, migration: str) -> None:
        call(self._handle.cancel, migration)

    def rollback(self, migration: str) -> None:
        call(self._handle.rollBack, migration)

    def savepoint(self, name: str) -> str:
        return str(call(self._handle.savepoint, name))

    def current_migration(self) -> str | None:
        return _text(call(self._handle.currentMigration))

    def progress(self, migration: str) -> str:
        return str(call(self._handle.progress, migration))

    def history(self, migration: str | None = None) -> str:
        return str(call(self._handle.history) if migration is None else call(self._handle.historyOf, migration))

    def sample_keys(self, n: int) -> int:
        return int(call(self._handle.sampleKeys, n))

    def hot_keys(self, after: int) -> str | None:
        return _text(call(self._handle.hotKeys, after))

    def has_begun(self) -> bool:
        return bool(call(self._handle.hasBegun))

    def require_active(self) -> None:
        call(self._handle.requireActive)

    def is_active(self) -> bool:
        return bool(self._query.isActive)

    def recent_progress(self) -> list[dict[str, Any]]:
        return recent_progress(self._query)

    def last_progress(self) -> dict[str, Any] | None:
        progress = self._query._jsq.lastProgress()
        return None if progress is None else json.loads(progress.json())

    def planned_epoch(self) -> tuple[int, float]:
        told = json.loads(call(self._handle.plannedEpoch))
        return int(told["epoch"]), told["at_ms"] / 1000

    def task_slots(self) -> int | None:
        context = SparkContext._active_spark_context
        return None if context is None else int(self._facts()["task_slots"])

    def trigger_interval_ms(self) -> int:
        return int(self._facts()["trigger_interval_ms"])

    def reports_kept(self) -> int:
        return int(self._facts()["reports_kept"])

    def is_real_time(self) -> bool:
        return bool(self._facts()["is_real_time"])

    def require_own_executors(self) -> None:
        call(self._handle.requireOwnExecutors)

    def request_executors(self, total: int) -> None:
        call(self._handle.requestExecutors, total)

    def give_back_executors(self, executors: Sequence[str]) -> list[str]:
        # Ids contain no commas.
        return _ids(call(self._handle.giveBackExecutors, ",".join(executors)))

    def leave_executors_to_others(self) -> None:
        call(self._handle.leaveExecutorsToOthers)

    def executors_of_others(self) -> list[str]:
        return _ids(call(self._handle.executorsOfOthers))

    def _facts(self) -> dict[str, Any]:
        facts: dict[str, Any] = json.loads(call(self._handle.facts))
        return facts


def recent_progress(query: StreamingQuery) -> list[dict[str, Any]]:
    """The progress that Spark remembers of `query`, of a classic session or of Spark Connect."""
    if is_connect(query):
        return list(query.recentProgress)
    # One call for each report, instead of one for each of its fields.
    return [json.loads(p.json()) for p in query._jsq.recentProgress()]


def gateway_of(session: SparkSession) -> Any:
    """The JVM's `Gateway`, for calls that concern no running query; raises the same errors as `JvmLink`."""
    return _gateway(session, "the session")


def _gateway(thing: object, name: str) -> Any:
    """The JVM's `Gateway`, for `thing`, a query or a session; `name` is how messages call it."""
    require_classic(thing)
    require_spark()
    context = SparkContext._active_spark_context
    if context is None or context._jvm is None:
        raise errors.ConfigurationError(
            f"{name} belongs to a SparkContext that was stopped; start it again", condition="CONTEXT_STOPPED"
        )
    return driver.gateway(
        f"{name} cannot be rescaled, because binshift is not active in this application yet; call "
        "binshift.configure(SparkSession.builder).getOrCreate(), which makes it active in the session that is "
        "there, then stop the query and start it again from its checkpoint",
        jar_path(),
    )


def _ids(joined: Any) -> list[str]:
    return [e for e in str(joined).split(",") if e]


def _text(found: Any) -> str | None:
    return None if found is None else str(found)
