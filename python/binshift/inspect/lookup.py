"""Computes the stored bytes and the bin of a key from its columns. Only for flat keys."""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from binshift.errors import ConfigurationError, impossible
from binshift.inspect.decoding.binning import bins_of, flat, partitioning
from binshift.inspect.decoding.schema import Family, Store
from binshift.inspect.decoding.types import Field, TypeKind

__all__ = ["bin_of_key", "encoded_key", "equal_to", "impossible_key"]


def encoded_key(key: Mapping[str, Any], family: Family, encoding: str) -> bytes | None:
    """The stored key; None if only a scan can find it, because columns are missing, or are not simple.

    Raises
    ------
    ConfigurationError
        If a value is not of its column's type.
    """
    fields = flat(family.key.fields)
    values = _flat_values(key, family.key.fields)
    if encoding != "unsaferow" or family.encoder.name != "NoPrefix" or values is None:
        return None
    if not all(f.type.kind in _SIMPLE for f in fields) or any(
        f.type.kind is TypeKind.STRUCT for f in family.key.fields
    ):
        return None
    bitset = bytearray((len(fields) + 63) // 64 * 8)
    slots = bytearray()
    variable = bytearray()
    for i, (field, value) in enumerate(zip(fields, values, strict=True)):
        stored = None if value is None else _bytes_of(field, value)
        if stored is None:
            bitset[i >> 3] |= 1 << (i & 7)
            slots += bytes(8)
        elif field.type.kind in (TypeKind.STRING, TypeKind.BINARY):
            offset = len(bitset) + 8 * len(fields) + len(variable)
            slots += struct.pack("<Q", offset << 32 | len(stored))
            variable += stored + bytes(-len(stored) % 8)
        else:
            slots += stored.ljust(8, b"\0")
    return bytes([0, *bitset, *slots, *variable])


def bin_of_key(key: Mapping[str, Any], store: Store, family: Family, bins: int) -> int | None:
    """The bin of a key; None if columns that it depends on are missing, or are not simple.

    Parameters
    ----------
    key : mapping
    store : Store
        Store of the key. Its other families tell what an index refers to.
    family : Family
    bins : int
        Number of bins.

    Raises
    ------
    ConfigurationError
        If a value is not of its column's type.
    """
    is_element, fields = partitioning(store, family)
    if is_element:
        element = key.get(family.key.fields[1].name)
        key = element if isinstance(element, Mapping) else {}
    values = _flat_values(key, fields)
    if values is None:
        return None
    columns = [(f, pa.array([_scalar(f, v)], f.type.arrow)) for f, v in zip(flat(fields), values, strict=True)]
    found = bins_of(columns, 1, bins)
    return None if found is None else int(found[0])


def equal_to(key: Mapping[str, Any], family: Family) -> pc.Expression:
    """An expression that compares the columns of a key with values, at any depth."""

    def conditions(path: tuple[str, ...], kind: pa.DataType, value: Any) -> Iterator[pc.Expression]:
        if isinstance(value, Mapping) and pa.types.is_struct(kind):
            for name, part in value.items():
                if kind.get_field_index(name) < 0:
                    wanted = f"some of {', '.join(f.name for f in kind)}"
                    what = f"column {name} of a key of {family.name}"
                    raise impossible(ConfigurationError, "key", name, wanted, what=what)
                yield from conditions((*path, name), kind.field(name).type, part)
        elif value is None:
            yield pc.field(*path).is_null()
        else:
            try:
                yield pc.field(*path) == pa.scalar(value, kind)
            except (pa.ArrowException, TypeError, ValueError) as error:
                raise impossible_key(".".join(path[1:]), value, f"a value of type {kind}") from error

    found = list(conditions(("key",), family.key.arrow, key))
    if not found:
        what = f"a key of {family.name} without any column"
        raise impossible(ConfigurationError, "key", {}, "at least one", what=what)
    out = found[0]
    for condition in found[1:]:
        out = out & condition
    return out


def impossible_key(column: str, value: Any, wanted: str) -> ConfigurationError:
    """The error for a key with an impossible value in a column. The column's name is shown literally."""
    what = f"the value {value!r} of column {column} of the key"
    return impossible(ConfigurationError, column, value, wanted, what=what)


_SIMPLE = (TypeKind.FIXED, TypeKind.BOOLEAN, TypeKind.DECIMAL, TypeKind.STRING, TypeKind.BINARY, TypeKind.NULL)


def _scalar(field: Field, value: Any) -> pa.Scalar:
    try:
        return pa.scalar(value, field.type.arrow)
    except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
        wanted = f"a value of type {field.type.name}"
        raise impossible_key(field.name, value, wanted) from error


def _bytes_of(field: Field, value: Any) -> bytes:
    """The bytes of a value in its slot, or in the variable part."""
    kind, scalar = field.type, _scalar(field, value)
    if kind.kind is TypeKind.STRING:
        return str(scalar.as_py()).encode()
    if kind.kind is TypeKind.BINARY:
        return bytes(scalar.as_py())
    if kind.kind is TypeKind.BOOLEAN:
        return bytes([scalar.as_py()])
    data: bytes = pa.array([scalar], kind.arrow).buffers()[1].to_pybytes()
    return data[: kind.width]


def _flat_values(key: Mapping[str, Any], fields: tuple[Field, ...]) -> list[Any] | None:
    out: list[Any] = []
    for field in fields:
        if field.name not in key:
            return None
        value = key[field.name]
        if field.type.kind is TypeKind.STRUCT:
            if not isinstance(value, Mapping):
                return None
            inner = _flat_values(value, field.type.fields)
            if inner is None:
                return None
            out += inner
        else:
            out.append(value)
    return out
