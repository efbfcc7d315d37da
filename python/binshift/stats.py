"""The statistics of a query's bins, as a table."""

from __future__ import annotations

import json

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from binshift.display import titled

__all__ = ["BIN_STATS", "HOT_KEYS", "bin_stats_of", "hot_keys_of"]

BIN_STATS = pa.schema(
    [
        ("operator", pa.int32()),
        ("name", pa.string()),
        ("bin", pa.int32()),
        ("partition", pa.int32()),
        ("executor", pa.string()),
        ("standby", pa.string()),
        ("standby_lag", pa.int64()),
        ("keys", pa.int64()),
        ("bytes", pa.int64()),
        ("reads", pa.int64()),
        ("writes", pa.int64()),
    ]
)

HOT_KEYS = pa.schema(
    [
        ("operator", pa.int32()),
        ("name", pa.string()),
        ("bin", pa.int32()),
        ("partition", pa.int32()),
        ("key", pa.string()),
        ("operations", pa.int64()),
        ("missing", pa.int64()),
        ("share", pa.float64()),
    ]
)

_NUMBERS = ("keys", "bytes", "reads", "writes")
_SIZES = ("keys", "bytes")


def bin_stats_of(packed: bytes) -> pa.Table:
    """The table that the JVM packed (see StatisticsSnapshot.scala); its metadata has the epoch."""
    start = 4 + int.from_bytes(packed[:4], "little")
    header = json.loads(packed[4:start])
    bins = header["bins"]

    def column(kind: npt.DTypeLike, at: int) -> pa.Array:
        # Copied, because Arrow wants values at addresses that are multiples of their width.
        return pa.array(np.frombuffer(packed, kind, bins, at).copy())

    owners = column("<i4", start)
    at = start + 4 * bins
    parts = []
    for operator in header["operators"]:
        columns = {
            "operator": pa.repeat(pa.scalar(operator["id"], pa.int32()), bins),
            "name": pa.repeat(operator["name"], bins),
            "bin": pa.array(range(bins), pa.int32()),
            "partition": owners,
            "executor": pa.array(operator["executors"], pa.string()).take(owners),
            "standby": pa.array(operator["standbys"], pa.string()).take(owners),
            "standby_lag": pa.array(operator["standby_lags"], pa.int64()).take(owners),
        }
        for name in _NUMBERS:
            known = operator["sized"] or name not in _SIZES
            columns[name] = column("<i8", at) if known else pa.nulls(bins, pa.int64())
            at += 8 * bins
        parts.append(pa.table(columns, BIN_STATS))
    table = pa.concat_tables(parts) if parts else BIN_STATS.empty_table()
    return titled(table, f"Bins as of epoch {header['epoch']}", epoch=str(header["epoch"]))


def hot_keys_of(text: str, n: int) -> pa.Table:
    """The table of the first `n` keys that the JVM found; its metadata has the epoch."""
    data = json.loads(text)
    table = pa.Table.from_pylist(data["keys"][:n], schema=HOT_KEYS)
    return titled(table, f"Hottest keys of epoch {data['epoch']}", epoch=str(data["epoch"]))
