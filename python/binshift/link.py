"""The way to the driver of a running query: through py4j, or through the SQL of Spark Connect."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from pyspark.sql.streaming.query import StreamingQuery

__all__ = ["QueryLink"]


class QueryLink(Protocol):
    """What a controller asks about one run of a query. Thread-safe; every method asks the driver.

    Answers are those of `QueryHandle` in the JVM, mostly as JSON; failures are raised as the errors that they
    name there.
    """

    @property
    def poll_s(self) -> float:
        """Seconds between two questions of somebody who waits."""
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
        """The query, as the session has it that started it."""
        ...

    def routing(self) -> str | None:
        """The table in force, None while no epoch was planned."""
        ...

    def statistics(self) -> bytes | None:
        """What `bin_stats_of` reads, None before an epoch was committed."""
        ...

    def placement(self) -> str:
        """What `Placement.of` reads."""
        ...

    def earliest_epoch(self, plan: str, *, prepare: bool) -> int | None:
        """The epoch before which a plan cannot take effect, None if that is not known."""
        ...

    def submit(self, plan: str, options: str) -> str:
        """Submits a plan; returns the migration's id."""
        ...

    def cancel(self, migration: str) -> None:
        """Has the migration take no further step."""
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
        """Asks for the hottest keys of the next epoch; returns what to give to `hot_keys`."""
        ...

    def hot_keys(self, after: int) -> str | None:
        """The hottest keys of an epoch after `after`, None until it is committed."""
        ...

    def has_begun(self) -> bool:
        """Whether this run has committed an epoch; raises why that never comes, as `require_active` does."""
        ...

    def require_active(self) -> None:
        """Raises what has ended the query, if it has."""
        ...

    def is_active(self) -> bool:
        """Whether the query runs."""
        ...

    def recent_progress(self) -> list[dict[str, Any]]:
        """The progress that Spark remembers, as its JSON has it."""
        ...

    def last_progress(self) -> dict[str, Any] | None:
        """The newest of it."""
        ...

    def planned_epoch(self) -> tuple[int, float]:
        """The epoch that this run has planned last, -1 before the first; and now by the driver's clock."""
        ...

    def task_slots(self) -> int | None:
        """Tasks that all live executors run at the same time, without those that are being given back."""
        ...

    def trigger_interval_ms(self) -> int:
        """The interval of the query's trigger; 0 if it has none."""
        ...

    def reports_kept(self) -> int:
        """Epochs of which the query remembers its reports."""
        ...

    def is_real_time(self) -> bool:
        """Whether the query is in real-time mode."""
        ...

    def require_own_executors(self) -> None:
        """Refuses where the number of executors is not to be changed by us."""
        ...

    def request_executors(self, total: int) -> None:
        """Asks Spark for so many executors in all, which come later."""
        ...

    def give_back_executors(self, executors: Sequence[str]) -> list[str]:
        """Gives back executors, between two epochs, but for those with partitions; which of them go."""
        ...

    def leave_executors_to_others(self) -> None:
        """Lets autoscalers of other queries ask for executors; their number stays."""
        ...

    def executors_of_others(self) -> list[str]:
        """Executors with partitions of other queries of the application."""
        ...
