"""Measures the cost of a row in a state store, without a query around it (see jvm/StoreOperations.scala)."""

from __future__ import annotations

from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql.utils import to_java_array

from binshift.session import BINS_KEY

__all__ = ["OPERATIONS", "nanoseconds"]

OPERATIONS = ("get", "put", "update", "merge", "remove", "evict")


def nanoseconds(
    spark: SparkSession, providers: list[str], bins: int, operation: str, keys: int, rows: int, times: int
) -> list[list[float]]:
    """Nanoseconds a row of an operation on a state of `keys` keys: by provider and time."""
    session = spark.newSession()
    session.conf.set(BINS_KEY, str(bins))
    jvm: Any = spark._jvm
    names = to_java_array(spark.sparkContext._gateway, jvm.java.lang.String, providers)
    operations = jvm.binshift.benchmarks.StoreOperations
    found = operations.run(session._jsparkSession, names, operation, keys, rows, times)
    return [list(of_one) for of_one in found]
