"""A stream of arrivals at a steady rate, and what became of each epoch."""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

from data import SCHEMA, Flights, per_seat
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

#: Flights in a file, and seconds between two files, that are tried in this order.
SIZES = (4000, 2000, 1000, 500)
INTERVALS = (1.0, 1.5, 2.0, 2.5, 3.0)


@dataclass(frozen=True)
class Rate:
    """What is fed: the arrivals of `flights` flights, once in `interval` seconds."""

    flights: int
    interval: float


@dataclass(frozen=True)
class Epoch:
    """An epoch (Spark's micro-batch) of one file. Times are seconds since the epoch of Unix."""

    arrived: float
    committed: float
    seconds: float
    partitions: int
    bins_moved: int

    @property
    def latency(self) -> float:
        """Seconds from the arrival of its file to its commit."""
        return self.committed - self.arrived


@dataclass
class Stream:
    """A query over a folder of its own; files are put there one by one.

    Parameters
    ----------
    spark : SparkSession
        Its provider of state stores is the one that the query uses.
    flights : Flights
        What is fed.
    folder, checkpoint : Path
        Input and checkpoint of the query.
    """

    spark: SparkSession
    flights: Flights
    folder: Path
    checkpoint: Path
    arrived: list[float] = field(default_factory=list)
    _fed: int = 0
    _first: int = 0
    _query: StreamingQuery | None = None

    @property
    def query(self) -> StreamingQuery:
        """The query, which was started."""
        assert self._query is not None, "start() comes first"
        return self._query

    def start(self) -> None:
        """Starts the query, or starts it again."""
        source = self.spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 1).parquet(str(self.folder))
        writer = per_seat(source).writeStream.outputMode("update").format("noop")
        self._query = writer.option("checkpointLocation", str(self.checkpoint)).start()

    def feed(self, count: int) -> None:
        """Puts a file with the arrivals of `count` flights into the input."""
        self.flights.write_arrivals(self.folder, self._fed, count)
        self._fed += count
        self.arrived.append(time.time())

    def epoch(self, number: int) -> Epoch:
        """The epoch of file `number`, waited for."""
        while True:
            done = [p for p in self.query.recentProgress if p.numInputRows > 0]
            if len(done) > number - self._first:
                return _epoch(done[number - self._first], self.arrived[number])
            if not self.query.isActive:
                raise self.query.exception() or RuntimeError("the query stopped before its input was processed")
            time.sleep(0.02)

    def stop_in_a_pause(self) -> int:
        """Stops between two epochs, as Spark's repartition wants; returns the number of files processed."""
        while self.query.status["isTriggerActive"]:
            time.sleep(0.005)
        self.query.stop()
        return self._first + sum(p.numInputRows > 0 for p in self.query.recentProgress)

    def restart(self, processed: int) -> None:
        """Starts the query again, which has processed so many of the files."""
        self._first = processed
        self.start()

    def find_rate(self, load: float) -> Rate:
        """Warms up, and finds the highest rate at which epochs take `load` of the time between two files."""
        seconds = {}
        for size in sorted(SIZES):
            took = []
            for _ in range(3):
                self.feed(size)
                took.append(self.epoch(len(self.arrived) - 1).seconds)
            # The first of the smallest takes the state over, and later ones compile code.
            seconds[size] = min(took)
        for interval in INTERVALS:
            for size in SIZES:
                if seconds[size] <= load * interval:
                    return Rate(size, interval)
        return Rate(SIZES[-1], seconds[SIZES[-1]] / load)


class Feeder(threading.Thread):
    """Feeds files at a steady rate until it is stopped, whether the query keeps up or not.

    Attributes
    ----------
    first : int
        Number of the first file that it feeds.
    """

    def __init__(self, stream: Stream, rate: Rate) -> None:
        super().__init__(daemon=True)
        self.first = len(stream.arrived)
        self._stream, self._rate = stream, rate
        self._stopped = threading.Event()

    def run(self) -> None:
        """Feeds; the time that writing a file takes is not added to the interval."""
        due = time.monotonic()
        while not self._stopped.wait(max(0.0, due - time.monotonic())):
            self._stream.feed(self._rate.flights)
            due += self._rate.interval

    def stop(self) -> None:
        """Feeds nothing more."""
        self._stopped.set()
        self.join()


def _epoch(progress: Any, arrived: float) -> Epoch:
    operator = progress.stateOperators[0]
    # Spark reports when an epoch began; its duration tells when it was committed.
    seconds = progress.durationMs["triggerExecution"] / 1000
    committed = datetime.fromisoformat(progress.timestamp).timestamp() + seconds
    moved = operator.customMetrics.get("binshiftBinsAdopted", 0)
    return Epoch(arrived, committed, seconds, operator.numShufflePartitions, moved)
