"""Rows that are built byte by byte are decoded to what they were built from, and damaged ones to an error."""

import decimal
import json
import math
import struct

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import unsafe_rows
from binshift.errors import StateFormatError
from binshift.inspect.decoding import types, unsafe_row
from binshift.inspect.decoding.rows import RowDecoder
from binshift.inspect.decoding.schema import Encoder, Family


def ints(bits):
    return st.integers(-(1 << bits - 1), (1 << bits - 1) - 1)


def decimals(precision, scale):
    bound = 10**precision - 1
    exact = decimal.Context(prec=40)
    return st.integers(-bound, bound).map(lambda n: decimal.Decimal(n).scaleb(-scale, context=exact))


ATOMS = {
    "void": st.none(),
    "boolean": st.booleans(),
    "byte": ints(8),
    "short": ints(16),
    "integer": ints(32),
    "long": ints(64),
    "float": st.floats(width=32),
    "double": st.floats(),
    "string": st.text(),
    "binary": st.binary(max_size=40) | st.binary(min_size=300, max_size=2000),
    "date": ints(32),
    "timestamp": ints(64),
    "timestamp_ntz": ints(64),
    "interval year to month": ints(32),
    "interval day to second": ints(64),
    "time(6)": st.integers(0, 86_400 * 10**9 - 1),
    "decimal(9,3)": decimals(9, 3),
    "decimal(18,0)": decimals(18, 0),
    "decimal(19,5)": decimals(19, 5),
    "decimal(38,10)": decimals(38, 10),
    "interval": st.tuples(ints(32), ints(32), ints(50)),
    "variant": st.fixed_dictionaries({"value": st.binary(max_size=20), "metadata": st.binary(max_size=20)}),
}


def nested(inner):
    """A composite JSON type and its values, from the types of its parts."""
    array = inner.map(
        lambda t: (
            {"type": "array", "elementType": t[0], "containsNull": True},
            st.lists(st.none() | t[1], max_size=70),
        )
    )
    plain_key = st.sampled_from(["string", "integer", "long"])
    map_ = st.tuples(plain_key, inner).map(
        lambda t: (
            {"type": "map", "keyType": t[0], "valueType": t[1][0], "valueContainsNull": True},
            st.lists(st.tuples(ATOMS[t[0]], st.none() | t[1][1]), max_size=5),
        )
    )
    return array | map_ | st.lists(inner, max_size=4).map(structure)


def structure(parts):
    names = [f"c{i}" for i in range(len(parts))]
    fields = [
        {"name": n, "type": t, "nullable": True, "metadata": {}} for n, (t, _) in zip(names, parts, strict=True)
    ]
    values = st.fixed_dictionaries({n: st.none() | v for n, (_, v) in zip(names, parts, strict=True)})
    return {"type": "struct", "fields": fields}, values


TYPES = st.recursive(st.sampled_from(sorted(ATOMS)).map(lambda n: (n, ATOMS[n])), nested, max_leaves=6)


@st.composite
def rows(draw):
    """A struct and rows of it; some structs are so wide that the null bits need several words."""
    many = draw(st.booleans())
    parts = [("long", ATOMS["long"])] * 70 if many else draw(st.lists(TYPES, max_size=5))
    json_type, values = structure(parts)
    return types.parse_struct(json.dumps(json_type)), draw(st.lists(values, max_size=3))


def raw(kind, column):
    """A column's values as numbers and bytes, as Python's dates end with the year 9999."""
    if pa.types.is_struct(kind):
        parts = [raw(f.type, column.field(i)) for i, f in enumerate(kind)]
        rows = [dict(zip([f.name for f in kind], p, strict=True)) for p in zip(*parts, strict=True)]
        return [
            r if ok else None
            for r, ok in zip(rows or [{}] * len(column), column.is_valid().to_pylist(), strict=True)
        ]
    if pa.types.is_map(kind):
        keys, items = raw(kind.key_type, column.keys), raw(kind.item_type, column.items)
        return cut(column, list(zip(keys, items, strict=True)))
    if pa.types.is_list(kind):
        return cut(column, raw(kind.value_type, column.values))
    return [None if v is None else simple(kind, v) for v in countable(kind, column).to_pylist()]


def countable(kind, column):
    """The column, with times as integers."""
    if pa.types.is_date32(kind):
        return column.cast(pa.int32())
    times = (pa.types.is_timestamp, pa.types.is_duration, pa.types.is_time64)
    return column.cast(pa.int64()) if any(t(kind) for t in times) else column


def simple(kind, value):
    if kind == pa.month_day_nano_interval():
        return (value.months, value.days, value.nanoseconds // 1000)
    if pa.types.is_floating(kind):
        return struct.pack("<d", value) if not math.isnan(value) else "NaN"
    return value


def cut(column, items):
    offsets = column.offsets.to_pylist()
    valid = column.is_valid().to_pylist()
    return [items[a:b] if ok else None for a, b, ok in zip(offsets, offsets[1:], valid, strict=False)]


def comparable(kind, value):
    if value is None:
        return None
    if kind.name == "struct":
        return {f.name: comparable(f.type, value[f.name]) for f in kind.fields}
    if kind.name == "array":
        return [comparable(kind.fields[0].type, v) for v in value]
    if kind.name == "map":
        return [(k, comparable(kind.fields[1].type, v)) for k, v in value]
    if kind.name in ("float", "double"):
        return struct.pack("<d", value) if not math.isnan(value) else "NaN"
    return value


def columns(*named):
    """A struct that has only simple columns."""
    return types.parse(
        {"type": "struct", "fields": [{"name": n, "type": t, "nullable": True} for n, t in named]}
    )


NO_PREFIX = Encoder()


def family(kind, encoder=NO_PREFIX):
    return RowDecoder(Family("f", key=kind, value=kind, encoder=encoder), "unsaferow")


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(rows())
def test_every_type_is_decoded_to_what_it_was_built_from(sample):
    kind, values = sample
    encoded = [b"\0" + unsafe_rows.row(kind, v) for v in values]
    decoded = family(kind).values(encoded)
    decoded.validate(full=True)
    assert raw(kind.arrow, decoded) == [comparable(kind, v) for v in values]


def test_an_interval_that_arrow_cannot_hold_is_refused_and_not_wrapped():
    kind, most = columns(("i", "interval")), (2**63 - 1) // 1000

    def decoded(micros):
        return family(kind).values([b"\0" + unsafe_rows.row(kind, {"i": (1, -2, micros)})])

    for held in (most, -most, 0):
        assert raw(kind.arrow, decoded(held)) == [{"i": (1, -2, held)}]
    for wrong in (most + 1, -most - 1, 2**63 - 1, -(2**63)):
        with pytest.raises(StateFormatError, match=f"an interval of {wrong} microseconds"):
            decoded(wrong)


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(rows(), st.data())
def test_damaged_rows_are_refused_or_stay_within_themselves(sample, data):
    kind, values = sample
    encoded = [bytearray(b"\0" + unsafe_rows.row(kind, v)) for v in values]
    for row in encoded:
        for _ in range(data.draw(st.integers(0, 3))):
            row[data.draw(st.integers(0, len(row) - 1))] ^= data.draw(st.integers(1, 255))
        if data.draw(st.booleans()):
            del row[data.draw(st.integers(0, len(row))) :]
    try:
        decoded = family(kind).values([bytes(r) for r in encoded])
    except StateFormatError:
        return
    decoded.validate(full=True)
    assert len(decoded) == len(encoded)


ORDERED = {
    "boolean": st.booleans(), "byte": ints(8), "short": ints(16), "integer": ints(32), "long": ints(64),
    "float": st.floats(width=32), "double": st.floats(),
}  # fmt: skip
BIG = {
    "boolean": ">?",
    "byte": ">b",
    "short": ">h",
    "integer": ">i",
    "long": ">q",
    "float": ">f",
    "double": ">d",
}


def ordered_bytes(name, value):
    """The marker and the number, in the form of Spark's range encoder."""
    width = struct.calcsize(BIG[name])
    if value is None:
        return b"\x02" + bytes(width)
    data = struct.pack(BIG[name], value)
    if name in ("float", "double"):
        negative = bool(data[0] & 0x80)
        return bytes([0]) + bytes(b ^ 0xFF for b in data) if negative else bytes([1]) + data
    return bytes([0 if value < 0 else 1]) + data


@settings(max_examples=50, deadline=None)
@given(st.lists(st.sampled_from(sorted(ORDERED)), min_size=1, max_size=3), st.data())
def test_ordered_keys_are_decoded_and_were_in_order(names, data):
    parts = [(n, ORDERED[n]) for n in names] + [("string", st.text(max_size=5))]
    json_type, values = structure(parts)
    kind = types.parse_struct(json.dumps(json_type))
    listed = data.draw(st.lists(values, max_size=6))
    # The rows are ordered by the columns in reverse order.
    ordering = tuple(reversed(range(len(names))))
    binary = columns(*((f"o{i}", "binary") for i in range(len(names))))
    rest = types.struct(kind.fields[len(names) :])
    keys = []
    for value in listed:
        first = {f"o{i}": ordered_bytes(names[o], value[f"c{o}"]) for i, o in enumerate(ordering)}
        head = b"\0" + unsafe_rows.row(binary, first)
        keys.append(struct.pack("<i", len(head)) + head + b"\0" + unsafe_rows.row(rest, value))
    decoded = family(kind, Encoder("RangeKeyScan", ordering=ordering)).keys(keys)
    assert raw(kind.arrow, decoded) == [comparable(kind, v) for v in listed]


@settings(max_examples=40, deadline=None)
@given(st.lists(st.tuples(st.text(max_size=9), ints(64), ints(64)), max_size=5), st.booleans())
def test_keys_with_a_time_in_front_or_behind_are_decoded(listed, in_front):
    kind = columns(("k", "string"), ("n", "long"), ("__event_time", "long"))
    row = types.struct(kind.fields[:-1])
    keys = []
    for k, n, time in listed:
        stamp = struct.pack(">Q", (time + (1 << 63)) % (1 << 64))
        body = b"\0" + unsafe_rows.row(row, {"k": k, "n": n})
        keys.append(stamp + body if in_front else body + stamp)
    encoder = Encoder("TimestampAsPrefix" if in_front else "TimestampAsPostfix")
    decoded = family(kind, encoder).keys(keys).to_pylist()
    assert [(d["k"], d["n"], d["__event_time"]) for d in decoded] == listed


@settings(max_examples=40, deadline=None)
@given(st.lists(st.tuples(st.text(max_size=9), ints(32), ints(16)), max_size=5))
def test_keys_with_a_prefix_are_decoded(listed):
    kind = columns(("k", "string"), ("i", "integer"), ("s", "short"))
    first, rest = types.struct(kind.fields[:2]), types.struct(kind.fields[2:])
    keys = []
    for k, i, s in listed:
        head = b"\0" + unsafe_rows.row(first, {"k": k, "i": i})
        keys.append(struct.pack("<i", len(head)) + head + b"\0" + unsafe_rows.row(rest, {"s": s}))
    decoded = family(kind, Encoder("PrefixKeyScan", prefix=2)).keys(keys).to_pylist()
    assert [(d["k"], d["i"], d["s"]) for d in decoded] == listed


@settings(deadline=None)
@given(
    st.binary(max_size=60),
    st.sampled_from(["PrefixKeyScan", "RangeKeyScan", "TimestampAsPrefix", "TimestampAsPostfix"]),
)
def test_damaged_keys_are_refused_whatever_their_encoder(data, name):
    kind = columns(("a", "long"), ("b", "string"), ("__event_time", "long"))
    decoder = family(kind, Encoder(name, prefix=1, ordering=(0,)))
    try:
        decoded = decoder.keys([data])
    except StateFormatError:
        return
    decoded.validate(full=True)


def test_a_row_of_another_version_is_refused():
    kind = columns(("n", "long"))
    with pytest.raises(StateFormatError, match="another version"):
        family(kind).values([b"\1" + unsafe_rows.row(kind, {"n": 1})])


def test_an_unknown_type_is_named():
    with pytest.raises(StateFormatError, match="hypercube"):
        types.parse("hypercube")


def test_a_large_batch_is_decoded_by_columns_and_not_by_rows():
    kind = columns(("k", "string"), ("n", "long"))
    one = b"\0" + unsafe_rows.row(kind, {"k": "key", "n": 7})
    n = 20_000
    data = unsafe_row.Bytes(one * n)
    start = np.arange(n) * len(one) + 1
    decoded = unsafe_row.unsafe_columns(data, kind, start, start + len(one) - 1)
    assert decoded[0].unique().to_pylist() == ["key"]
    assert decoded[1].to_numpy().sum() == 7 * n
