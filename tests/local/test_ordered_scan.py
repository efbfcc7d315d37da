"""Rows of many bins, read in the order of their keys."""

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st


@pytest.fixture(scope="module")
def check(spark, tmp_path_factory):
    made = spark._jvm.org.apache.spark.sql.execution.streaming.state.binshift.OrderedScanCheck(
        str(tmp_path_factory.mktemp("ordered"))
    )
    yield made
    made.close()


@settings(max_examples=200, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
@given(seed=st.integers(0, 2**60), rows=st.integers(0, 400), bins=st.integers(1, 64))
def test_a_scan_gives_the_rows_of_its_bins_in_the_order_of_their_keys(check, seed, rows, bins):
    assert check.mismatch(seed, rows, bins) == ""
