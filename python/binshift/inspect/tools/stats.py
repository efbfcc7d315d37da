"""Counts keys and bytes, by operator, store, family, partition and bin."""

from __future__ import annotations

from collections.abc import Iterable

import pyarrow as pa

from binshift.inspect.checkpoint import Checkpoint
from binshift.inspect.source import Source, stored_rows

__all__ = ["stats"]

_COUNTS = pa.schema(
    [
        ("operator", pa.int64()),
        ("name", pa.string()),
        ("store", pa.string()),
        ("family", pa.string()),
        ("partition", pa.int32()),
        ("bin", pa.int32()),
        ("keys", pa.int64()),
        ("bytes", pa.int64()),
    ]
)


def stats(checkpoint: Checkpoint, sources: Iterable[Source]) -> pa.Table:
    """Makes a table with a row for each family, partition and bin that has keys.

    Bytes count keys and values, without the family's number, the bin, and row checksums.
    """
    rows = []
    for source in sources:
        for place in checkpoint._places(source):
            counts: dict[int | None, list[int]] = {}
            with checkpoint._database(source, place) as (database, settings):
                for chunk in stored_rows(source, database, settings):
                    for key, value, bin in chunk:
                        count = counts.setdefault(bin, [0, 0])
                        count[0] += 1
                        count[1] += len(key) + len(value)
            names = (source.operator.id, source.operator.name, source.store.name, source.family.name)
            rows += [
                (*names, place.partition, bin, *count)
                for bin, count in sorted(counts.items(), key=lambda c: c[0] or 0)
            ]
    return pa.Table.from_pylist([dict(zip(_COUNTS.names, r, strict=True)) for r in rows], _COUNTS)
