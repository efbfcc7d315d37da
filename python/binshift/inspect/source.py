"""Reads one family of a checkpoint at a time: its stored rows, and the same rows as typed columns."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import KW_ONLY, dataclass

import pyarrow as pa

from binshift.inspect.decoding.rows import RowDecoder
from binshift.inspect.decoding.schema import DEFAULT, Family, Operator, Store, is_read_in_order
from binshift.inspect.decoding.values import split_list, verified
from binshift.inspect.facts import Settings
from binshift.inspect.storage.database import Database, successor
from binshift.inspect.storage.partition import BIN_BYTES, bin_of, rows_of_bins

__all__ = ["BATCH_ROWS", "Source", "StoredRow", "decoded", "stored_row", "stored_rows"]

#: Rows of a record batch, and the bytes above which it has fewer.
BATCH_ROWS = 8192
BATCH_BYTES = 4 << 20

#: Key and value, without the family's number, the bin and row checksums; and the bin, if there are bins.
StoredRow = tuple[bytes, bytes, int | None]


@dataclass(frozen=True, slots=True)
class Source:
    """One family of one store of one operator, at one version: rows of one form.

    Parameters
    ----------
    operator : Operator
    store : Store
    family : Family
    version : int
    """

    operator: Operator
    _: KW_ONLY
    store: Store
    family: Family
    version: int

    @property
    def schema(self) -> pa.Schema:
        """The columns that are read: partition, bin (null if there are none), key and value (structs)."""
        return pa.schema(
            [
                pa.field("partition", pa.int32(), nullable=False),
                pa.field("bin", pa.int32()),
                pa.field("key", self.family.key.arrow, nullable=False),
                pa.field("value", self.family.value.arrow, nullable=False),
            ]
        )

    @property
    def is_unused(self) -> bool:
        """True if it is the default family of a store whose operator uses others."""
        return len(self.store.families) > 1 and self.family.name == DEFAULT

    def __str__(self) -> str:
        return f"operator {self.operator.id}, store {self.store.name}, family {self.family.name}"


def stored_rows(
    source: Source,
    database: Database,
    settings: Settings,
    bins: Iterable[int] | None = None,
    most: int = BATCH_ROWS,
) -> Iterator[list[StoredRow]]:
    """The rows of a source in one partition, as lists, in the order in which they are stored.

    Raises
    ------
    StateFormatError
        If a row's checksum is wrong.
    """
    name = source.family.name
    prefix = database.prefix(name)
    if prefix is None:
        return
    rows = (
        database.rows(prefix, successor(prefix))
        if bins is None or not source.operator.is_binned
        else rows_of_bins(database, prefix, name, sorted(bins))
    )
    for keys, values in _chunks(rows, most):
        plain = _plain(keys, values, settings)
        cut = [k[len(prefix) :] for k in keys]
        if not source.operator.is_binned:
            yield [(k, v, None) for k, v in zip(cut, plain, strict=True)]
        elif is_read_in_order(name):
            yield [(k[:-BIN_BYTES], v, bin_of(k, is_behind=True)) for k, v in zip(cut, plain, strict=True)]
        else:
            yield [(k[BIN_BYTES:], v, bin_of(k, is_behind=False)) for k, v in zip(cut, plain, strict=True)]


def stored_row(
    source: Source, database: Database, settings: Settings, key: bytes, bin: int | None
) -> list[StoredRow]:
    """The row with this key, or None. Not for families that are read in order."""
    prefix = database.prefix(source.family.name)
    if prefix is None:
        return []
    whole = prefix + (b"" if bin is None else bin.to_bytes(BIN_BYTES, "big")) + key
    value = database.get(whole)
    return [] if value is None else [(key, _plain([whole], [value], settings)[0], bin)]


def decoded(source: Source, partition: int, rows: list[StoredRow], settings: Settings) -> pa.RecordBatch:
    """Stored rows as typed columns; a key with a list of values has a row for each.

    Raises
    ------
    StateFormatError
        If a key or a value is damaged.
    """
    values, bins = [r[1] for r in rows], [r[2] for r in rows]
    decoder = RowDecoder(source.family, settings.encoding)
    key = decoder.keys([r[0] for r in rows])
    if source.family.is_multi_valued:
        lists = [split_list(v, settings.delimiter) for v in values]
        index = [i for i, items in enumerate(lists) for _ in items]
        key = key.take(pa.array(index, pa.int64()))
        bins = [bins[i] for i in index]
        values = [item for items in lists for item in items]
    columns = [
        pa.array([partition] * len(values), pa.int32()),
        pa.array(bins, pa.int32()),
        key,
        decoder.values(values),
    ]
    return pa.RecordBatch.from_arrays(columns, schema=source.schema)


def _chunks(rows: Iterator[tuple[bytes, bytes]], most: int) -> Iterator[tuple[list[bytes], list[bytes]]]:
    keys: list[bytes] = []
    values: list[bytes] = []
    size = 0
    for key, value in rows:
        keys.append(key)
        values.append(value)
        size += len(key) + len(value)
        if len(keys) >= most or size >= BATCH_BYTES:
            yield keys, values
            keys, values, size = [], [], 0
    if keys:
        yield keys, values


def _plain(keys: list[bytes], values: list[bytes], settings: Settings) -> list[bytes]:
    return verified(keys, values, settings.delimiter) if settings.has_row_checksums else values
