"""Fixtures of all tests that run Spark, and one scratch directory for all files that Spark leaves behind."""

from __future__ import annotations

import os
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyspark
import pytest
from hypothesis import settings
from pyspark import SparkContext
from pyspark.sql import DataFrame, SparkSession

from jvms import FAULTS, SHARED, TESTS_JAR, surroundings
from prepared import link_spark, prepare

# The same examples in every run, without a deadline; --hypothesis-profile=default draws new ones.
settings.register_profile("repeatable", derandomize=True, deadline=None)
settings.load_profile("repeatable")

# The workers of a run share a directory, and each has one of its own in it.
WORKER = os.environ.get("PYTEST_XDIST_WORKER")
SCRATCH = SHARED / (WORKER or "alone")
SCRATCH.mkdir()

surroundings(SCRATCH)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--matrix-part", metavar="K/N", help="run the K-th of N parts of the matrix, beside what -m selects"
    )
    parser.addoption(
        "--long-part", metavar="K/N", help="of the tests that take long, run no more than the K-th of N parts"
    )


def pytest_configure() -> None:
    if WORKER is None:
        link_spark()


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Without -m, leaves out the field tests, and matrix and long tests of other parts than those asked for."""
    for item in items:
        for marker in item.iter_markers("needs_spark"):
            skip_on_older(item, *marker.args, **marker.kwargs)
    if config.option.markexpr and config.option.markexpr != "matrix":
        return
    config.hook.pytest_deselected(items=[i for i in items if i.get_closest_marker("field")])
    items[:] = [i for i in items if not i.get_closest_marker("field")]
    part = config.option.matrix_part
    kept, left_out = [], []
    for item in items:
        if item.get_closest_marker("matrix"):
            wanted = (part or config.option.markexpr) and is_of(part, item)
        else:
            wanted = not item.get_closest_marker("long") or is_of(config.option.long_part, item)
        (kept if wanted else left_out).append(item)
    items[:] = kept
    config.hook.pytest_deselected(items=left_out)


def pytest_exception_interact(call: pytest.CallInfo[Any]) -> None:
    """Closes the connection to the JVM of a test that took too long, as the JVM may still answer on it."""
    if call.excinfo is not None and call.excinfo.errisinstance(pytest.fail.Exception):
        gateway = SparkContext._gateway
        connection = gateway and gateway._gateway_client.get_thread_connection()
        if connection:
            connection.close()


def is_of(part: str | None, item: pytest.Item) -> bool:
    """True if the test belongs to the K-th of N parts, or if no part is given."""
    k, n = map(int, part.split("/")) if part else (0, 1)
    # By the hash of its name, which stays the same when other tests are added or removed.
    return zlib.crc32(item.nodeid.encode()) % n == k % n


def skip_on_older(item: pytest.Item, needed: str, *, reason: str) -> None:
    """For `needs_spark`: skips a test of something that an older Spark doesn't have."""

    def minor(version: str) -> tuple[int, ...]:
        return tuple(map(int, version.split(".")[:2]))

    if minor(pyspark.__version__) < minor(needed):
        item.add_marker(pytest.mark.skip(reason=f"needs Spark {needed}: {reason}"))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Prints which tests a run without -m leaves out."""
    if not config.option.markexpr:
        part, long_part = config.option.matrix_part, config.option.long_part
        ran = f"part {part} of the matrix of operators and settings" if part else "none of the matrix"
        if long_part:
            ran = f"part {long_part} of the tests that take long, and {ran}"
        terminalreporter.write_line(f"ran {ran}; 'make test-matrix' runs all of it, 'make field' the field")


@pytest.fixture(scope="session")
def jvm_jar() -> Path:
    """The jar of the tests' classes for the JVM."""
    prepare()
    return TESTS_JAR


@pytest.fixture(scope="session")
def spark(jvm_jar: Path) -> Iterator[SparkSession]:
    """One JVM for all local tests; a task is tried three times, as on a cluster."""
    from harness import session

    os.environ["BINSHIFT_TESTS_TRACE"] = str(SCRATCH / "trace")
    prometheus = "spark.metrics.conf.*.sink.prometheusServlet"
    options = {
        "spark.jars": str(jvm_jar),
        # As many as there are tasks, independent of the machine.
        "spark.executor.cores": "2",
        # Some tests have 100 MB of state and more, which Spark sorts in memory; a JVM that runs out ends.
        "spark.driver.memory": "2g",
        **FAULTS,
        "spark.ui.enabled": "true",
        "spark.ui.port": "0",
        f"{prometheus}.class": "org.apache.spark.metrics.sink.PrometheusServlet",
        f"{prometheus}.path": "/metrics/prometheus",
    }
    s = session("local[2,3]", **options)
    # Spark's coordinator of state stores has the settings of the first session with streams: of this one.
    assert not s.streams.active
    yield s
    s.stop()


@pytest.fixture
def stream(spark: SparkSession, tmp_path: Path) -> Iterator[Callable[..., Any]]:
    """Creates stream runs, each with its own directory, and stops them after the test."""
    from harness import StreamRun

    runs: list[StreamRun] = []

    def make(
        build: Callable[[DataFrame], DataFrame],
        name: str = "run",
        kind: type[StreamRun] = StreamRun,
        **kwargs: Any,
    ) -> StreamRun:
        run = kind(spark, tmp_path / name, build, **kwargs)
        runs.append(run)
        return run

    yield make
    for run in runs:
        run.stop()
