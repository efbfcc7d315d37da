"""The way to the driver of a running query: through py4j, or through the SQL of Spark Connect."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from pyspark.sql.streaming.query import StreamingQuery

__all__ = ["QueryLink"]


class QueryLink(Protocol):
    """Asks the driver about one run of a query, for a controller. Thread-safe; each method makes a call.

    Answers come from `QueryHandle` in the JVM, mostly as JSON. Failures are raised as the errors that they name
    there.
    """

    @property
    def poll_s(self) -> float:
        """Seconds between two questions while somebody waits."""
        ...

    @property
    def id(self) -> str:
        """Id of the query; known without asking."""
        ...

    @property
    def name(self) -> str | None:
        """Name of the query; known without asking."""
        ...

    @property
    def query(self) -> StreamingQuery:
        """The query, as an object of the session that started it."""
        ...

    def routing(self) -> str | None:
        """The table in force; None before the first epoch was planned."""
        ...

    def statistics(self) -> bytes | None:
        """The statistics, which `bin_stats_of` reads; None before an epoch was committed."""
        ...

    def placement(self) -> str:
        """The placement, which `Placement.of` reads."""
        ...

    def earliest_epoch(self, plan: str, *, prepare: bool) -> int | None:
        """The earliest epoch at which a plan can take effect; None if that isn't known."""
        ...

    def submit(self, plan: str, options: str) -> str:
        """Submits a plan; returns the migration's id."""
        ...

    def cancel(self, migration: str) -> None:
        """Stops the migration from taking further steps."""
        ...

    def rollback(self, migration: str) -> None:
        """Stops the migration from taking further steps, and has those that it has taken undone."""
        ...

    def savepoint(self, name: str) -> str:
        """Makes a savepoint; returns the content of its file, and its id."""
        ...

    def current_migration(self) -> str | None:
        """Id and plan of the migration under way."""
        ...

    def progress(self, migration: str) -> str:
        """How far a migration has come."""
        ...

    def history(self, migration: str | None = None) -> str:
        """The steps that took effect, of one migration or of all."""
        ...

    def sample_keys(self, n: int) -> int:
        """Asks for the hottest keys of the next epoch; returns the number to give to `hot_keys`."""
        ...

    def hot_keys(self, after: int) -> str | None:
        """The hottest keys of an epoch after `after`; None until it is committed."""
        ...

    def has_begun(self) -> bool:
        """True if this run has committed an epoch. Raises if it never will, as `require_active` does."""
        ...

    def require_active(self) -> None:
        """Raises the reason if the query has ended."""
        ...

    def is_active(self) -> bool:
        """True if the query runs."""
        ...

    def recent_progress(self) -> list[dict[str, Any]]:
        """The progress reports that Spark remembers, as JSON."""
        ...

    def last_progress(self) -> dict[str, Any] | None:
        """The newest progress report."""
        ...

    def planned_epoch(self) -> tuple[int, float]:
        """The epoch that this run planned last, -1 before the first; and the time by the driver's clock."""
        ...

    def task_slots(self) -> int | None:
        """How many tasks the live executors can run at a time, without executors that are being given back."""
        ...

    def trigger_interval_ms(self) -> int:
        """The interval of the query's trigger; 0 if it has none."""
        ...

    def reports_kept(self) -> int:
        """For how many epochs the query remembers its reports."""
        ...

    def is_real_time(self) -> bool:
        """True if the query is in real-time mode."""
        ...

    def require_own_executors(self) -> None:
        """Raises if binshift must not change the number of executors."""
        ...

    def request_executors(self, total: int) -> None:
        """Asks Spark for this total number of executors. They arrive later."""
        ...

    def give_back_executors(self, executors: Sequence[str]) -> list[str]:
        """Gives back executors without partitions, between two epochs; returns those that go."""
        ...

    def leave_executors_to_others(self) -> None:
        """Lets autoscalers of other queries ask for executors; their number stays."""
        ...

    def executors_of_others(self) -> list[str]:
        """Executors with partitions of other queries of the application."""
        ...
