"""Counts how often each key comes: the plainest state there is, of any size (Megaphone, section 5.3)."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame

from openloop.workload import Workload

__all__ = ["FILL", "keycount", "write_keys"]

#: Keys that one epoch brings while the state is filled.
FILL = 2_000_000
#: Files of an interval, so that both cores read.
PARTS = 2


def keycount(
    keys: int, rows: int, intervals: int, interval: float = 1.0, zipf: float = 0.0, seed: int = 1
) -> Workload:
    """A count for each of `keys` keys, all of them known before; `rows` events an interval.

    Keys are drawn uniformly, or with `zipf` > 0 so that the key of rank r comes in proportion to r ** -zipf.
    """

    def write_fill(directory: Path) -> None:
        for i, begin in enumerate(range(0, keys, FILL)):
            write_keys(directory / f"{i:05}.parquet", np.arange(begin, min(begin + FILL, keys)))

    def write_stream(directory: Path) -> int:
        random = np.random.default_rng(seed)
        draw = _drawer(keys, zipf)
        for i in range(intervals):
            part = directory / f"{i:05}"
            part.mkdir()
            for j, chunk in enumerate(np.array_split(draw(random, rows), PARTS)):
                write_keys(part / f"{j}.parquet", chunk)
        return rows

    return Workload(
        name=f"keycount-{keys}-{rows}-{intervals}-{interval:g}-{zipf:g}-{seed}",
        build=count_keys,
        schema="key long",
        mode="update",
        write_fill=write_fill,
        write_stream=write_stream,
        interval=interval,
    )


def count_keys(events: DataFrame) -> DataFrame:
    """The query."""
    return events.groupBy("key").count()


def _drawer(keys: int, zipf: float):  # type: ignore[no-untyped-def]
    if zipf == 0:
        return lambda random, n: random.integers(0, keys, n)
    weights = np.arange(1, keys + 1, dtype=np.float64) ** -zipf
    cumulated = np.cumsum(weights) / weights.sum()
    # Ranks are scattered over the keys, so that neighbours are not alike.
    order = np.random.default_rng(0).permutation(keys)
    return lambda random, n: order[np.searchsorted(cumulated, random.random(n))]


def write_keys(file: Path, keys: np.ndarray) -> None:
    """Writes events of these keys."""
    pq.write_table(pa.table({"key": keys.astype(np.int64)}), file, compression="none")
