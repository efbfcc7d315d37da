"""Reasons why tests of Spark's suites may differ between providers."""

from __future__ import annotations

__all__ = ["EXPLAINED"]

#: The reason for tests that look for `HashPartitioning` in a plan.
PLAN = (
    "the test expects Spark's hash partitioning in the plan, but here rows go to the owner of the bin with the "
    "same hash. Rows and results are as expected"
)
#: The reason for tests that repartition a checkpoint.
OFFLINE = "Spark's offline repartition cannot convert state of binshift, which refuses it and names `rescale`"

#: Part of a suite's name, part of a test's name, and the reason; the first match counts.
EXPLAINED: list[tuple[str, str, str]] = [
    ("StreamingAggregationSuite", "coalesce(1) with aggregation should still be repartitioned", PLAN),
    ("streaming.", "should require StatefulOpClusteredDistribution from children", PLAN),
    ("OfflineStateRepartition", "changelog checkpointing", OFFLINE),
    ("OfflineStateRepartition", "enableChangelogCheckpointing", OFFLINE),
    (
        "StatePartitionAllColumnFamilies",
        "changelog checkpointing",
        "the reader and writer of Spark's offline repartition take checkpoints of Spark's provider only",
    ),
    (
        "TransformWithStateClusterSuite",
        "with initial state",
        "on a busy machine, the test runs into its time limit, on Spark's provider as well",
    ),
    (
        "MicroBatchExecutionSuite",
        "unfinished repartition batch",
        "the entry of an offline repartition is removed from the log, because it can't convert state of "
        "binshift. So the query continues as it was, whereas Spark's provider refuses to start",
    ),
    (
        "RocksDBStateStoreIntegrationSuite",
        "only the expected RocksDB store custom metrics",
        "the test lists all metrics of Spark's provider; binshift's reports more of its own",
    ),
    (
        "CheckpointFormatV2Suite",
        "checkpointFormatVersion2",
        "the session names a class of the test's own that wraps the provider, so binshift does not route the "
        "query. Its stores then refuse to open",
    ),
    (
        "StreamingQueryListenerSuite",
        "did not run",
        "at its end, the suite asks that the session has no listener of queries; binshift has one of its own",
    ),
    (
        "LockHardeningSuite",
        "changelog checkpointing",
        "the test calls a private method of Spark's provider by name, and no subclass has it. "
        "The store then stays open, so its provider can't be closed",
    ),
    (
        "RealTimeModeAllowlistSuite",
        "stateful queries not allowed",
        "both refuse the query; the test asks for the class of Spark's own error",
    ),
    (
        "TTLSuite",
        "introducing TTL after restart fails query",
        "a race in the test: it stops the query in the middle of a batch; if that batch was not committed, the "
        "error that it expects comes before the test waits for it",
    ),
]
