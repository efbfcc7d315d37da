"""Parses Spark's SQL types from the JSON of state schemas, and maps them to Arrow types."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from dataclasses import KW_ONLY, dataclass, replace
from enum import Enum
from typing import Any

import pyarrow as pa

from binshift.control.damage import understood
from binshift.display import brief
from binshift.errors import StateFormatError

__all__ = ["Field", "SparkType", "TypeKind", "parse", "parse_struct"]


class TypeKind(Enum):
    """How a value is stored in an UnsafeRow."""

    NULL = "null"
    FIXED = "fixed"  # in its slot
    BOOLEAN = "boolean"
    DECIMAL = "decimal"  # unscaled, in its slot
    BIG_DECIMAL = "big decimal"  # unscaled, as bytes
    STRING = "string"
    BINARY = "binary"
    INTERVAL = "interval"
    VARIANT = "variant"
    STRUCT = "struct"
    ARRAY = "array"
    MAP = "map"


@dataclass(frozen=True, slots=True, repr=False)
class Field:
    """A named part of a struct, an array's element, or a map's key or value.

    Parameters
    ----------
    name : str
    type : SparkType
    nullable : bool
        Whether it may be null.
    """

    name: str
    _: KW_ONLY
    type: SparkType
    nullable: bool = True

    def __repr__(self) -> str:
        return brief(self, f"{self.name}, {self.type.name}")


@dataclass(frozen=True, slots=True, repr=False)
class SparkType:
    """A type.

    Parameters
    ----------
    name : str
        The name in Spark's JSON; "struct", "array" or "map" for those.
    kind : TypeKind
    arrow : pyarrow.DataType
    width : int
        Bytes of a slot in an array. In a row, every slot has eight.
    fields : tuple of Field
        A struct's fields, an array's element, a map's key and value.
    """

    name: str
    _: KW_ONLY
    kind: TypeKind
    arrow: pa.DataType
    width: int = 8
    fields: tuple[Field, ...] = ()

    def __repr__(self) -> str:
        inner = ", ".join(f"{f.name}: {f.type.name}" for f in self.fields)
        return brief(self, f"{self.name}<{inner}>" if inner else self.name)


_VARIANT = pa.struct([pa.field("value", pa.binary(), False), pa.field("metadata", pa.binary(), False)])

_SIMPLE = {
    t.name: t
    for t in (
        SparkType("void", kind=TypeKind.NULL, arrow=pa.null()),
        SparkType("boolean", kind=TypeKind.BOOLEAN, arrow=pa.bool_(), width=1),
        SparkType("byte", kind=TypeKind.FIXED, arrow=pa.int8(), width=1),
        SparkType("short", kind=TypeKind.FIXED, arrow=pa.int16(), width=2),
        SparkType("integer", kind=TypeKind.FIXED, arrow=pa.int32(), width=4),
        SparkType("long", kind=TypeKind.FIXED, arrow=pa.int64(), width=8),
        SparkType("float", kind=TypeKind.FIXED, arrow=pa.float32(), width=4),
        SparkType("double", kind=TypeKind.FIXED, arrow=pa.float64(), width=8),
        SparkType("date", kind=TypeKind.FIXED, arrow=pa.date32(), width=4),
        SparkType("timestamp", kind=TypeKind.FIXED, arrow=pa.timestamp("us", "UTC"), width=8),
        SparkType("timestamp_ntz", kind=TypeKind.FIXED, arrow=pa.timestamp("us"), width=8),
        SparkType("string", kind=TypeKind.STRING, arrow=pa.string()),
        SparkType("binary", kind=TypeKind.BINARY, arrow=pa.binary()),
        SparkType("interval", kind=TypeKind.INTERVAL, arrow=pa.month_day_nano_interval()),
        SparkType("variant", kind=TypeKind.VARIANT, arrow=_VARIANT),
    )
}

_DECIMAL = re.compile(r"decimal\(\s*(\d+)\s*,\s*(-?\d+)\s*\)")
_TEXT = re.compile(r"(string collate .*|(var)?char\(\d+\))", re.IGNORECASE)
_TIME = re.compile(r"time(\(\d\))?")
#: Represented as a number of months, because files can't store Arrow's interval of months.
_YEAR_MONTH = re.compile(r"interval (year|month|year to month)")
_DAY_TIME = re.compile(r"interval (day|hour|minute|second)( to (hour|minute|second))?")


def parse(json_type: Any) -> SparkType:
    """The type for a value of Spark's JSON.

    Raises
    ------
    StateFormatError
        If the type is unknown.
    """
    if isinstance(json_type, str):
        return _atomic(json_type)
    kind = json_type.get("type") if isinstance(json_type, dict) else None
    try:
        if kind == "struct":
            return struct(_field(f["name"], f["type"], f["nullable"]) for f in json_type["fields"])
        if kind == "array":
            element = _field("element", json_type["elementType"], json_type["containsNull"])
            return SparkType(
                "array", kind=TypeKind.ARRAY, arrow=pa.list_(_arrow_field(element)), fields=(element,)
            )
        if kind == "map":
            key = _field("key", json_type["keyType"], False)
            value = _field("value", json_type["valueType"], json_type["valueContainsNull"])
            arrow = pa.map_(_arrow_field(key).with_nullable(False), _arrow_field(value))
            return SparkType("map", kind=TypeKind.MAP, arrow=arrow, fields=(key, value))
        if kind == "udt":
            return parse(json_type["sqlType"])
    except KeyError as error:
        raise StateFormatError(f"a {kind} of a state schema lacks {error}; restore the schema file") from error
    raise _unknown(json_type)


def parse_struct(text: str) -> SparkType:
    """The struct for JSON text.

    Raises
    ------
    StateFormatError
        If the text is damaged or names an unknown type.
    """
    with understood("a state schema"):
        found = parse(json.loads(text))
    if found.kind is not TypeKind.STRUCT:
        raise StateFormatError(f"a state schema is a {found.name} and no struct; restore the schema file")
    return found


def struct(fields: Iterable[Field]) -> SparkType:
    """The struct with these fields. If names repeat, as in an aggregation, the later ones get a number."""
    listed: dict[str, Field] = {}
    for field in fields:
        name, n = field.name, 1
        while name in listed:
            n += 1
            name = f"{field.name}_{n}"
        listed[name] = replace(field, name=name)
    arrow = pa.struct([_arrow_field(f) for f in listed.values()])
    return SparkType("struct", kind=TypeKind.STRUCT, arrow=arrow, fields=tuple(listed.values()))


def _field(name: str, json_type: Any, nullable: bool) -> Field:
    return Field(name, type=parse(json_type), nullable=bool(nullable))


def _arrow_field(field: Field) -> pa.Field:
    # All columns are nullable here: whether Spark's planner took a column for nullable says little about the
    # data.
    return pa.field(field.name, field.type.arrow)


def _atomic(name: str) -> SparkType:
    if found := _SIMPLE.get(name):
        return found
    if match := _DECIMAL.fullmatch(name):
        precision, scale = int(match[1]), int(match[2])
        kind = TypeKind.DECIMAL if precision <= 18 else TypeKind.BIG_DECIMAL
        return SparkType(name, kind=kind, arrow=pa.decimal128(precision, scale))
    if _TEXT.fullmatch(name):
        return SparkType(name, kind=TypeKind.STRING, arrow=pa.string())
    if _TIME.fullmatch(name):
        return SparkType(name, kind=TypeKind.FIXED, arrow=pa.time64("ns"))
    if _YEAR_MONTH.fullmatch(name):
        return SparkType(name, kind=TypeKind.FIXED, arrow=pa.int32(), width=4)
    if _DAY_TIME.fullmatch(name):
        return SparkType(name, kind=TypeKind.FIXED, arrow=pa.duration("us"), width=8)
    raise _unknown(name)


def _unknown(json_type: Any) -> StateFormatError:
    return StateFormatError(
        f"the state has a column of the unknown type {json_type!r}; read it with Spark's statestore source"
    )
