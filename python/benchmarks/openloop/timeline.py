"""How long the epochs of a run took, and how long events waited for theirs."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlparse

import pyarrow as pa
from pyspark.sql.streaming.query import StreamingQuery

__all__ = ["RECORDS", "Epoch", "files_by_offset", "latencies", "timeline"]

#: Name under which a query observes when its rows leave their operator.
RECORDS = "records"


@dataclass(frozen=True, slots=True)
class Epoch:
    """One micro-batch; times are seconds since 1970, durations milliseconds.

    After `most_ms`, four in five of its rows have left their operator; 0 if the query does not observe it.
    `fetched` are rows that came before their bin. `gets` are RocksDB's lookups, which took `get_ms` on all
    cores together.
    """

    epoch: int
    began: float
    took_ms: int
    rows: int
    offset: int
    adopted: int
    adopt_ms: int
    processing_ms: int
    most_ms: float = 0.0
    gets: int = 0
    get_ms: int = 0
    fetched: int = 0

    @property
    def committed(self) -> float:
        """The time at which it was over."""
        return self.began + self.took_ms / 1000


def timeline(query: StreamingQuery) -> list[Epoch]:
    """The epochs with input that the query remembers (`spark.sql.streaming.numRecentProgressUpdates`)."""
    return [_epoch(p) for p in query.recentProgress if p.numInputRows > 0]


def _epoch(progress: Any) -> Epoch:
    def metric(name: str) -> int:
        return sum(int(o.customMetrics.get(name, 0)) for o in progress.stateOperators)

    began = datetime.fromisoformat(progress.timestamp).timestamp()
    records = progress.observedMetrics.get(RECORDS)
    return Epoch(
        epoch=progress.batchId,
        began=began,
        took_ms=progress.durationMs["triggerExecution"],
        rows=progress.numInputRows,
        offset=json.loads(progress.sources[0].endOffset)["logOffset"],
        adopted=metric("binshiftBinsAdopted"),
        adopt_ms=metric("binshiftAdoptMs"),
        fetched=metric("binshiftRowsFetched"),
        processing_ms=progress.durationMs.get("addBatch", 0),
        gets=metric("rocksdbGetCount"),
        get_ms=metric("rocksdbGetLatency"),
        most_ms=records.most - 1000 * began if records and records.most else 0.0,
    )


def files_by_offset(checkpoint: Path) -> dict[str, int]:
    """Name of each file that the query's file source has read, and the source's offset that took it."""
    found: dict[str, int] = {}
    for log in sorted((checkpoint / "sources" / "0").iterdir()):
        if log.name.startswith("."):
            continue
        for line in log.read_text().splitlines()[1:]:  # the first line is the version of the format
            entry = json.loads(line)
            found[Path(unquote(urlparse(entry["path"]).path)).name] = int(entry["batchId"])
    return found


def latencies(epochs: Sequence[Epoch], offsets: Mapping[str, int], scheduled: Mapping[str, float]) -> pa.Table:
    """Seconds from the moment at which each file was due to the commit of its epoch: file, scheduled, latency.

    An epoch takes all offsets up to its own.
    """
    ends = sorted((e.offset, e.committed) for e in epochs)
    rows = []
    for file, due in sorted(scheduled.items(), key=lambda item: item[1]):
        offset = offsets.get(file)
        committed = next((at for end, at in ends if offset is not None and end >= offset), None)
        if committed is not None:
            rows.append({"file": file, "scheduled": due, "latency": committed - due})
    schema = pa.schema([("file", pa.string()), ("scheduled", pa.float64()), ("latency", pa.float64())])
    return pa.Table.from_pylist(rows, schema=schema)
