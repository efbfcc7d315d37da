"""A driver process whose query counts the rows of one topic by key, and writes the counts to another.

Rows come from elsewhere, all the time; see `commanded.py` for the rest.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any, ClassVar

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from binshift.session import PROVIDER_KEY
from cluster.commanded import Commands, serve
from harness import StreamRun, until

SERVERS = "spark.binshift.tests.kafka"
#: The two topics, if they are not `events` and `counts`.
TOPICS = "spark.binshift.tests.topics"


class KafkaRun(StreamRun):
    """A query that reads one topic and writes another."""

    is_real_time = False

    @property
    def _servers(self) -> str:
        return self.spark.conf.get(SERVERS)

    @property
    def _topics(self) -> list[str]:
        return (self.spark.conf.get(TOPICS, "events counts") or "").split()

    @property
    def source(self) -> DataFrame:
        options = {
            "kafka.bootstrap.servers": self._servers,
            "kafka.isolation.level": "read_committed",
            "subscribe": self._topics[0],
            "startingOffsets": "earliest",
        }
        # In real-time mode, a batch takes all rows that come while it is open.
        options |= {} if self.is_real_time else {"maxOffsetsPerTrigger": "5000"}
        events = self.spark.readStream.format("kafka").options(**options).load()
        return events.select(F.col("key").cast("string").alias("k"))

    def start(self, name: str | None = None, **trigger: Any) -> KafkaRun:
        counted = self.source.groupBy("k").agg(F.count("*").alias("n"))
        rows = counted.select(F.col("k").alias("key"), F.col("n").cast("string").alias("value"))
        options = {
            "kafka.bootstrap.servers": self._servers,
            "topic": self._topics[1],
            "checkpointLocation": str(self.checkpoint),
        }
        writer = rows.writeStream.outputMode("update").format("kafka").options(**options)
        self.query = (writer.trigger(**trigger) if trigger else writer).start()
        return self


class KafkaCommands(Commands):
    trigger: ClassVar[dict[str, str]] = {}

    def __init__(self, root: Path, spark: SparkSession, checkpoint: str) -> None:
        self.spark = spark
        self.run = KafkaRun(spark, root, lambda df: df)
        self.run.is_real_time = "realTime" in self.trigger
        if self.run.is_real_time:
            # Without this setting, each query gets binshift's provider.
            self.run.spark.conf.unset(PROVIDER_KEY)
        self.run.start(**self.trigger)
        self.epochs(1)

    def epochs(self, count: int) -> int:
        """Waits for a number of further epochs with rows; returns the last epoch."""
        first = self._epoch()
        assert until(lambda: not self.run.query.isActive or self._epoch() >= first + count, 600)
        assert self.run.query.isActive, self.run.query.exception()
        return self._epoch()

    def _epoch(self) -> int:
        return max((p.batchId for p in self.run.query.recentProgress if p.numInputRows), default=-1)

    def finish(self) -> int:
        migration = self.run.attach().migration()
        if migration is not None:
            migration.wait(600)
        return self.epochs(1)

    def report(self) -> dict[str, Any]:
        """Waits until all existing rows are counted, and reports."""
        self.run.query.processAllAvailable()
        return {
            "state": [[key[0], value[0]] for key, value in self.run.state()],
            "partitions": self.run.attach().routing().partitions,
            "history": [r["bins_moved"] for r in self.run.attach().history().to_pylist()],
            "longest": max(p.durationMs["triggerExecution"] for p in self.run.query.recentProgress),
        }


if __name__ == "__main__":
    serve(KafkaCommands)
