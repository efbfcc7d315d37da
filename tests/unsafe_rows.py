"""Writes bytes in the layout of Spark's UnsafeRow, one value at a time, to compare decoders with."""

from __future__ import annotations

import struct
from decimal import Context
from typing import Any

from binshift.inspect.decoding.types import Field, SparkType

FIXED = {
    "boolean": "<?", "byte": "<b", "short": "<h", "integer": "<i", "long": "<q", "float": "<f", "double": "<d",
    "date": "<i", "timestamp": "<q", "timestamp_ntz": "<q", "time(6)": "<q",
    "interval year to month": "<i", "interval day to second": "<q",
}  # fmt: skip
# Python's own context would round to 28 digits; Spark's decimals have up to 38.
EXACT = Context(prec=38)


def row(kind: SparkType, value: dict[str, Any]) -> bytes:
    """The row of a struct."""
    return container(kind.fields, [value[f.name] for f in kind.fields], 8, 0)


def container(
    fields: tuple[Field, ...] | list[Field], values: list[Any], width: int | None, header: int
) -> bytes:
    """Null bits, slots and the variable part, after a header whose bytes count for offsets."""
    bits = bytearray((len(values) + 63) // 64 * 8)
    slots, variable = bytearray(), bytearray()
    widths = [width or 8 for _ in fields]
    slot_bytes = (sum(widths) + 7) // 8 * 8
    for i, (field, value) in enumerate(zip(fields, values, strict=True)):
        if value is None:
            bits[i // 8] |= 1 << i % 8
            slots += bytes(widths[i])
            continue
        if field.type.name in FIXED:
            slots += struct.pack(FIXED[field.type.name], value).ljust(widths[i], b"\0")
        elif field.type.name.startswith("decimal") and field.type.arrow.precision <= 18:
            slots += struct.pack("<q", unscaled(field, value))
        else:
            data = stored(field, value)
            offset = header + len(bits) + slot_bytes + len(variable)
            slots += struct.pack("<II", len(data), offset)
            variable += data.ljust((len(data) + 7) // 8 * 8, b"\0")
    return bytes(bits) + bytes(slots).ljust(slot_bytes, b"\0") + bytes(variable)


def unscaled(field: Field, value: Any) -> int:
    return int(value.scaleb(field.type.arrow.scale, context=EXACT))


def stored(field: Field, value: Any) -> bytes:  # noqa: PLR0911 - one for each kind
    kind = field.type
    if kind.name == "string":
        return value.encode()
    if kind.name == "binary":
        return value
    if kind.name.startswith("decimal"):
        number = unscaled(field, value)
        return number.to_bytes((number + (number < 0)).bit_length() // 8 + 1, "big", signed=True)
    if kind.name == "interval":
        months, days, micros = value
        return struct.pack("<iiq", months, days, micros)
    if kind.name == "variant":
        return struct.pack("<i", len(value["value"])) + value["value"] + value["metadata"]
    if kind.name == "struct":
        return row(kind, value)
    if kind.name == "array":
        return array(kind.fields[0], value)
    keys = array(kind.fields[0], [k for k, _ in value])
    return struct.pack("<q", len(keys)) + keys + array(kind.fields[1], [v for _, v in value])


def array(element: Field, values: list[Any]) -> bytes:
    count = struct.pack("<q", len(values))
    return count + container([element] * len(values), values, element.type.width, 8)
