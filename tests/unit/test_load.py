"""Loads of bins and skew of partitions are computed from tables of statistics that are written by hand."""

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from binshift import PlanError, RoutingTable
from binshift.planning.load import bin_bytes, bin_loads, measured_loads, skew_of
from binshift.stats import BIN_STATS


def stats(*rows):
    """A table of statistics from (operator, bin, bytes, reads, writes)."""
    names = ("operator", "bin", "bytes", "reads", "writes")
    fixed = {"name": "stateStoreSave", "partition": 0, "executor": "1", "keys": 1}
    return pa.Table.from_pylist(
        [{**fixed, **dict(zip(names, row, strict=True))} for row in rows], schema=BIN_STATS
    )


TWO_OPERATORS = stats((0, 0, 100, 30, 10), (0, 1, 100, 10, 0), (1, 0, 0, 20, 30), (1, 3, 200, 0, 0))


def test_rows_are_reads_and_writes_of_all_operators():
    assert bin_loads(TWO_OPERATORS, 4, "rows") == (0.9, 0.1, 0, 0)


def test_bytes_are_those_of_all_operators():
    assert bin_loads(TWO_OPERATORS, 4, "bytes") == (0.25, 0.25, 0, 0.5)
    assert bin_bytes(TWO_OPERATORS, 4) == (100, 100, 0, 200)


def test_both_weighs_rows_and_bytes_alike():
    assert bin_loads(TWO_OPERATORS, 4, "both") == pytest.approx((0.575, 0.175, 0, 0.25))


def test_by_bins_every_bin_counts_the_same():
    assert bin_loads(TWO_OPERATORS, 4, "bins") == (0.25,) * 4


def test_an_epoch_without_rows_has_no_load_by_rows_and_both_is_then_bytes():
    idle = stats((0, 0, 100, 0, 0), (0, 1, 300, 0, 0))
    assert bin_loads(idle, 2, "rows") == (0, 0)
    assert bin_loads(idle, 2, "both") == (0.25, 0.75)
    assert skew_of(RoutingTable(2, (0, 1)), idle, "rows").ratio == 1


def test_skew_is_the_busiest_partition_over_the_mean():
    skew = skew_of(RoutingTable(2, (0, 0, 1, 1)), TWO_OPERATORS, "rows")
    assert skew.loads == (1, 0)
    assert (skew.ratio, skew.busiest) == (2, 0)
    assert "the busiest of 2 partitions, 0, has 2.00 times the mean" in str(skew)
    assert "100.0%" in skew._repr_html_()


@given(
    st.lists(
        st.tuples(st.integers(0, 2), st.integers(0, 7), *[st.integers(0, 10**12)] * 3), min_size=1, max_size=20
    ),
    st.sampled_from(["rows", "bytes", "both"]),
)
def test_loads_are_shares_of_a_whole(rows, by):
    total = sum(bin_loads(stats(*rows), 8, by))
    assert total == pytest.approx(1) or total == 0


def test_an_empty_table_has_no_load():
    assert bin_loads(stats(), 3, "both") == (0, 0, 0)


def test_an_unknown_kind_of_load_and_a_bin_of_another_query_are_refused():
    with pytest.raises(PlanError, match="by='heat'"):
        bin_loads(TWO_OPERATORS, 4, "heat")  # type: ignore[arg-type]
    with pytest.raises(PlanError, match="bin 3, but there are 2 bins"):
        bin_loads(TWO_OPERATORS, 2, "bytes")


def test_where_there_is_no_load_of_a_kind_the_next_kind_counts():
    idle = stats((0, 0, 100, 0, 0), (0, 1, 300, 0, 0))
    assert measured_loads(TWO_OPERATORS, 4, "rows")[0] == "rows"
    assert measured_loads(idle, 2, "rows") == ("bytes", (0.25, 0.75))
    assert measured_loads(stats(), 2, "both") == ("bins", (0.5, 0.5))
    assert measured_loads(None, 2, "rows") == ("bins", (0.5, 0.5))
    with pytest.raises(PlanError, match="by='heat'"):
        measured_loads(None, 2, "heat")  # type: ignore[arg-type]


def test_bytes_that_are_not_known_of_all_bins_are_not_known():
    table = stats((0, 0, 100, 1, 1), (0, 1, None, 1, 1))
    assert bin_bytes(table, 2) is None
    assert bin_loads(stats((0, 0, None, 1, 3)), 1, "bytes") == (0,)
