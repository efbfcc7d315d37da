"""A stream of arrivals at a steady rate, and measurements of each epoch."""

from __future__ import annotations

import bisect
import threading
import time
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any, Protocol

from data import per_seat
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

#: The numbers of flights per feed, and the seconds between feeds, that are tried in this order.
SIZES = (4000, 2000, 1000, 500)
INTERVALS = (1.0, 1.5, 2.0, 2.5, 3.0)
_POLL_SECONDS = 0.1


@dataclass(frozen=True)
class Rate:
    """The input's rate: the arrivals of `flights` flights, every `interval` seconds."""

    flights: int
    interval: float


class Input(Protocol):
    """The source of flights."""

    def stream(self, spark: SparkSession) -> DataFrame:
        """The flights as a stream."""

    def batch(self, spark: SparkSession) -> DataFrame:
        """All existing flights as a batch."""

    def write_departures(self) -> None:
        """Writes the departures of the whole year."""

    def write_arrivals(self, first: int, count: int) -> None:
        """Writes the arrivals of `count` flights from number `first` on."""

    def forget_arrivals(self) -> None:
        """Deletes the arrivals, if the source can, for a query that has not read them."""


@dataclass(frozen=True)
class Epoch:
    """An epoch (Spark's micro-batch) of flights that came together. Times are seconds since 1970."""

    arrived: float
    committed: float
    seconds: float
    partitions: int
    bins_moved: int

    @property
    def latency(self) -> float:
        """Seconds from the arrival of its flights to its commit."""
        return self.committed - self.arrived


@dataclass
class Stream:
    """A query over flights that are written from time to time.

    Parameters
    ----------
    spark : SparkSession
        The query uses this session's state-store provider.
    input : Input
        The query's input.
    checkpoint : Path
        The query's checkpoint.
    """

    spark: SparkSession
    input: Input
    checkpoint: Path
    arrived: list[float] = field(default_factory=list)
    #: After each feed, the number of all flights that have arrived so far.
    _fed: list[int] = field(default_factory=list)
    #: The flights that earlier runs have processed, plus those that this run found at its start.
    _processed: int = 0
    _found: int = 0
    _query: StreamingQuery | None = None
    #: The run's reports, and the time of the newest one.
    _progress: list[Any] = field(default_factory=list)
    _reported: str = ""

    @property
    def query(self) -> StreamingQuery:
        """The query, which must have been started."""
        assert self._query is not None, "start() comes first"
        return self._query

    def start(self) -> None:
        """Starts or restarts the query."""
        writer = per_seat(self.input.stream(self.spark)).writeStream.outputMode("update").format("noop")
        self._query = writer.option("checkpointLocation", str(self.checkpoint)).start()
        self._progress, self._reported = [], ""

    def catch_up(self) -> None:
        """Waits until the query has processed all existing input."""
        self.query.processAllAvailable()
        self._found = sum(p.numInputRows for p in self.query.recentProgress)

    def feed(self, count: int) -> None:
        """Writes the arrivals of `count` flights."""
        before = self._fed[-1] if self._fed else 0
        self.input.write_arrivals(before, count)
        self._fed.append(before + count)
        self.arrived.append(time.time())

    def epoch(self, number: int) -> Epoch:
        """Waits for the epoch of feed number `number`, and returns it."""
        while True:
            # Another thread feeds the flights that have not arrived yet.
            if number < len(self.arrived) and (done := self._done(self._fed[number])) is not None:
                return _epoch(done, self.arrived[number])
            if not self.query.isActive:
                raise self.query.exception() or RuntimeError("the query stopped before its input was processed")
            time.sleep(_POLL_SECONDS)

    def _done(self, flights: int) -> Any:
        """The progress of the epoch after which this number of flights was processed."""
        rows = self._processed - self._found
        last = self.query.lastProgress
        # Reading all reports is slow, as a client of Spark Connect gets them as text.
        if last is not None and last.timestamp != self._reported:
            self._progress, self._reported = self.query.recentProgress, last.timestamp
        for progress in self._progress:
            rows += progress.numInputRows
            if progress.numInputRows and rows >= flights:
                return progress
        return None

    def stop_in_a_pause(self) -> int:
        """Stops between two epochs, as Spark's repartition requires; returns the number of processed feeds."""
        while self.query.status["isTriggerActive"]:
            time.sleep(0.005)
        self.query.stop()
        self._processed += sum(p.numInputRows for p in self.query.recentProgress) - self._found
        self._found = 0
        return bisect.bisect_right(self._fed, self._processed)

    def find_rate(self, load: float) -> Rate:
        """Warms up; returns the highest rate at which epochs take at most `load` of the time between feeds."""
        seconds = {}
        for size in sorted(SIZES):
            took = []
            for _ in range(3):
                self.feed(size)
                took.append(self.epoch(len(self.arrived) - 1).seconds)
            # The first epochs of the smallest size take the state over and compile code.
            seconds[size] = min(took)
        for interval in INTERVALS:
            for size in SIZES:
                if seconds[size] <= load * interval:
                    return Rate(size, interval)
        return Rate(SIZES[-1], seconds[SIZES[-1]] / load)


class Feeder(threading.Thread):
    """Feeds flights at a steady rate until it is stopped, even if the query doesn't keep up.

    Attributes
    ----------
    first : int
        The number of feeds before.
    """

    def __init__(self, stream: Stream, rate: Rate) -> None:
        super().__init__(daemon=True)
        self.first = len(stream.arrived)
        self._stream, self._rate = stream, rate
        self._stopped = threading.Event()

    def run(self) -> None:
        """Feeds flights; the time for writing them is not added to the interval."""
        due = time.monotonic()
        while not self._stopped.wait(max(0.0, due - time.monotonic())):
            self._stream.feed(self._rate.flights)
            due += self._rate.interval

    def stop(self) -> None:
        """Stops feeding."""
        self._stopped.set()
        self.join()


def _epoch(progress: Any, arrived: float) -> Epoch:
    operator = progress.stateOperators[0]
    # Spark reports an epoch's begin and duration, whose sum is the time of the commit.
    seconds = progress.durationMs["triggerExecution"] / 1000
    committed = datetime.fromisoformat(progress.timestamp).timestamp() + seconds
    moved = operator.customMetrics.get("binshiftBinsAdopted", 0)
    return Epoch(arrived, committed, seconds, operator.numShufflePartitions, moved)
