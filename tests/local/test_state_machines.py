"""A table says which states of a copy may follow one another; anything else throws, and changes nothing."""

from __future__ import annotations


def test_a_copy_changes_as_its_table_says_and_a_store_is_what_its_version_says(spark):
    base = spark._jvm.org.apache.spark.sql.execution.streaming.state.binshift
    assert base.TestStateMachines.check() is None
