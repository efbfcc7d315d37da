"""Why tests of Spark's suites may differ between providers."""

from __future__ import annotations

__all__ = ["EXPLAINED"]

#: Of tests that look for `HashPartitioning` in a plan.
PLAN = (
    "the test asks for Spark's hash partitioning in the plan; here rows go to the owner of the bin of the same "
    "hash. Rows and results are as expected"
)

#: Part of a suite's name, part of a test's name, and the reason; the first that fits is taken.
EXPLAINED: list[tuple[str, str, str]] = [
    ("StreamingAggregationSuite", "coalesce(1) with aggregation should still be repartitioned", PLAN),
    ("StreamingInnerJoin", "join should require StatefulOpClusteredDistribution from children", PLAN),
    (
        "TTLSuite",
        "introducing TTL after restart fails query",
        "a race in the test: it stops the query in the middle of a batch; if that batch was not committed, the "
        "error that it expects comes before the test waits for it",
    ),
]
