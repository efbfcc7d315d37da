"""Decodes Spark's UnsafeRow to Arrow, a batch of rows at a time.

```
 row    | bit per field: is null, in words of 8 bytes | slot of 8 bytes per field | variable part |
 array  | count, 8 bytes | bit per element, in words   | slot of 1 to 8 bytes per element, padded | … |
 map    | size of the keys, 8 bytes | array of keys    | array of values |
```

A slot holds the value itself or, if the type has no fixed size, `offset << 32 | size`, where the offset is
counted from the start of the row or array. Numbers are little-endian, as on all platforms on which Spark runs
except s390x. Nothing outside of a row is read for the row.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from binshift.control.damage import damaged
from binshift.errors import StateFormatError
from binshift.inspect.decoding.types import Field, SparkType, TypeKind

__all__ = ["Bytes", "unsafe_columns"]

Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]

#: Values of this size or more are copied one by one, which needs less memory than an index of their bytes.
_LARGE = 256
#: The most microseconds that Arrow can represent in nanoseconds.
_MOST_MICROS = (2**63 - 1) // 1000


class Bytes:
    """The bytes of a batch, from which numbers can be read at any offset.

    Parameters
    ----------
    data : bytes
        Padded, so that a number can be read at each offset.
    """

    def __init__(self, data: bytes) -> None:
        self.data = data + bytes(16)
        self.u8 = np.frombuffer(self.data, np.uint8)

    def numbers(self, dtype: str) -> npt.NDArray[np.generic]:
        """An overlapping view: element `i` is the number whose first byte is byte `i`."""
        width = np.dtype(dtype).itemsize
        return np.ndarray((len(self.data) - width + 1,), dtype, self.data, 0, (1,))

    def longs(self, at: Ints) -> Ints:
        """The 8-byte numbers at these places."""
        return np.asarray(self.numbers("<i8")[at], np.int64)


@dataclass(frozen=True, slots=True)
class _Slots:
    """Values of one type: the slot of each, and the range of bytes that it must not leave."""

    at: Ints
    start: Ints
    end: Ints
    valid: Bools

    def __len__(self) -> int:
        return len(self.at)


def unsafe_columns(data: Bytes, row: SparkType, start: Ints, end: Ints) -> list[pa.Array]:
    """The columns of a batch of rows.

    Parameters
    ----------
    data : Bytes
    row : SparkType
        The struct of the rows.
    start, end : array of int
        Offsets of each row.

    Returns
    -------
    list of pyarrow.Array
        An array for each field of the struct.

    Raises
    ------
    StateFormatError
        If a row is too short for its fields or has a value outside of itself.
    """
    return _fields(data, row.fields, start, end, np.ones(len(start), np.bool_))


def _fields(data: Bytes, fields: tuple[Field, ...], start: Ints, end: Ints, valid: Bools) -> list[pa.Array]:
    bitset = (len(fields) + 63) // 64 * 8
    size = bitset + 8 * len(fields)
    _require(~valid | (end - start >= size), f"a row of {len(fields)} fields has less than {size} bytes")
    _require(~valid | ((end - start) % 8 == 0), "the size of a row is no multiple of 8")
    safe = np.where(valid, start, 0)
    out = []
    for i, field in enumerate(fields):
        here = valid & ((data.u8[safe + (i >> 3)] >> (i & 7)) & 1 == 0)
        out.append(_decode(data, field.type, _Slots(safe + bitset + 8 * i, start, end, here)))
    return out


def _decode(data: Bytes, kind: SparkType, slots: _Slots) -> pa.Array:
    return _DECODERS[kind.kind](data, kind, slots)


def _null(data: Bytes, kind: SparkType, slots: _Slots) -> pa.Array:
    return pa.nulls(len(slots))


def _boolean(data: Bytes, kind: SparkType, slots: _Slots) -> pa.Array:
    at = np.where(slots.valid, slots.at, 0)
    return pa.array(data.u8[at] != 0, pa.bool_(), mask=~slots.valid)


def _fixed(data: Bytes, kind: SparkType, slots: _Slots) -> pa.Array:
    storage = {1: "<i1", 2: "<i2", 4: "<i4", 8: "<i8"}[kind.width]
    values = np.where(slots.valid, data.numbers(storage)[np.where(slots.valid, slots.at, 0)], 0)
    return _assembled(kind.arrow, slots.valid, [np.ascontiguousarray(values, storage)])


def _decimal(data: Bytes, kind: SparkType, slots: _Slots) -> pa.Array:
    low = np.where(slots.valid, data.longs(np.where(slots.valid, slots.at, 0)), 0)
    words = np.stack([low, low >> 63], axis=1)
    return _checked(kind, _assembled(kind.arrow, slots.valid, [np.ascontiguousarray(words)]))


def _big_decimal(data: Bytes, kind: SparkType, slots: _Slots) -> pa.Array:
    """The unscaled number in two's complement, big-endian, in 1 to 16 bytes."""
    start, end = _parts(data, slots)
    size = end - start
    _require(~slots.valid | ((size > 0) & (size <= 16)), "a decimal does not have 1 to 16 bytes")
    place = np.arange(16)
    # Byte i of the little-endian number is byte size-1-i of the stored one, or the sign.
    source = np.clip(end[:, None] - 1 - place, 0, len(data.u8) - 1)
    sign = np.where(data.u8[np.clip(start, 0, None)] >= 0x80, 0xFF, 0)
    out = np.where(place < size[:, None], data.u8[source], sign[:, None]).astype(np.uint8)
    out[~slots.valid] = 0
    return _checked(kind, _assembled(kind.arrow, slots.valid, [np.ascontiguousarray(out)]))


def _checked(kind: SparkType, decimals: pa.Array) -> pa.Array:
    try:
        decimals.validate(full=True)
    except pa.ArrowInvalid as error:
        raise damaged("a state row", f"{error} ({kind.name})") from error
    return decimals


def _text(data: Bytes, kind: SparkType, slots: _Slots) -> pa.Array:
    start, end = _parts(data, slots)
    return _bytes(data, kind.arrow, start, end, slots.valid)


def _interval(data: Bytes, kind: SparkType, slots: _Slots) -> pa.Array:
    """Months and days, four bytes each, and microseconds, eight."""
    start, end = _parts(data, slots)
    _require(~slots.valid | (end - start == 16), "an interval does not have 16 bytes")
    out = np.zeros(len(slots), np.dtype([("months", "<i4"), ("days", "<i4"), ("nanos", "<i8")]))
    at = np.where(slots.valid, start, 0)
    out["months"], out["days"] = data.numbers("<i4")[at], data.numbers("<i4")[at + 4]
    micros = np.where(slots.valid, data.longs(at + 8), 0)
    if (wrong := micros[(micros < -_MOST_MICROS) | (micros > _MOST_MICROS)]).size:
        raise StateFormatError(
            f"a state row has an interval of {wrong[0]} microseconds, which Arrow cannot hold in nanoseconds; "
            "read it with Spark's statestore source"
        )
    out["nanos"] = micros * 1000
    return _assembled(kind.arrow, slots.valid, [out])


def _variant(data: Bytes, kind: SparkType, slots: _Slots) -> pa.Array:
    """The size of the value, four bytes; the value; the metadata."""
    start, end = _parts(data, slots)
    _require(~slots.valid | (end - start >= 4), "a variant has no room for its size")
    size = np.asarray(data.numbers("<i4")[np.where(slots.valid, start, 0)], np.int64)
    middle = np.where(slots.valid, start + 4 + size, 0)
    _require(~slots.valid | ((size >= 0) & (middle <= end)), "a variant's value is larger than the variant")
    start, end = np.where(slots.valid, start + 4, 0), np.where(slots.valid, end, 0)
    parts = [_bytes(data, pa.binary(), start, middle, slots.valid, False)]
    parts.append(_bytes(data, pa.binary(), middle, end, slots.valid, False))
    return _struct(kind.arrow, parts, slots.valid)


def _row(data: Bytes, kind: SparkType, slots: _Slots) -> pa.Array:
    start, end = _parts(data, slots)
    columns = _fields(data, kind.fields, start, end, slots.valid)
    return _struct(kind.arrow, columns, slots.valid)


def _array(data: Bytes, kind: SparkType, slots: _Slots) -> pa.Array:
    start, end = _parts(data, slots)
    offsets, elements = _elements(data, kind.fields[0], start, end, slots.valid)
    return _assembled(kind.arrow, slots.valid, [offsets], [elements])


def _map(data: Bytes, kind: SparkType, slots: _Slots) -> pa.Array:
    start, end = _parts(data, slots)
    _require(~slots.valid | (end - start >= 8), "a map has no room for the size of its keys")
    size = np.where(slots.valid, data.longs(np.where(slots.valid, start, 0)), 0)
    _require(~slots.valid | ((size >= 0) & (size <= end - start - 8)), "a map's keys are larger than the map")
    middle = start + 8 + size
    offsets, keys = _elements(data, kind.fields[0], start + 8, middle, slots.valid)
    others, values = _elements(data, kind.fields[1], middle, end, slots.valid)
    _require(offsets == others, "a map has another number of keys than of values")
    _require(np.array([keys.null_count == 0]), "a map has a null key")
    entries = pa.StructArray.from_arrays([keys, values], fields=[kind.arrow.key_field, kind.arrow.item_field])
    return _assembled(kind.arrow, slots.valid, [offsets], [entries])


_DECODERS: dict[TypeKind, Callable[[Bytes, SparkType, _Slots], pa.Array]] = {
    TypeKind.NULL: _null,
    TypeKind.BOOLEAN: _boolean,
    TypeKind.FIXED: _fixed,
    TypeKind.DECIMAL: _decimal,
    TypeKind.BIG_DECIMAL: _big_decimal,
    TypeKind.STRING: _text,
    TypeKind.BINARY: _text,
    TypeKind.INTERVAL: _interval,
    TypeKind.VARIANT: _variant,
    TypeKind.STRUCT: _row,
    TypeKind.ARRAY: _array,
    TypeKind.MAP: _map,
}


def _elements(
    data: Bytes, field: Field, start: Ints, end: Ints, valid: Bools
) -> tuple[npt.NDArray[np.int32], pa.Array]:
    """The offset of each array's elements, and the elements of all arrays."""
    _require(~valid | (end - start >= 8), "an array has no room for its count")
    count = np.where(valid, data.longs(np.where(valid, start, 0)), 0)
    # Divides rather than multiplies, so that a damaged count can't overflow.
    fits = (count >= 0) & (count <= np.maximum(end - start - 8, 0) // field.type.width)
    _require(~valid | fits, "an array has more elements than bytes")
    header = 8 + (count + 63) // 64 * 8
    _require(~valid | (header + count * field.type.width <= end - start), "an array is too short")
    offsets = np.zeros(len(start) + 1, np.int64)
    np.cumsum(count, out=offsets[1:])
    total = int(offsets[-1])
    index = np.arange(total) - np.repeat(offsets[:-1], count)
    begin = np.repeat(start, count)
    here = (data.u8[begin + 8 + (index >> 3)] >> (index & 7)) & 1 == 0
    at = begin + np.repeat(header, count) + index * field.type.width
    elements = _decode(data, field.type, _Slots(at, begin, np.repeat(end, count), here))
    return offsets.astype(np.int32), elements


def _parts(data: Bytes, slots: _Slots) -> tuple[Ints, Ints]:
    """The begin and end of each value without fixed size; 0 for nulls."""
    word = np.where(slots.valid, data.longs(np.where(slots.valid, slots.at, 0)), 0)
    size = word & 0xFFFFFFFF
    offset = (word >> 32) & 0xFFFFFFFF
    start = np.where(slots.valid, slots.start + offset, 0)
    _require(~slots.valid | (start + size <= slots.end), "a value lies outside of its row")
    return start, start + size


def _bytes(
    data: Bytes, arrow: pa.DataType, start: Ints, end: Ints, valid: Bools, nullable: bool = True
) -> pa.Array:
    size = end - start
    offsets = np.zeros(len(start) + 1, np.int64)
    np.cumsum(size, out=offsets[1:])
    total = int(offsets[-1])
    _require(np.array([total < 1 << 31]), "a batch has more than 2 GiB of one column; read smaller batches")
    content: bytes | npt.NDArray[np.uint8]
    if total > _LARGE * len(start):
        content = b"".join(data.data[s:e] for s, e in zip(start.tolist(), end.tolist(), strict=True))
    else:
        content = data.u8[np.arange(total) + np.repeat(start - offsets[:-1], size)]
    buffers = [
        _bitmap(valid) if nullable else None,
        pa.py_buffer(offsets.astype(np.int32)),
        pa.py_buffer(content),
    ]
    array = pa.Array.from_buffers(arrow, len(start), buffers)
    if arrow == pa.string():
        try:
            array.validate(full=True)
        except pa.ArrowInvalid as error:
            raise damaged("a state row", error) from error
    return array


def _struct(arrow: pa.DataType, columns: list[pa.Array], valid: Bools) -> pa.Array:
    return pa.Array.from_buffers(arrow, len(valid), [_bitmap(valid)], children=columns)


def _assembled(
    arrow: pa.DataType,
    valid: Bools,
    buffers: list[npt.NDArray[np.generic]],
    children: list[pa.Array] | None = None,
) -> pa.Array:
    parts = [_bitmap(valid), *(pa.py_buffer(b) for b in buffers)]
    return pa.Array.from_buffers(arrow, len(valid), parts, children=children)


def _bitmap(valid: Bools) -> pa.Buffer | None:
    return None if valid.all() else pa.py_buffer(np.packbits(valid, bitorder="little"))


def _require(holds: npt.NDArray[np.bool_], reason: str) -> None:
    if not holds.all():
        raise damaged("a state row", reason)
