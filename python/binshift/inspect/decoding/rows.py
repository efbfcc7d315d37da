"""Decodes stored keys and values of a family to Arrow columns, for all encoders and encodings.

```
 NoPrefix             | row |
 PrefixKeyScan        | size of the first part | row of the first columns | row of the others |
 RangeKeyScan         | size of the first part | row of ordered columns | row of the others |
 TimestampAsPrefix    | time | row of the columns but the last |
 TimestampAsPostfix   | row of the columns but the last | time |
```

Sizes are four bytes, little-endian. A time, which is the last column, is eight bytes, big-endian, with its
sign bit flipped. An ordered column is a marker (0 negative, 1 positive, 2 null) and the number, big-endian; of
a negative float, all bits are flipped. Rows begin with a version byte, which is 0. In Avro, it is followed by
the id of the schema, two bytes, unless the row is a first part.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from binshift.control.damage import damaged
from binshift.inspect.decoding import avro, unsafe_row
from binshift.inspect.decoding.schema import Family
from binshift.inspect.decoding.types import Field, SparkType, TypeKind, parse, struct

__all__ = ["RowDecoder"]

Ints = npt.NDArray[np.int64]

_VERSION = 0
_BINARY = parse("binary")


@dataclass(frozen=True, slots=True)
class RowDecoder:
    """Decodes the rows of one family.

    Parameters
    ----------
    family : Family
    encoding : str
        "unsaferow" or "avro".
    """

    family: Family
    encoding: str

    def keys(self, keys: list[bytes]) -> pa.StructArray:
        """Decodes keys, without their family's number and their bin.

        Raises
        ------
        StateFormatError
            If a key is damaged.
        """
        key, encoder = self.family.key, self.family.encoder
        data, start, end = _joined(keys)
        match encoder.name:
            case "PrefixKeyScan":
                middle = _middle(data, start, end)
                columns = self._rows(data, start + 4, middle, key.fields[: encoder.prefix], is_first=True)
                columns += self._rows(data, middle, end, key.fields[encoder.prefix :])
            case "RangeKeyScan":
                columns = self._range_keys(data, start, end)
            case "TimestampAsPrefix":
                _require(end - start >= 8, "a key has no room for its time")
                columns = self._rows(data, start + 8, end, key.fields[:-1])
                columns.append(_times(data, start))
            case "TimestampAsPostfix":
                _require(end - start >= 8, "a key has no room for its time")
                columns = self._rows(data, start, end - 8, key.fields[:-1])
                columns.append(_times(data, end - 8))
            case _:
                columns = self._rows(data, start, end, key.fields)
        return _struct(key, columns, len(keys))

    def values(self, values: list[bytes]) -> pa.StructArray:
        """Decodes values, one row each.

        Raises
        ------
        StateFormatError
            If a value is damaged.
        """
        value = self.family.value
        data, start, end = _joined(values)
        columns = self._rows(data, start, end, value.fields, versions=dict(self.family.values))
        return _struct(value, columns, len(values))

    def _range_keys(self, data: unsafe_row.Bytes, start: Ints, end: Ints) -> list[pa.Array]:
        fields, ordering = self.family.key.fields, self.family.encoder.ordering
        others = [i for i in range(len(fields)) if i not in ordering]
        middle = _middle(data, start, end)
        ordered = self._ordered(data, start + 4, middle, [fields[i] for i in ordering])
        rest = self._rows(data, middle, end, tuple(fields[i] for i in others)) if others else []
        by_index = dict(zip([*ordering, *others], ordered + rest, strict=True))
        return [by_index[i] for i in range(len(fields))]

    def _ordered(self, data: unsafe_row.Bytes, start: Ints, end: Ints, fields: list[Field]) -> list[pa.Array]:
        if self.encoding == "avro":
            named = [
                Field(f"{i}_{part}", type=_BINARY) for i in range(len(fields)) for part in ("marker", "value")
            ]
            parts = self._rows(data, start, end, tuple(named), is_first=True)
            pairs = [
                pa.array(
                    [(m.as_py() or b"") + (v.as_py() or b"") for m, v in zip(a, b, strict=True)], pa.binary()
                )
                for a, b in zip(parts[0::2], parts[1::2], strict=True)
            ]
        else:
            pairs = self._rows(
                data, start, end, tuple(Field(f.name, type=_BINARY) for f in fields), is_first=True
            )
        return [_number(f.type, column) for f, column in zip(fields, pairs, strict=True)]

    def _rows(
        self,
        data: unsafe_row.Bytes,
        start: Ints,
        end: Ints,
        fields: tuple[Field, ...],
        is_first: bool = False,
        versions: dict[int, SparkType] | None = None,
    ) -> list[pa.Array]:
        row = struct(fields)
        _require(end > start, "a row has no bytes")
        _require(data.u8[start] == _VERSION, "a row is of another version than 0")
        if self.encoding != "avro":
            return unsafe_row.unsafe_columns(data, row, start + 1, end)
        bounds = list(zip(start.tolist(), end.tolist(), strict=True))
        if is_first:
            return avro.avro_columns([data.data[s + 1 : e] for s, e in bounds], row)
        _require(end - start >= 3, "a row has no room for the id of its schema")
        ids = np.asarray(data.numbers("<i2")[start + 1])
        rows = [data.data[s + 3 : e] for s, e in bounds]
        return _by_schema(rows, ids, row, versions or {})


def _by_schema(
    rows: list[bytes], ids: npt.NDArray[np.generic], row: SparkType, versions: dict[int, SparkType]
) -> list[pa.Array]:
    """Decodes rows that may have been written with several schemas."""
    distinct = np.unique(ids)
    parts = []
    order = []
    for id in distinct.tolist():
        if versions and id not in versions:
            raise damaged("a state row", f"it is of schema {id}, and the checkpoint has {sorted(versions)}")
        index = np.flatnonzero(ids == id)
        parts.append(avro.avro_columns([rows[i] for i in index.tolist()], row, versions.get(id)))
        order.append(index)
    if len(parts) == 1:
        return parts[0]
    if not parts:
        return avro.avro_columns([], row)
    back = pa.array(np.argsort(np.concatenate(order)))
    return [pa.concat_arrays(column).take(back) for column in zip(*parts, strict=True)]


def _joined(rows: list[bytes]) -> tuple[unsafe_row.Bytes, Ints, Ints]:
    end = np.cumsum([len(r) for r in rows], dtype=np.int64)
    start = np.concatenate([np.zeros(1, np.int64), end])[: len(rows)]
    return unsafe_row.Bytes(b"".join(rows)), start, end


def _middle(data: unsafe_row.Bytes, start: Ints, end: Ints) -> Ints:
    """The offset at which the second part of a key begins."""
    _require(end - start >= 4, "a key has no room for the size of its first part")
    size = np.asarray(data.numbers("<i4")[start], np.int64)
    _require((size > 0) & (start + 4 + size <= end), "the first part of a key is larger than the key")
    return start + 4 + size


def _times(data: unsafe_row.Bytes, at: Ints) -> pa.Array:
    times = np.asarray(data.numbers(">u8")[at]).astype(np.uint64) ^ np.uint64(1 << 63)
    return pa.array(times.view(np.int64))


def _number(kind: SparkType, column: pa.Array) -> pa.Array:
    """An ordered column: the marker and the number."""
    _require(np.array([column.null_count == 0]), "an ordered column has no marker")
    offsets = np.frombuffer(column.buffers()[1], np.int32, len(column) + 1).astype(np.int64)
    content = column.buffers()[2]
    data = unsafe_row.Bytes(content.to_pybytes() if content is not None else b"")
    at = offsets[:-1]
    _require(np.diff(offsets) == kind.width + 1, f"an ordered column does not have {kind.width + 1} bytes")
    marker = data.u8[at]
    _require(marker <= 2, "an ordered column has an unknown marker")
    is_null = marker == 2
    if kind.kind is TypeKind.BOOLEAN:
        return pa.array(data.u8[at + 1] != 0, pa.bool_(), mask=is_null)
    bits = np.asarray(data.numbers(f">u{kind.width}")[at + 1]).astype(f"<u{kind.width}")
    if pa.types.is_floating(kind.arrow):
        bits = np.where(marker == 0, ~bits, bits)
    return pa.array(bits.view(kind.arrow.to_pandas_dtype()), kind.arrow, mask=is_null)


def _struct(kind: SparkType, columns: list[pa.Array], n: int) -> pa.StructArray:
    return pa.Array.from_buffers(kind.arrow, n, [None], children=columns)


def _require(holds: npt.NDArray[np.bool_], reason: str) -> None:
    if not holds.all():
        raise damaged("a state row", reason)
