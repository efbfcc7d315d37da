"""What one row costs in a state store, without a query around it (see jvm/StoreOperations.scala)."""

from __future__ import annotations

from pyspark.sql import SparkSession

from binshift.spark import BINS_KEY

__all__ = ["OPERATIONS", "nanoseconds"]

OPERATIONS = ("get", "put", "update", "merge", "remove", "evict")


def nanoseconds(
    spark: SparkSession, provider: str, bins: int, operation: str, keys: int, rows: int, times: int
) -> list[float]:
    """Nanoseconds a row of an operation, once for each of `times`, on a state of `keys` keys."""
    session = spark.newSession()
    session.conf.set(BINS_KEY, str(bins))
    operations = session._jvm.binshift.benchmarks.StoreOperations
    return list(operations.run(session._jsparkSession, provider, operation, keys, rows, times))
