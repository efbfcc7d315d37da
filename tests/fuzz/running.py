"""A JVM with the decoders and the tests' access to them, outside of a test run."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from harness import session
from jvms import SHARED, TESTS_JAR
from prepared import prepare_jvms


@contextmanager
def fuzzed_jvm() -> Iterator[Any]:
    """`TestFuzz` in a JVM that ends with the context."""
    prepare_jvms(SHARED / "alone")
    spark = session("local[1]", **{"spark.jars": str(TESTS_JAR)})
    try:
        yield spark._jvm.org.apache.spark.sql.execution.streaming.state.binshift.TestFuzz
    finally:
        spark.stop()
