"""The routing log as a table."""

from __future__ import annotations

import pyarrow as pa

from binshift.inspect.layout import Layout

__all__ = ["routing_history"]

_STEP = ("migration", "index", "steps", "strategy", "moves")
_HISTORY = pa.schema(
    [
        ("epoch", pa.int64()),
        ("partitions", pa.int32()),
        ("assignment", pa.list_(pa.int32())),
        ("writtenAtMs", pa.timestamp("ms", "UTC")),
        ("migration", pa.string()),
        ("index", pa.int32()),
        ("steps", pa.int32()),
        ("strategy", pa.string()),
        ("moves", pa.int32()),
    ]
)


def routing_history(layout: Layout) -> pa.Table:
    """A row for each epoch at which the routing table changed, with the step that led to it."""
    rows = []
    for epoch in layout.routing_epochs:
        entry = layout.routing_entry(epoch)
        step = entry.get("step") or {}
        rows.append({**{k: entry.get(k) for k in _HISTORY.names}, **{k: step.get(k) for k in _STEP}})
    return pa.Table.from_pylist(rows, _HISTORY)
