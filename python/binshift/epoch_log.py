"""Remembers what Spark reports about a query's epochs."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql.streaming.listener import (
    QueryProgressEvent,
    QueryStartedEvent,
    QueryTerminatedEvent,
    StreamingQueryListener,
)
from pyspark.sql.streaming.query import StreamingQuery

from binshift.arguments import checked
from binshift.epoch_progress import EpochProgress, distinct, epoch_table
from binshift.errors import ConfigurationError, impossible
from binshift.jvm import recent_progress
from binshift.numbers import is_whole

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["EpochLog", "epochs"]

_DEFAULT_LIMIT = 1000


@checked(ConfigurationError)
def epochs(query: StreamingQuery) -> list[EpochProgress]:
    """The epochs that Spark remembers of a query, oldest first.

    These are the last 100, unless `spark.sql.streaming.numRecentProgressUpdates` says otherwise; an
    `EpochLog` remembers more. `epoch_table` makes a table of them.
    """
    return distinct(recent_progress(query))


@checked(ConfigurationError, but=("event", "limit", "query"))
class EpochLog(StreamingQueryListener):
    """Remembers the epochs of queries while they run: register it with `spark.streams.addListener`.

    Parameters
    ----------
    query : StreamingQuery, optional
        Remember only this query; by default all queries of the session.
    limit : int
        How many epochs to remember; the oldest are forgotten first.
    """

    def __init__(self, query: StreamingQuery | None = None, *, limit: int = _DEFAULT_LIMIT) -> None:
        if query is not None and not hasattr(query, "id"):
            raise impossible(
                ConfigurationError, "query", query, "a StreamingQuery, or None for all of the session"
            )
        if not is_whole(limit, 1):
            raise impossible(ConfigurationError, "limit", limit, "a number of epochs, at least 1")
        self._query_id = None if query is None else str(query.id)
        self._limit = limit
        self._lock = threading.Lock()
        self._epochs: dict[tuple[str, int], EpochProgress] = {}

    def __repr__(self) -> str:
        return f"<EpochLog: {len(self.epochs)} epochs>"

    def onQueryStarted(self, event: QueryStartedEvent) -> None:  # noqa: N802 - Spark calls it
        """Does nothing: there is no epoch to remember yet."""

    def onQueryProgress(self, event: QueryProgressEvent) -> None:  # noqa: N802 - Spark calls it
        """Remembers the epoch."""
        self.add(event.progress)

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:  # noqa: N802 - Spark calls it
        """Does nothing: the epochs are kept."""

    def add(self, progress: Mapping[str, Any]) -> None:
        """Remembers an epoch, replacing an earlier report about it."""
        epoch = EpochProgress.of(progress)
        if epoch is None or self._query_id not in (None, epoch.query_id):
            return
        with self._lock:
            key = (epoch.run_id, epoch.epoch)
            self._epochs.pop(key, None)
            self._epochs[key] = epoch
            while len(self._epochs) > self._limit:
                del self._epochs[next(iter(self._epochs))]

    @property
    def epochs(self) -> tuple[EpochProgress, ...]:
        """The remembered epochs, oldest first."""
        with self._lock:
            return tuple(self._epochs.values())

    def table(self) -> pa.Table:
        """The remembered epochs, as a table made by `epoch_table`."""
        return epoch_table(self.epochs)

    def to_pandas(self) -> pd.DataFrame:
        """The remembered epochs, as a pandas frame."""
        return self.table().to_pandas()
