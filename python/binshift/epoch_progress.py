"""Spark's reports on a query's epochs, as a tidy table."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import KW_ONLY, dataclass
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa

from binshift.arguments import checked
from binshift.display import brief, in_seconds, titled
from binshift.errors import ConfigurationError

__all__ = ["EpochProgress", "distinct", "epoch_table"]

_PREFIX = "binshift"
#: The metrics that this version of the provider reports. Metrics of other versions get columns after these.
_METRICS = (
    "bins_owned",
    "bins_adopted",
    "bins_released",
    "bins_prepared",
    "bins_shipped",
    "bins_from_checkpoint",
    "bins_recopied",
    "bins_awaited",
    "bytes_copied",
    "rows_adopted",
    "bytes_adopted",
    "adopt_s",
)
_FIELDS: list[tuple[str, pa.DataType]] = [
    ("query_id", pa.string()),
    ("run_id", pa.string()),
    ("epoch", pa.int64()),
    ("started_at", pa.timestamp("ms", tz="UTC")),
    ("duration_s", pa.float64()),
    ("input_rows", pa.int64()),
    ("partitions", pa.int32()),
    ("state_rows", pa.int64()),
    ("state_rows_updated", pa.int64()),
    ("state_memory_bytes", pa.int64()),
]


@dataclass(frozen=True, slots=True, repr=False)
class EpochProgress:
    """Spark's report on one epoch, summed over stateful operators.

    Parameters
    ----------
    query_id, run_id : str
        The query, and its run.
    epoch : int
        Batch id.
    started_at : datetime
        When the epoch was triggered.
    duration_s : float
        Seconds from its trigger to its commit.
    input_rows : int
        Rows read from all sources.
    partitions : int
        State partitions; the highest number of any stateful operator, 0 without any.
    state_rows, state_rows_updated, state_memory_bytes : int
        Rows of state, those updated in the epoch, and memory used by the stores.
    metrics : mapping of str to float
        binshift's custom metrics, such as `bins_adopted`; times in seconds, such as `adopt_s`.
    """

    query_id: str
    _: KW_ONLY
    run_id: str
    epoch: int
    started_at: datetime
    duration_s: float
    input_rows: int
    partitions: int
    state_rows: int
    state_rows_updated: int
    state_memory_bytes: int
    metrics: Mapping[str, float]

    @classmethod
    def of(cls, progress: Mapping[str, Any]) -> EpochProgress | None:
        """From a `StreamingQueryProgress`, or its JSON; None if it reports that nothing was run."""
        durations = progress["durationMs"]
        if "addBatch" not in durations:
            return None
        operators = progress["stateOperators"]
        rows = progress.get("numInputRows")
        if rows is None:
            # A client of Spark Connect gets this number only for each source.
            rows = sum(int(source["numInputRows"]) for source in progress["sources"])
        times: dict[str, int] = {}
        metrics: dict[str, float] = {}
        for operator in operators:
            for name, value in operator["customMetrics"].items():
                if name.startswith(_PREFIX):
                    snake = re.sub(r"(?<!^)(?=[A-Z])", "_", name.removeprefix(_PREFIX)).lower()
                    if snake.endswith("_ms"):
                        times[snake] = times.get(snake, 0) + int(value)
                    else:
                        metrics[snake] = metrics.get(snake, 0) + int(value)
        metrics |= {name.removesuffix("ms") + "s": ms / 1000 for name, ms in times.items()}
        return cls(
            str(progress["id"]),
            run_id=str(progress["runId"]),
            epoch=int(progress["batchId"]),
            started_at=datetime.fromisoformat(progress["timestamp"]).astimezone(UTC),
            duration_s=int(durations.get("triggerExecution", 0)) / 1000,
            input_rows=int(rows),
            partitions=max((int(op["numShufflePartitions"]) for op in operators), default=0),
            state_rows=sum(int(op["numRowsTotal"]) for op in operators),
            state_rows_updated=sum(int(op["numRowsUpdated"]) for op in operators),
            state_memory_bytes=sum(int(op["memoryUsedBytes"]) for op in operators),
            metrics=metrics,
        )

    @property
    def bins_adopted(self) -> int:
        """Bins that changed their partition at this epoch, per operator and store."""
        return int(self.metrics.get("bins_adopted", 0))

    def __repr__(self) -> str:
        size = f"{self.input_rows} rows, {self.partitions} partitions"
        return brief(self, f"epoch {self.epoch}, {size}, {in_seconds(self.duration_s)}")


def distinct(progress: Iterable[Mapping[str, Any]]) -> list[EpochProgress]:
    """The epochs of reports, in the order of the reports. If two are about one epoch, the later one counts."""
    found = (EpochProgress.of(p) for p in progress)
    return list({(e.run_id, e.epoch): e for e in found if e is not None}.values())


@checked(ConfigurationError)
def epoch_table(rows: Iterable[EpochProgress]) -> pa.Table:
    """Makes a table with a row for each epoch.

    Columns: query_id, run_id, epoch, started_at (UTC), duration_s, input_rows, partitions, state_rows,
    state_rows_updated, state_memory_bytes. Each metric of binshift has one, too (`bins_adopted`,
    `bytes_adopted`, `adopt_s`, ...), with 0 where it was not reported.
    """
    rows = list(rows)
    more = sorted({name for row in rows for name in row.metrics} - set(_METRICS))
    names = [*_METRICS, *more]
    columns = [pa.array([getattr(r, name) for r in rows], type) for name, type in _FIELDS]
    columns += [pa.array([r.metrics.get(name, 0) for r in rows], _type_of(name)) for name in names]
    table = pa.table(columns, names=[*(name for name, _ in _FIELDS), *names])
    return titled(table, "Epochs")


def _type_of(metric: str) -> pa.DataType:
    return pa.float64() if metric.endswith("_s") else pa.int64()
