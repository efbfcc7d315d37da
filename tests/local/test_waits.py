"""The time for which tasks wait for their preferred executors while partitions settle."""

from __future__ import annotations

from uuid import uuid4

import pytest

from harness import until

WAIT = "spark.locality.wait.process"
OWN_MS = 700


@pytest.fixture
def migrating(spark):
    """Binshift's classes that set the wait, in an application with a shorter wait of its own."""
    context = spark.sparkContext._jsc.sc()
    context.conf().set(WAIT, f"{OWN_MS}ms")
    yield spark._jvm.org.apache.spark.sql.binshift.migration
    context.conf().remove(WAIT)


def test_only_tasks_of_the_query_wait_longer_and_none_for_an_executor_that_is_gone(spark, migrating):
    context = spark.sparkContext._jsc.sc()
    java = spark._jvm.java.util.UUID
    moving, losing, other = (java.fromString(str(uuid4())) for _ in range(3))
    waits, jobs = migrating.LocalityWait, migrating.TestWaits(context)
    holders = [java.randomUUID(), java.randomUUID()]

    def in_force():
        found = dict(jobs.inForce())
        return [found.get(query.toString()) for query in (moving, losing, other)]

    try:
        for holder, query in zip(holders, (moving, losing), strict=True):
            waits.hold(holder, query, context)
        jobs.occupy(moving)
        # While other executors are alive, Spark waits for dead ones.
        jobs.begin(losing, ["driver", "gone"])
        jobs.begin(other, ["driver"])
        assert until(lambda: in_force() == [30_000, OWN_MS, OWN_MS], 20), in_force()
        waits.release(holders[0])
        assert context.conf().get(WAIT) == "30000ms"
    finally:
        assert until(lambda: jobs.ended() == "over", 20), jobs.ended()
        waits.release(holders[1])
    assert context.conf().get(WAIT) == f"{OWN_MS}ms"
