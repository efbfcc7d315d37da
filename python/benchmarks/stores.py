"""What one row costs in a state store, without a query around it (see jvm/StoreOperations.scala)."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pyspark
from pyspark.sql import SparkSession

from binshift.spark import BINS_KEY, jar_path

__all__ = ["OPERATIONS", "compile_to", "nanoseconds"]

OPERATIONS = ("get", "put", "update", "merge", "remove", "evict")
SOURCES = sorted((Path(__file__).parent / "jvm").glob("*.scala"))
PATH = os.pathsep.join([f"{Path(pyspark.__file__).parent}/jars/*", str(jar_path())])


def compile_to(jar: Path) -> None:
    """Compiles what benchmarks need in the JVM, with the Scala compiler that pyspark carries."""
    command = ["java", "-Xss8m", "-cp", PATH, "scala.tools.nsc.Main", "-classpath", PATH, "-d", str(jar)]
    subprocess.run([*command, *map(str, SOURCES)], check=True)


def nanoseconds(
    spark: SparkSession, provider: str, bins: int, operation: str, keys: int, rows: int, times: int
) -> list[float]:
    """Nanoseconds a row of an operation, once for each of `times`, on a state of `keys` keys."""
    session = spark.newSession()
    session.conf.set(BINS_KEY, str(bins))
    operations = session._jvm.binshift.benchmarks.StoreOperations
    return list(operations.run(session._jsparkSession, provider, operation, keys, rows, times))
