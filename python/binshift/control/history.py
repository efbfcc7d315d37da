"""The steps that took effect, as a table."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any

import pyarrow as pa

from binshift.display import titled

__all__ = ["history_table"]

_SCHEMA = pa.schema(
    [
        ("epoch", pa.int64()),
        ("partitions", pa.int32()),
        ("bins_moved", pa.int32()),
        ("migration_id", pa.string()),
        ("strategy", pa.string()),
        ("step", pa.int32()),
        ("steps", pa.int32()),
        ("written_at", pa.timestamp("ms", tz="UTC")),
    ]
)


def history_table(entries: Iterable[Mapping[str, Any]]) -> pa.Table:
    """Makes a table with a row for each entry of a routing log that has a step; see `Controller.history`.

    Parameters
    ----------
    entries : iterable of mapping
        Each has epoch, partitions, written_at (in ISO form) and step, which is None or has migration_id, index,
        steps, strategy and moves.
    """
    rows = [
        {
            "epoch": entry["epoch"],
            "partitions": entry["partitions"],
            "bins_moved": step["moves"],
            "migration_id": step["migration_id"],
            "strategy": step["strategy"],
            "step": step["index"] + 1,
            "steps": step["steps"],
            "written_at": datetime.fromisoformat(entry["written_at"]),
        }
        for entry in entries
        if (step := entry.get("step")) is not None
    ]
    return titled(pa.Table.from_pylist(rows, schema=_SCHEMA), "Steps that took effect")
