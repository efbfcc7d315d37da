"""Fixtures of all tests that run Spark."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyspark
import pytest
from pyspark.sql import DataFrame, SparkSession

os.environ.setdefault("SPARK_HOME", os.path.dirname(pyspark.__file__))
# Executors in JVMs of their own start this interpreter, and not whatever python3 is on the PATH.
os.environ["PYSPARK_PYTHON"] = sys.executable
os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
os.environ.setdefault("SPARK_CONF_DIR", str(Path(__file__).parent / "conf"))


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """One JVM for all local tests; a task is tried three times, as on a cluster."""
    from harness import session

    warehouse = str(tmp_path_factory.mktemp("warehouse"))
    s = session("local[2,3]", **{"spark.sql.warehouse.dir": warehouse})
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
