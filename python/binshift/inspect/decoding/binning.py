"""Computes the bins of many keys at once, by Spark's Murmur3 of the columns by which rows are distributed.

These are the same columns as in `PartitioningKey` on the Scala side: columns that an operator appends to a key
don't count. Keys with arrays, maps, variants, intervals of Spark's own type, or decimals of more than 18 digits
are not hashed here. Relies on Spark: state keys have no collations under which different bytes are equal, so a
string is hashed by its bytes (`StateSchemaCompatibilityChecker` refuses such collations).
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from binshift.inspect.decoding.schema import Family, Store
from binshift.inspect.decoding.types import Field, TypeKind

__all__ = ["bins_of", "bins_of_keys", "flat", "murmur3", "partitioning"]

_SEED = 42
_SIMPLE = (TypeKind.FIXED, TypeKind.BOOLEAN, TypeKind.DECIMAL, TypeKind.STRING, TypeKind.BINARY, TypeKind.NULL)
_INDEXED = ("left-keyWithIndexToValue", "right-keyWithIndexToValue")

Words = npt.NDArray[np.uint32]


def partitioning(store: Store, family: Family) -> tuple[bool, tuple[Field, ...]]:
    """True if the hashed columns are within the key's second column, and which columns they are.

    In an index by time, the second column is the element. The element of a map's index consists of the key and
    the map's own key, which isn't hashed.
    """
    fields = family.key.fields
    match family.encoder.name:
        case "PrefixKeyScan":
            return False, fields[: family.encoder.prefix]
        case "RangeKeyScan":
            indexed = store.family(family.name.removeprefix("$ttl_"))
            if indexed is not None and indexed is not family and indexed.encoder.name == "PrefixKeyScan":
                return True, fields[1].type.fields[:1]
            return False, fields[1:2]
        case "TimestampAsPrefix" | "TimestampAsPostfix":
            return False, fields[:-1]
    return False, fields[:-1] if store.name in _INDEXED or family.name in _INDEXED else fields


def bins_of_keys(keys: pa.StructArray, store: Store, family: Family, bins: int) -> npt.NDArray[np.int64] | None:
    """The bins of decoded keys; None if their columns are not all simple.

    Parameters
    ----------
    keys : pyarrow.StructArray
    store : Store
        Store of the keys. Its other families tell what an index refers to.
    family : Family
    bins : int
        Number of bins.
    """
    is_element, fields = partitioning(store, family)
    parent, of = keys, family.key.fields
    if is_element:
        parent, of = keys.flatten()[1], family.key.fields[1].type.fields
    columns = dict(zip((f.name for f in of), parent.flatten(), strict=True))
    return bins_of([p for f in fields for p in _flat_columns(f, columns[f.name])], len(keys), bins)


def bins_of(columns: list[tuple[Field, pa.Array]], n: int, bins: int) -> npt.NDArray[np.int64] | None:
    """The bins of `n` keys with these columns, none of which is a struct; None if they are not all simple."""
    if not all(f.type.kind in _SIMPLE for f, _ in columns):
        return None
    hashes = np.full(n, _SEED, np.uint32)
    for field, column in columns:
        if field.type.kind is not TypeKind.NULL:
            is_null = np.asarray(column.is_null())
            hashes = np.where(is_null, hashes, _hashed(field, column, hashes)).astype(np.uint32)
    return np.asarray(hashes.view(np.int32).astype(np.int64) % bins)


def flat(fields: tuple[Field, ...]) -> list[Field]:
    """Takes structs apart, because a struct hashes like its columns."""
    out = []
    for field in fields:
        out += flat(field.type.fields) if field.type.kind is TypeKind.STRUCT else [field]
    return out


def _flat_columns(field: Field, column: pa.Array) -> list[tuple[Field, pa.Array]]:
    """The columns that `flat` names; those of a struct that is null are null."""
    if field.type.kind is not TypeKind.STRUCT:
        return [(field, column)]
    return [p for f, c in zip(field.type.fields, column.flatten(), strict=True) for p in _flat_columns(f, c)]


def _hashed(field: Field, column: pa.Array, seeds: Words) -> Words:
    """Hashes a column. Small integers are hashed as ints, -0.0 as 0.0, and all NaNs alike."""
    n = len(column)
    if field.type.kind in (TypeKind.STRING, TypeKind.BINARY):
        offsets = np.frombuffer(column.buffers()[1], np.int32, n + 1, column.offset * 4).astype(np.int64)
        return murmur3(_bytes(column.buffers()[2]), offsets[:-1], offsets[1:], seeds)
    if field.type.kind is TypeKind.BOOLEAN:
        numbers = np.asarray(column.fill_null(False)).astype("<i4")
    elif field.type.kind is TypeKind.DECIMAL:
        # The low half of the sixteen bytes has all digits.
        numbers = np.frombuffer(column.buffers()[1], "<i8", 2 * n, column.offset * 16)[::2].copy()
    else:
        width = column.type.bit_width // 8
        numbers = np.frombuffer(column.buffers()[1], f"<i{width}", n, column.offset * width)
        if pa.types.is_floating(column.type):
            floats = numbers.view(f"<f{width}")
            same = np.where(floats == 0, 0.0, np.where(np.isnan(floats), np.nan, floats))
            numbers = same.astype(f"<f{width}").view(f"<i{width}")
        elif width < 4:
            numbers = numbers.astype("<i4")
    size = numbers.dtype.itemsize
    start = np.arange(n, dtype=np.int64) * size
    return murmur3(np.frombuffer(numbers.tobytes(), np.uint8), start, start + size, seeds)


def _bytes(buffer: pa.Buffer | None) -> npt.NDArray[np.uint8]:
    """The buffer of strings; Arrow may have none if all are empty."""
    return np.frombuffer(buffer, np.uint8) if buffer is not None else np.zeros(0, np.uint8)


def murmur3(
    data: npt.NDArray[np.uint8], start: npt.NDArray[np.int64], end: npt.NDArray[np.int64], seeds: Words
) -> Words:
    """Spark's Murmur3 of each range of `data`. The odd bytes at the end are hashed one by one, each as an int.

    Time grows with the longest range, and with the number of those that are as long.
    """
    size = end - start
    order = np.argsort(-size, kind="stable")
    at, ascending = start[order], -(size[order] // 4)
    hashes = seeds[order].astype(np.uint32)
    for i in range(int(-ascending[0]) if len(order) else 0):
        # The ranges that have a word at this place are the first ones.
        n = int(np.searchsorted(ascending, -i, side="left"))
        where = at[:n] + 4 * i
        words = sum(data[where + j].astype(np.uint32) << np.uint32(8 * j) for j in range(4))
        hashes[:n] = _mixed(hashes[:n], np.asarray(words, np.uint32))
    rest = size[order] % 4
    for i in range(3):
        has = np.flatnonzero(rest > i)
        odd = data[at[has] - 4 * ascending[has] + i].view(np.int8).astype(np.int32).view(np.uint32)
        hashes[has] = _mixed(hashes[has], odd)
    hashes ^= size[order].astype(np.uint32)
    hashes = (hashes ^ hashes >> np.uint32(16)) * np.uint32(0x85EBCA6B)
    hashes = (hashes ^ hashes >> np.uint32(13)) * np.uint32(0xC2B2AE35)
    out = np.empty_like(hashes)
    out[order] = hashes ^ hashes >> np.uint32(16)
    return out


def _mixed(hashes: Words, words: Words) -> Words:
    """One round of Murmur3; numbers wrap around at 32 bits."""
    words = words * np.uint32(0xCC9E2D51)
    words = (words << np.uint32(15) | words >> np.uint32(17)) * np.uint32(0x1B873593)
    hashes = hashes ^ words
    hashes = hashes << np.uint32(13) | hashes >> np.uint32(19)
    return hashes * np.uint32(5) + np.uint32(0xE6546B64)
