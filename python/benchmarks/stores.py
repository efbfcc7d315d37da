"""What one row costs in a state store, without a query around it (see jvm/StoreOperations.scala)."""

from __future__ import annotations

from pyspark.sql import SparkSession

from binshift.spark import BINS_KEY

__all__ = ["OPERATIONS", "nanoseconds"]

OPERATIONS = ("get", "put", "update", "merge", "remove", "evict")


def nanoseconds(
    spark: SparkSession, providers: list[str], bins: int, operation: str, keys: int, rows: int, times: int
) -> list[list[float]]:
    """Nanoseconds a row of an operation on a state of `keys` keys: by provider and time."""
    session = spark.newSession()
    session.conf.set(BINS_KEY, str(bins))
    jvm = spark._jvm
    names = spark.sparkContext._gateway.new_array(jvm.java.lang.String, len(providers))
    for i, provider in enumerate(providers):
        names[i] = provider
    operations = jvm.binshift.benchmarks.StoreOperations
    found = operations.run(session._jsparkSession, names, operation, keys, rows, times)
    return [list(of_one) for of_one in found]
