"""What becomes of a migration's next step is decided by a pure function, of which every case is looked at."""

from __future__ import annotations


def test_a_step_is_opened_ordered_taken_and_held_as_it_should_be(spark):
    decisions = spark._jvm.org.apache.spark.sql.binshift.migration.TestStepDecision
    assert decisions.combinations() > 10_000
    assert decisions.check() is None
