"""Which states may follow one another is written in tables, and anything else throws and changes nothing."""

from __future__ import annotations


def test_a_store_and_a_copy_change_as_their_tables_say_and_in_no_other_way(spark):
    base = spark._jvm.org.apache.spark.sql.execution.streaming.state.binshift
    assert base.TestStateMachines.check() is None
