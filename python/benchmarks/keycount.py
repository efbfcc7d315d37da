"""Counts how often each key comes. This is the simplest kind of state, of any size (Megaphone, section 5.3)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from openloop.workload import Workload

__all__ = ["keycount", "keyed", "keytext"]

#: Number of keys of an epoch while the state is filled.
FILL = 2_000_000
#: Files of an interval, so that both cores read.
PARTS = 2


def keycount(
    keys: int, rows: int, intervals: int, interval: float = 1.0, zipf: float = 0.0, seed: int = 1
) -> Workload:
    """A count for each of `keys` keys, all of which exist before; `rows` events an interval.

    Keys are drawn uniformly, or with `zipf` > 0 so that the frequency of the key of rank r is proportional to
    r ** -zipf.
    """
    events = partial(_events, keys, rows, intervals, zipf, seed)
    name = f"keycount-{keys}-{rows}-{intervals}-{interval:g}-{zipf:g}-{seed}"
    return keyed(name, count_keys, "update", keys, events, rows, interval)


def keytext(keys: int, rows: int, intervals: int, interval: float) -> Workload:
    """The same, with a text for each key. A row has 100 bytes, most of which can't be compressed."""
    name = f"keytext-{keys}-{rows}-{intervals}-{interval:g}"
    return keyed(name, keep_texts, "update", keys, partial(_events, keys, rows, intervals), rows, interval)


def keyed(
    name: str,
    build: Callable[[DataFrame], DataFrame],
    mode: str,
    keys: int,
    events: Callable[[], Iterator[list[np.ndarray]]],
    rows: int,
    interval: float,
) -> Workload:
    """A query over keys only: 0 to `keys` fill its state, then `events` makes the files of each interval."""

    def write_fill(directory: Path) -> None:
        for i, begin in enumerate(range(0, keys, FILL)):
            _write(directory / f"{i:05}.parquet", np.arange(begin, min(begin + FILL, keys)))

    def write_stream(directory: Path) -> int:
        for i, files in enumerate(events()):
            part = directory / f"{i:05}"
            part.mkdir()
            for j, file in enumerate(files):
                _write(part / f"{j}.parquet", file)
        return rows

    return Workload(
        name=name,
        build=build,
        schema="key long",
        mode=mode,
        write_fill=write_fill,
        write_stream=write_stream,
        interval=interval,
    )


def count_keys(events: DataFrame) -> DataFrame:
    """The query."""
    return events.groupBy("key").count()


def keep_texts(events: DataFrame) -> DataFrame:
    """The query of `keytext`."""
    text = F.base64(F.unhex(F.sha2(F.col("key").cast("string"), 384)))
    return events.groupBy("key").agg(F.count("*"), F.first(text).alias("text"))


def _events(
    keys: int, rows: int, intervals: int, zipf: float = 0.0, seed: int = 1
) -> Iterator[list[np.ndarray]]:
    random = np.random.default_rng(seed)
    draw = _drawer(keys, zipf)
    for _ in range(intervals):
        yield np.array_split(draw(random, rows), PARTS)


def _drawer(keys: int, zipf: float):  # type: ignore[no-untyped-def]
    if zipf == 0:
        return lambda random, n: random.integers(0, keys, n)
    weights = np.arange(1, keys + 1, dtype=np.float64) ** -zipf
    cumulated = np.cumsum(weights) / weights.sum()
    # Ranks are scattered over the keys, so that neighbours are not alike.
    order = np.random.default_rng(0).permutation(keys)
    return lambda random, n: order[np.searchsorted(cumulated, random.random(n))]


def _write(file: Path, keys: np.ndarray) -> None:
    pq.write_table(pa.table({"key": keys.astype(np.int64)}), file, compression="none")
