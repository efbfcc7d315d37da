"""Rows of keys are read from a linked version, in pieces, and compared with its content."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from local.settings import NEEDS_CHECKSUMS

PIECE = 4 << 20
SIZES = st.one_of(st.integers(0, 40), st.integers(100_000, 900_000), st.just(PIECE + 1))
SINGLE = st.builds("k{}".format, st.integers(0, 30))
SEVERAL = st.builds("m{}/{}".format, st.integers(0, 5), st.integers(0, 9))
ASKED = st.one_of(
    SINGLE, st.builds("m{}/".format, st.integers(0, 6)), st.builds("n{}#".format, st.integers(0, 6))
)
#: The rows of a key, numbered from zero.
SERIES = st.dictionaries(
    st.builds("n{}#".format, st.integers(0, 5)), st.lists(SIZES, min_size=1, max_size=6), max_size=4
)


def answered(spark, directory, stored, asked, *, checked=False, shift=0):
    """The pieces of an answer: for each key, its rows by the rest of their keys, or `None`."""
    shipping = spark._jvm.org.apache.spark.sql.execution.streaming.state.binshift.shipping
    rows = " ".join(f"{key}={size}" for key, size in stored.items())
    told = shipping.TestLinkedRows.pieces(str(directory), rows, " ".join(asked), checked, shift)
    return [[parsed(answer) for answer in piece.split(" ")] for piece in told.split("|")]


def parsed(answer):
    key, rows = answer.split("=")
    if rows == "-":
        return key, None
    return key, {rest: int(size) for rest, size in (row.split(":") for row in rows.split(",") if row)}


def size_of(rows, key=""):
    """A number takes eight bytes."""
    return sum((8 if key.endswith("#") else len(rest)) + size + 8 for rest, size in (rows or {}).items())


def is_one_of(key, asked):
    return asked.endswith(("/", "#")) and key.startswith(asked)


@given(
    stored=st.dictionaries(st.one_of(SINGLE, SEVERAL), SIZES, max_size=40),
    series=SERIES,
    asked=st.lists(ASKED, min_size=1, max_size=60, unique=True),
)
@settings(max_examples=40, deadline=None)
def test_each_key_has_its_rows_unless_they_are_too_many_and_no_piece_is_large(
    spark, tmp_path_factory, stored, series, asked
):
    stored = stored | {f"{key}{i}": size for key, sizes in series.items() for i, size in enumerate(sizes)}
    pieces = answered(spark, tmp_path_factory.mktemp("linked"), stored, asked)
    found = [answer for piece in pieces for answer in piece]
    assert [key for key, _ in found] == asked
    for key, rows in found:
        there = {k.removeprefix(key): n for k, n in stored.items() if k == key or is_one_of(k, key)}
        assert rows == (there if size_of(there, key) <= PIECE else None)
    assert all(sum(size_of(rows, key) for key, rows in piece) <= PIECE for piece in pieces)


@pytest.mark.parametrize("shift", [0, 1])
@pytest.mark.parametrize("checked", [False, pytest.param(True, marks=NEEDS_CHECKSUMS)])
def test_rows_whose_checksums_would_be_wrong_are_not_given(spark, tmp_path, checked, shift):
    stored = {"k1": 3, "m1/1": 4}
    (piece,) = answered(spark, tmp_path, stored, ["k1", "m1/"], checked=checked, shift=shift)
    given_rows = [("k1", {"": 3}), ("m1/", {"1": 4})]
    assert piece == ([("k1", None), ("m1/", None)] if checked and shift else given_rows)
