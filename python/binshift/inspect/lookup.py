"""From the columns of a key to the bytes that it is stored as, and to its bin. Flat keys only."""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from binshift.errors import ConfigurationError
from binshift.inspect.schema import Family
from binshift.inspect.types import Field, Kind

__all__ = ["bin_of_key", "encoded_key", "equal_to", "murmur3"]

_MASK = 0xFFFFFFFF
_INDEXED = ("left-keyWithIndexToValue", "right-keyWithIndexToValue")
_SEED = 42


def encoded_key(key: Mapping[str, Any], family: Family, encoding: str) -> bytes | None:
    """The stored key; none if only a scan finds it: columns are left out, or are not simple.

    Raises
    ------
    ConfigurationError
        If a value is not of its column's type.
    """
    fields = _flat(family.key.fields)
    values = _flat_values(key, family.key.fields)
    if encoding != "unsaferow" or family.encoder.name != "NoPrefix" or values is None:
        return None
    if not all(f.type.kind in _SIMPLE for f in fields) or any(
        f.type.kind is Kind.STRUCT for f in family.key.fields
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
        elif field.type.kind in (Kind.STRING, Kind.BINARY):
            offset = len(bitset) + 8 * len(fields) + len(variable)
            slots += struct.pack("<Q", offset << 32 | len(stored))
            variable += stored + bytes(-len(stored) % 8)
        else:
            slots += stored.ljust(8, b"\0")
    return bytes([0, *bitset, *slots, *variable])


def bin_of_key(
    key: Mapping[str, Any], family: Family, store: str, bins: int, is_map: bool = False
) -> int | None:
    """The bin of a key; none if columns that it depends on are left out, or are not simple.

    The same columns as in `PartitioningKey` of the Scala side: what an operator appends to a key has no part.

    Parameters
    ----------
    key : mapping
    family : Family
    store : str
        Name of the store, which tells what rows are if it has but one family.
    bins : int
        Number of bins.
    is_map : bool
        Whether the family indexes a map by time: its element is the key and the map's key.
    """
    fields, values = _partitioning(family, store, is_map), key
    if family.encoder.name == "RangeKeyScan" and is_map:
        element = key.get(family.key.fields[1].name)
        values = element if isinstance(element, Mapping) else {}
    flat = _flat_values(values, fields)
    columns = _flat(fields)
    if flat is None or not all(f.type.kind in _SIMPLE for f in columns):
        return None
    hash = _SEED
    for field, value in zip(columns, flat, strict=True):
        if value is not None:
            hash = _hashed(field, _bytes_of(field, value), hash)
    return (hash - (1 << 32) if hash >> 31 else hash) % bins


def _partitioning(family: Family, store: str, is_map: bool) -> tuple[Field, ...]:
    fields = family.key.fields
    match family.encoder.name:
        case "PrefixKeyScan":
            return fields[: family.encoder.prefix]
        case "RangeKeyScan":
            return fields[1].type.fields[:1] if is_map else fields[1:2]
        case "TimestampAsPrefix" | "TimestampAsPostfix":
            return fields[:-1]
    return fields[:-1] if store in _INDEXED or family.name in _INDEXED else fields


def equal_to(key: Mapping[str, Any], family: Family) -> pc.Expression:
    """That the columns of a key have these values, however deep they lie."""

    def conditions(path: tuple[str, ...], kind: pa.DataType, value: Any) -> Iterator[pc.Expression]:
        if isinstance(value, Mapping) and pa.types.is_struct(kind):
            for name, part in value.items():
                if kind.get_field_index(name) < 0:
                    raise ConfigurationError(
                        f"keys of {family.name} have no {name}; they have {', '.join(f.name for f in kind)}"
                    )
                yield from conditions((*path, name), kind.field(name).type, part)
        elif value is None:
            yield pc.field(*path).is_null()
        else:
            try:
                yield pc.field(*path) == pa.scalar(value, kind)
            except (pa.ArrowException, TypeError, ValueError) as error:
                raise ConfigurationError(f"{value!r} is no {kind}, as {'.'.join(path)} is ({error})") from error

    found = list(conditions(("key",), family.key.arrow, key))
    if not found:
        raise ConfigurationError(f"no column of the key of {family.name} is given; give at least one")
    out = found[0]
    for condition in found[1:]:
        out = out & condition
    return out


def murmur3(data: bytes, seed: int, is_number: bool) -> int:
    """Spark's Murmur3 of a number's bytes, little-endian, or of a string's, whose odd ones go one by one."""
    hash = seed
    whole = len(data) // 4 * 4
    for (word,) in struct.iter_unpack("<I", data[:whole]):
        hash = _mixed(hash, word)
    for byte in data[whole:]:
        hash = _mixed(hash, (byte - 256 if byte > 127 else byte) & _MASK)
    assert not is_number or whole == len(data)
    hash ^= len(data)
    hash = (hash ^ hash >> 16) * 0x85EBCA6B & _MASK
    hash = (hash ^ hash >> 13) * 0xC2B2AE35 & _MASK
    return hash ^ hash >> 16


def _mixed(hash: int, word: int) -> int:
    word = word * 0xCC9E2D51 & _MASK
    word = (word << 15 | word >> 17) & _MASK
    hash ^= word * 0x1B873593 & _MASK
    hash = (hash << 13 | hash >> 19) & _MASK
    return (hash * 5 + 0xE6546B64) & _MASK


_SIMPLE = (Kind.FIXED, Kind.BOOLEAN, Kind.DECIMAL, Kind.STRING, Kind.BINARY, Kind.NULL)


def _hashed(field: Field, stored: bytes, seed: int) -> int:
    """Numbers of fewer than four bytes are hashed as ints, and -0.0 as 0.0."""
    if field.type.kind in (Kind.STRING, Kind.BINARY):
        return murmur3(stored, seed, False)
    if field.type.name in ("float", "double") and stored == bytes(len(stored) - 1) + b"\x80":
        stored = bytes(len(stored))
    if len(stored) < 4:
        stored = int.from_bytes(stored, "little", signed=field.type.name != "boolean").to_bytes(
            4, "little", signed=True
        )
    return murmur3(stored, seed, True)


def _bytes_of(field: Field, value: Any) -> bytes:
    """A value as it lies in its slot, or in the variable part."""
    kind = field.type
    try:
        scalar = pa.scalar(value, kind.arrow)
    except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
        raise ConfigurationError(f"{value!r} is no {kind.name}, as {field.name} is ({error})") from error
    if kind.kind is Kind.STRING:
        return str(scalar.as_py()).encode()
    if kind.kind is Kind.BINARY:
        return bytes(scalar.as_py())
    if kind.kind is Kind.BOOLEAN:
        return bytes([scalar.as_py()])
    data: bytes = pa.array([scalar], kind.arrow).buffers()[1].to_pybytes()
    return data[: kind.width]


def _flat(fields: tuple[Field, ...]) -> list[Field]:
    """Structs hash like their columns."""
    out = []
    for field in fields:
        out += _flat(field.type.fields) if field.type.kind is Kind.STRUCT else [field]
    return out


def _flat_values(key: Mapping[str, Any], fields: tuple[Field, ...]) -> list[Any] | None:
    out: list[Any] = []
    for field in fields:
        if field.name not in key:
            return None
        value = key[field.name]
        if field.type.kind is Kind.STRUCT:
            if not isinstance(value, Mapping):
                return None
            inner = _flat_values(value, field.type.fields)
            if inner is None:
                return None
            out += inner
        else:
            out.append(value)
    return out
