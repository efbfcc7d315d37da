"""Requests to the checkpoint's file system, counted by epoch, thread and caller (jvm/CountedFiles.scala)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from binshift.session import CHANGELOG_KEY, PROVIDER_KEY

__all__ = ["CountedQuery", "Request", "by_caller"]


@dataclass(frozen=True)
class Request:
    """One call of Hadoop's file system.

    Attributes
    ----------
    epoch : int
        The epoch after the newest committed one.
    thread : str
        stream, task, maintenance, background (a thread of binshift's) or other.
    ours : bool
        Whether binshift asked, rather than Spark.
    bytes : int
        How much of the file was read or written.
    """

    epoch: int
    at_ms: int
    kind: str
    path: str
    thread: str
    ours: bool
    bytes: int
    caller: str

    @classmethod
    def parse(cls, line: str) -> Request:
        """Parses a line of CountedRequests."""
        epoch, at_ms, kind, path, thread, ours, size, caller = line.split("\t")
        return cls(int(epoch), int(at_ms), kind, path, thread, ours == "true", int(size), caller)


def by_caller(requests: Iterable[Request]) -> list[tuple[str, int]]:
    """How often each caller asked for what, most frequent first."""
    return Counter(f"{r.thread} {r.kind} {r.caller}" for r in requests).most_common()


class CountedQuery:
    """A count of keys that arrive as fast as they can, over a checkpoint whose requests are counted."""

    def __init__(
        self,
        spark: SparkSession,
        root: Path,
        provider: str,
        partitions: int,
        rows: int = 200,
        conf: dict[str, str] | None = None,
    ) -> None:
        spark._jsc.hadoopConfiguration().set("fs.counted.impl", "binshift.devtools.CountedFiles")
        self.spark = spark.newSession()
        self.root = root
        self.rows = rows
        self.requests = self.spark._jvm.binshift.devtools.CountedRequests
        self.query: StreamingQuery | None = None
        settings = {
            PROVIDER_KEY: provider,
            CHANGELOG_KEY: "true",
            "spark.sql.shuffle.partitions": str(partitions),
        }
        for key, value in (settings | (conf or {})).items():
            self.spark.conf.set(key, value)

    def start(self) -> StreamingQuery:
        """Starts the query, or starts it again from its checkpoint."""
        self.query = (
            self._frame()
            .writeStream.format("noop")
            .outputMode("update")
            .option("checkpointLocation", f"counted://{self.root}")
            .start()
        )
        return self.query

    def reach(self, epoch: int) -> None:
        """Waits until the epoch is committed."""
        assert self.query is not None
        # The epoch's own file may be purged before it is looked for.
        while self.epoch < epoch:
            if self.query.awaitTermination(0.05):  # type: ignore[arg-type]
                raise AssertionError(f"the query ended before epoch {epoch}: {self.query.exception()}")

    @property
    def epoch(self) -> int:
        """The newest committed epoch; -1 before the first."""
        folder = self.root / "commits"
        return max((int(f.name) for f in folder.glob("[0-9]*")), default=-1)

    def count(self, delay_ms: int = 0, bytes_per_second: int = 0) -> None:
        """Starts counting from zero."""
        self.requests.begin(delay_ms, bytes_per_second)

    def counted(self) -> list[Request]:
        """The requests that were counted since `count`."""
        return [Request.parse(line) for line in self.requests.lines().splitlines()]

    def stop(self) -> None:
        """Ends the query, and waits until its listeners know."""
        if self.query is not None:
            self.query.stop()
            self.spark.sparkContext._jsc.sc().listenerBus().waitUntilEmpty(120_000)

    def _frame(self) -> DataFrame:
        source = self.spark.readStream.format("rate-micro-batch").option("rowsPerBatch", self.rows)
        rows = source.option("numPartitions", 2).load()
        return rows.groupBy((rows.value % 997).alias("k")).count()
