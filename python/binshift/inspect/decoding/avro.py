"""Decodes state rows in Avro's binary form, with the Avro schemas that Spark derives from its own.

A column is a union of null (0) and its type (1); a column of the null type has no bytes. An element of an array
or a value of a map is a union only if it is itself a struct, an array or a map.
"""

from __future__ import annotations

import struct as packed
from decimal import Context, Decimal
from typing import Any

import pyarrow as pa

from binshift.control.damage import damaged
from binshift.inspect.decoding.types import Field, SparkType, TypeKind

__all__ = ["avro_columns"]

_NESTED = (TypeKind.STRUCT, TypeKind.ARRAY, TypeKind.MAP)
#: The widest decimal in Spark.
_EXACT = Context(prec=38)


def avro_columns(rows: list[bytes], row: SparkType, written: SparkType | None = None) -> list[pa.Array]:
    """The columns of a batch of rows.

    Parameters
    ----------
    rows : list of bytes
        The rows, without version byte and schema id.
    row : SparkType
        The struct to decode to.
    written : SparkType, optional
        The struct with which the rows were written, if that is an older one. Its columns are matched by name.

    Raises
    ------
    StateFormatError
        If a row is damaged, or has a type that Spark doesn't write as Avro.
    """
    source = written or row
    try:
        records = [_Reader(r).whole(source) for r in rows]
        names = {f.name for f in source.fields}
        return [
            pa.array([r[f.name] if f.name in names else None for r in records], f.type.arrow)
            for f in row.fields
        ]
    except (
        IndexError,
        packed.error,
        UnicodeDecodeError,
        pa.ArrowException,
        OverflowError,
        ValueError,
    ) as error:
        raise damaged("a state row in Avro", error) from error


class _Reader:
    def __init__(self, data: bytes) -> None:
        self._data, self._at = data, 0

    def whole(self, row: SparkType) -> dict[str, Any]:
        record = self._record(row.fields)
        if self._at != len(self._data):
            raise ValueError(f"{len(self._data) - self._at} bytes are left over")
        return record

    def _record(self, fields: tuple[Field, ...]) -> dict[str, Any]:
        return {f.name: self._optional(f.type) for f in fields}

    def _optional(self, kind: SparkType) -> Any:
        return None if kind.kind is TypeKind.NULL or not self._branch() else self._value(kind)

    def _element(self, kind: SparkType) -> Any:
        return self._optional(kind) if kind.kind in _NESTED else self._value(kind)

    def _branch(self) -> bool:
        branch = self._long()
        if branch not in (0, 1):
            raise ValueError(f"a column is of branch {branch}")
        return branch == 1

    def _value(self, kind: SparkType) -> Any:  # noqa: PLR0911 - one for each kind
        match kind.kind:
            case TypeKind.BOOLEAN:
                return self._take(1) != b"\0"
            case TypeKind.FIXED:
                return self._number(kind)
            case TypeKind.DECIMAL | TypeKind.BIG_DECIMAL:
                return self._decimal(kind.arrow)
            case TypeKind.STRING:
                return self._take(self._long()).decode()
            case TypeKind.BINARY:
                return self._take(self._long())
            case TypeKind.STRUCT:
                return self._record(kind.fields)
            case TypeKind.ARRAY:
                return [self._element(kind.fields[0].type) for _ in self._items()]
            case TypeKind.MAP if kind.fields[0].type.kind is TypeKind.STRING:
                value = kind.fields[1].type
                return [(self._take(self._long()).decode(), self._element(value)) for _ in self._items()]
            case TypeKind.NULL:
                return None
        raise ValueError(f"a column of type {kind.name} has no form in Avro")

    def _number(self, kind: SparkType) -> Any:
        if kind.name == "float":
            return packed.unpack("<f", self._take(4))[0]
        if kind.name == "double":
            return packed.unpack("<d", self._take(8))[0]
        return self._long()

    def _decimal(self, kind: pa.Decimal128Type) -> Decimal:
        bound = 10**kind.precision
        size = next(n for n in range(1, 17) if 2 ** (8 * n - 1) >= bound)
        unscaled = int.from_bytes(self._take(size), "big", signed=True)
        return Decimal(unscaled).scaleb(-kind.scale, context=_EXACT)

    def _items(self) -> Any:
        """Something to iterate over for each item of a sequence of blocks."""
        while count := self._long():
            if count < 0:
                self._long()
            if abs(count) > len(self._data):
                raise ValueError(f"a block of {abs(count)} items is larger than its row")
            yield from range(abs(count))

    def _long(self) -> int:
        """A zigzag number of variable length."""
        value = shift = 0
        while True:
            byte = self._data[self._at]
            self._at += 1
            value |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return (value >> 1) ^ -(value & 1)
            if shift > 63:
                raise ValueError("a number has more than 64 bits")

    def _take(self, size: int) -> bytes:
        data = self._data[self._at : self._at + size]
        if size < 0 or len(data) != size:
            raise ValueError("it ends too early")
        self._at += size
        return data
