"""Finds the rows that differ between two versions of a checkpoint, or between two checkpoints.

Stored rows are compared in the order of their keys, two streams side by side. If both sides have the same bins,
or the same partitions, rows in the same pair of partitions are compared at a time. Otherwise both sides are
sorted on disk first, in the scratch directory.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from binshift.errors import ConfigurationError
from binshift.inspect.checkpoint import Checkpoint
from binshift.inspect.decoding.rows import RowDecoder
from binshift.inspect.decoding.schema import is_read_in_order
from binshift.inspect.decoding.values import split_list
from binshift.inspect.source import BATCH_ROWS, Source, stored_rows
from binshift.inspect.storage.database import Database

__all__ = ["Side", "diff", "diff_schema"]

#: The bytes by which rows are ordered, the key, and the value.
_Row = tuple[bytes, bytes, bytes]
_Difference = tuple[str, bytes, bytes | None, bytes | None]


@dataclass(frozen=True, slots=True)
class Side:
    """One of the two sides of a comparison."""

    checkpoint: Checkpoint
    source: Source


def diff_schema(source: Source) -> pa.Schema:
    """Columns: change ("added", "removed" or "changed"), key, and the values before and after."""
    value = source.family.value.arrow
    kind = pa.list_(value) if source.family.is_multi_valued else value
    return pa.schema(
        [
            pa.field("change", pa.string(), False),
            pa.field("key", source.family.key.arrow, False),
            pa.field("before", kind),
            pa.field("after", kind),
        ]
    )


def diff(before: Side, after: Side) -> pa.RecordBatchReader:
    """The rows that differ, in no particular order; in flat memory.

    Raises
    ------
    ConfigurationError
        If the two have different columns, encoders or encodings.
    StateFormatError
        If state is damaged. The reader may raise this as well.
    """
    _require_alike(before, after)
    differences = (c for a, b in _groups(before, after) for c in _differences(a, b))
    return pa.RecordBatchReader.from_batches(diff_schema(after.source), _batches(differences, after))


def _require_alike(before: Side, after: Side) -> None:
    mine, other = before.source.family, after.source.family
    encodings = [s.checkpoint._facts.settings(s.source.version).encoding for s in (before, after)]
    if (mine.key, mine.value, mine.encoder, mine.is_multi_valued) != (
        other.key,
        other.value,
        other.encoder,
        other.is_multi_valued,
    ) or encodings[0] != encodings[1]:
        raise ConfigurationError(
            f"{before.source} and {after.source} have other columns or are stored in another form, so their "
            "rows cannot be compared; export both and compare the files",
            condition="NOT_COMPARABLE",
        )


def _groups(before: Side, after: Side) -> Iterator[tuple[Iterator[_Row], Iterator[_Row]]]:
    """Pairs of streams in the order of keys. Different pairs have no keys in common."""
    bins = [s.checkpoint._facts.bins if s.source.operator.is_binned else None for s in (before, after)]
    counts = [len(s.checkpoint._places(s.source)) for s in (before, after)]
    if bins[0] is not None and bins[0] == bins[1]:
        old, new = (s.checkpoint._facts.table(s.source.version - 1).assignment for s in (before, after))
        pairs: dict[tuple[int, int], list[int]] = {}
        for bin, pair in enumerate(zip(old, new, strict=True)):
            pairs.setdefault(pair, []).append(bin)
        for (a, b), shared in sorted(pairs.items()):
            yield _rows(before, [a], shared), _rows(after, [b], shared)
    elif bins == [None, None] and counts[0] == counts[1]:
        for partition in range(counts[0]):
            yield _rows(before, [partition]), _rows(after, [partition])
    else:
        yield _sorted(before), _sorted(after)


def _rows(side: Side, partitions: list[int], bins: list[int] | None = None) -> Iterator[_Row]:
    """Rows in the order of keys, or of bins and then keys if they are stored like that."""
    source = side.source
    in_front = bins is not None and not is_read_in_order(source.family.name)
    for place in side.checkpoint._places(source, partitions=partitions):
        with side.checkpoint._database(source, place) as (database, settings):
            for rows in stored_rows(source, database, settings, bins):
                for key, value, bin in rows:
                    ordered = (bin or 0).to_bytes(2, "big") + key if in_front else key
                    yield ordered, key, _normal(value, source, settings.delimiter)


def _sorted(side: Side) -> Iterator[_Row]:
    partitions = [p.partition for p in side.checkpoint._places(side.source)]
    path = Path(tempfile.mkdtemp(prefix="sorted-", dir=side.checkpoint._scratch))
    database = Database(path, None, b"", is_read_only=False)
    try:
        for _, key, value in _rows(side, partitions):
            database.put(key, value)
        yield from ((key, key, value) for key, value in database.rows())
    finally:
        database.close()


def _normal(value: bytes, source: Source, delimiter: bytes) -> bytes:
    """A list without its delimiters, because these depend on the checkpoint's settings."""
    if not (delimiter and source.family.is_multi_valued):
        return value
    return b"".join(len(v).to_bytes(4, "little") + v for v in split_list(value, delimiter))


def _differences(before: Iterator[_Row], after: Iterator[_Row]) -> Iterator[_Difference]:
    a, b = next(before, None), next(after, None)
    while a is not None or b is not None:
        if b is None or (a is not None and a[0] < b[0]):
            assert a is not None
            yield "removed", a[1], a[2], None
            a = next(before, None)
        elif a is None or b[0] < a[0]:
            yield "added", b[1], None, b[2]
            b = next(after, None)
        else:
            if a[2] != b[2]:
                yield "changed", a[1], a[2], b[2]
            a, b = next(before, None), next(after, None)


def _batches(differences: Iterator[_Difference], side: Side) -> Iterator[pa.RecordBatch]:
    chunk: list[_Difference] = []
    for difference in differences:
        chunk.append(difference)
        if len(chunk) == BATCH_ROWS:
            yield _decoded(chunk, side)
            chunk = []
    if chunk:
        yield _decoded(chunk, side)


def _decoded(chunk: list[_Difference], side: Side) -> pa.RecordBatch:
    source = side.source
    family = source.family
    decoder = RowDecoder(family, side.checkpoint._facts.settings(source.version).encoding)
    columns = [
        pa.array([c[0] for c in chunk]),
        decoder.keys([c[1] for c in chunk]),
        _values([c[2] for c in chunk], decoder),
        _values([c[3] for c in chunk], decoder),
    ]
    return pa.RecordBatch.from_arrays(columns, schema=diff_schema(source))


def _values(values: list[bytes | None], decoder: RowDecoder) -> pa.Array:
    lists = [[] if v is None else split_list(v, b"") if decoder.family.is_multi_valued else [v] for v in values]
    flat = decoder.values([v for items in lists for v in items])
    if decoder.family.is_multi_valued:
        offsets = [0]
        for items in lists:
            offsets.append(offsets[-1] + len(items))
        mask = pa.array([v is None for v in values])
        return pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), flat, mask=mask)
    index = iter(range(len(flat)))
    return flat.take(pa.array([None if v is None else next(index) for v in values], pa.int64()))
