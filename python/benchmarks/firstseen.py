"""Passes each key when it comes for the first time. This operator returns rows while it takes others."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from keycount import keyed
from openloop.timeline import RECORDS
from openloop.workload import Workload

__all__ = ["firstseen"]


def firstseen(keys: int, rows: int, intervals: int, interval: float = 1.0) -> Workload:
    """Keeps `keys` keys, and takes `rows` new ones an interval.

    An aggregation takes all rows of an epoch before it returns the first. This query doesn't, so it shows when
    each row has left its operator, although the epoch ends for all of them at once.
    """

    def events() -> Iterator[list[np.ndarray]]:
        for begin in range(keys, keys + intervals * rows, rows):
            yield [np.arange(begin, begin + rows)]

    name = f"firstseen-{keys}-{rows}-{intervals}-{interval:g}"
    return keyed(name, first_seen, "append", keys, events, rows, interval)


def first_seen(events: DataFrame) -> DataFrame:
    """The query. What is observed is when rows leave the operator, milliseconds since 1970."""
    left = F.expr("cast(reflect('java.lang.System', 'currentTimeMillis') as long)")
    rows = events.dropDuplicates(["key"]).select("key", left.alias("left"))
    return rows.observe(RECORDS, F.percentile_approx("left", 0.8, 10_000).alias("most"))
