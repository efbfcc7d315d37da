"""What Python asks the JVM about queries and sessions that are there."""

from __future__ import annotations

import json
from typing import Any

from pyspark import SparkContext
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from binshift import driver, errors
from binshift.driver import call
from binshift.session import jar_path, require_classic, require_spark

__all__ = [
    "call",
    "gateway_of",
    "handle_of",
    "last_progress",
    "recent_progress",
    "task_slots",
    "trigger_interval_ms",
]


def handle_of(query: StreamingQuery) -> Any:
    """The JVM's handle of `query`.

    Raises
    ------
    ConfigurationError
        If the query or its session does not use binshift, or uses another version of its jar.
    UnsupportedVersionError
        If Spark is of another version.
    MigrationError
        If the query has ended.
    """
    require_classic(query)
    return call(_gateway(query, f"query {query.id}").attach, query._jsq)


def gateway_of(session: SparkSession) -> Any:
    """The JVM's end, for what concerns no running query; raises what `handle_of` raises."""
    return _gateway(session, "the session")


def _gateway(thing: object, name: str) -> Any:
    """The JVM's end, which `thing` needs, a query or a session; `name` is what messages call it."""
    require_classic(thing)
    require_spark()
    context = SparkContext._active_spark_context
    if context is None or context._jvm is None:
        raise errors.ConfigurationError(
            f"{name} belongs to a SparkContext that was stopped; start it again", condition="CONTEXT_STOPPED"
        )
    return driver.gateway("the binshift jar is not on the class path of this session", jar_path())


def recent_progress(query: StreamingQuery) -> list[dict[str, Any]]:
    """The progress that Spark remembers of `query`, one call for each and not one for each of its fields."""
    require_classic(query)
    return [json.loads(p.json()) for p in query._jsq.recentProgress()]


def last_progress(query: StreamingQuery) -> dict[str, Any] | None:
    """The newest progress of `query`, None before there is any."""
    require_classic(query)
    progress = query._jsq.lastProgress()
    return None if progress is None else json.loads(progress.json())


def task_slots() -> int | None:
    """Tasks that all live executors run at the same time; None without a running SparkContext.

    Relies on Spark: `SparkContext.maxNumConcurrentTasks` of the default resource profile, by which barrier
    stages are checked.
    """
    context = SparkContext._active_spark_context
    if context is None or context._jsc is None:
        return None
    scala = context._jsc.sc()
    return int(scala.maxNumConcurrentTasks(scala.resourceProfileManager().defaultResourceProfile()))


def trigger_interval_ms(query: StreamingQuery) -> int:
    """The interval of the query's trigger; 0 if it has none.

    Relies on Spark: a query of a classic session wraps a StreamExecution, which has its trigger.
    """
    trigger = query._jsq.streamingQuery().trigger()
    if trigger.getClass().getSimpleName() != "ProcessingTimeTrigger":
        return 0
    return int(trigger.intervalMs())
