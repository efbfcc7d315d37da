"""State rows in Avro, written value by value as Spark does it, are read back; damaged ones are refused."""

import decimal
import struct

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from binshift.errors import StateFormatError
from binshift.inspect.decoding import types
from binshift.inspect.decoding.rows import RowDecoder
from binshift.inspect.decoding.schema import Encoder, Family


def long(n):
    """A long in Avro: zigzag, with seven bits per byte."""
    n = (n << 1) ^ (n >> 63)
    out = b""
    while n > 0x7F:
        out += bytes([n & 0x7F | 0x80])
        n >>= 7
    return out + bytes([n])


def text(data):
    return long(len(data)) + data


def optional(encode):
    """A nullable type in Avro: a union of null and the type."""
    return lambda v: b"\0" if v is None else b"\2" + encode(v)


def blocks(items):
    return (long(len(items)) + b"".join(items) if items else b"") + b"\0"


def fixed(n):
    """A decimal(12, 3) in Avro: six bytes."""
    return int(n.scaleb(3)).to_bytes(6, "big", signed=True)


COLUMNS = {
    "l": ("long", long, st.integers(-(1 << 63), (1 << 63) - 1)),
    "i": ("integer", long, st.integers(-(1 << 31), (1 << 31) - 1)),
    "b": ("boolean", lambda v: bytes([v]), st.booleans()),
    "d": ("double", lambda v: struct.pack("<d", v), st.floats(allow_nan=False)),
    "f": ("float", lambda v: struct.pack("<f", v), st.floats(width=32, allow_nan=False)),
    "s": ("string", lambda v: text(v.encode()), st.text()),
    "x": ("binary", text, st.binary()),
    "n": (
        "decimal(12,3)",
        fixed,
        st.integers(-(10**12) + 1, 10**12 - 1).map(lambda n: decimal.Decimal(n).scaleb(-3)),
    ),
    "a": (
        {"type": "array", "elementType": "long", "containsNull": True},
        lambda v: blocks([long(n) for n in v]),
        st.lists(st.integers(-5, 5)),
    ),
    "m": (
        {"type": "map", "keyType": "string", "valueType": "integer", "valueContainsNull": True},
        lambda v: blocks([text(k.encode()) + long(n) for k, n in v]),
        st.lists(st.tuples(st.text(max_size=3), st.integers(-5, 5)), max_size=3),
    ),
    "t": (
        {"type": "struct", "fields": [{"name": "k", "type": "string", "nullable": True}]},
        lambda v: optional(lambda s: text(s.encode()))(v["k"]),
        st.fixed_dictionaries({"k": st.none() | st.text()}),
    ),
}
SCHEMA = types.parse(
    {"type": "struct", "fields": [{"name": n, "type": c[0], "nullable": True} for n, c in COLUMNS.items()]}
)
ROWS = st.lists(st.fixed_dictionaries({n: st.none() | c[2] for n, c in COLUMNS.items()}), max_size=4)


def encoded(value, id=0):
    row = b"".join(optional(encode)(value[n]) for n, (_, encode, _) in COLUMNS.items())
    return b"\0" + struct.pack("<h", id) + row


def decoder(value, values):
    return RowDecoder(Family("f", key=SCHEMA, value=value, encoder=Encoder(), values=values), "avro")


@settings(max_examples=60, deadline=None)
@given(ROWS)
def test_rows_are_decoded_to_what_they_were_written_from(rows):
    assert decoder(SCHEMA, ((0, SCHEMA),)).values([encoded(r) for r in rows]).to_pylist() == rows


@settings(max_examples=30, deadline=None)
@given(ROWS)
def test_rows_of_older_schemas_have_no_value_in_newer_columns(rows):
    new = types.Field("new", type=types.parse("long"))
    newer = types.struct([new, *SCHEMA.fields])
    both = decoder(newer, ((3, SCHEMA), (4, newer)))
    data = [
        d
        for r in rows
        for d in (encoded(r, 3), b"\0" + struct.pack("<h", 4) + b"\2" + long(7) + encoded(r)[3:])
    ]
    assert both.values(data).to_pylist() == [{"new": n, **r} for r in rows for n in (None, 7)]
    with pytest.raises(StateFormatError, match="schema 9"):
        both.values([encoded(dict.fromkeys(COLUMNS), 9)])


@settings(max_examples=100, deadline=None)
@given(ROWS, st.data())
def test_damaged_rows_are_refused_or_decoded_whole(rows, data):
    damaged = [bytearray(encoded(r)) for r in rows]
    for row in damaged:
        row[data.draw(st.integers(0, len(row) - 1))] ^= data.draw(st.integers(1, 255))
        del row[data.draw(st.integers(0, len(row))) :]
    try:
        decoded = decoder(SCHEMA, ((0, SCHEMA),)).values([bytes(r) for r in damaged])
    except StateFormatError:
        return
    decoded.validate(full=True)
    assert len(decoded) == len(rows)
