"""Fixtures of all tests that run Spark, and one scratch directory for all that Spark leaves behind."""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyspark
import pytest
from pyspark.sql import DataFrame, SparkSession

SCRATCH = Path(tempfile.mkdtemp(prefix="binshift-tests-"))


def spark_home() -> Path:
    """The installed pyspark by another path: a local-cluster writes its executors' directories there."""
    home = SCRATCH / "spark"
    home.mkdir()
    for entry in Path(pyspark.__file__).parent.iterdir():
        if entry.name != "work":
            (home / entry.name).symlink_to(entry)
    return home


os.environ.update(
    SPARK_HOME=str(spark_home()),
    SPARK_CONF_DIR=str(Path(__file__).parent / "conf"),
    SPARK_LOCAL_DIRS=str(SCRATCH),
    SPARK_LOCAL_IP="127.0.0.1",
    # Executors in JVMs of their own start this interpreter, and not whatever python3 is on the PATH.
    PYSPARK_PYTHON=sys.executable,
    BINSHIFT_TESTS_TMP=str(SCRATCH),
)


def pytest_unconfigure() -> None:
    shutil.rmtree(SCRATCH, ignore_errors=True)


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """One JVM for all local tests; a task is tried three times, as on a cluster."""
    from harness import session

    s = session("local[2,3]")
    yield s
    s.stop()


@pytest.fixture
def stream(spark: SparkSession, tmp_path: Path) -> Iterator[Callable[..., Any]]:
    """Makes stream runs, each with a directory of its own, and stops them at the end."""
    from harness import StreamRun

    runs: list[StreamRun] = []

    def make(build: Callable[[DataFrame], DataFrame], name: str = "run", **kwargs: Any) -> StreamRun:
        run = StreamRun(spark, tmp_path / name, build, **kwargs)
        runs.append(run)
        return run

    yield make
    for run in runs:
        run.stop()
