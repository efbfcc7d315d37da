"""Fixtures of all tests that run Spark, and one scratch directory for all that Spark leaves behind."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from zipfile import ZipFile

import pyspark
import pytest
from hypothesis import settings
from pyspark.sql import DataFrame, SparkSession

import binshift.spark

# The same examples at every run; --hypothesis-profile=default draws new ones.
settings.register_profile("repeatable", derandomize=True)
settings.load_profile("repeatable")

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
def jvm_jar() -> Path:
    """What the tests need in the JVM, compiled with the Scala compiler that pyspark carries.

    Beside it is `files.jar`, which has to be on the class path: Spark makes file systems before it loads jars.
    """
    jars = f"{Path(pyspark.__file__).parent}/jars/*{os.pathsep}{binshift.spark.jar_path()}"
    classes = SCRATCH / "classes"
    classes.mkdir()
    here = Path(__file__).parent
    files = here.parent / "python" / "benchmarks" / "jvm" / "QuickLocalFiles.scala"
    sources = [str(files), *(str(s) for s in sorted((here / "jvm").glob("*.scala")))]
    command = ["java", "-Xss8m", "-XX:TieredStopAtLevel=1", "-cp", jars, "scala.tools.nsc.Main"]
    options = ["-classpath", jars, "-d", str(classes)]
    subprocess.run([*command, *options, *sources], check=True, capture_output=True, text=True)
    jar = SCRATCH / "tests.jar"
    with ZipFile(jar, "w") as own, ZipFile(SCRATCH / "files.jar", "w") as first:
        for file in classes.rglob("*.class"):
            (first if file.name.startswith("Quick") else own).write(file, file.relative_to(classes))
    return jar


@pytest.fixture(scope="session")
def spark(jvm_jar: Path) -> Iterator[SparkSession]:
    """One JVM for all local tests; a task is tried three times, as on a cluster."""
    from harness import session

    faults = "org.apache.spark.sql.execution.streaming.state.binshift.TestFaults"
    prometheus = "spark.metrics.conf.*.sink.prometheusServlet"
    options = {
        "spark.jars": str(jvm_jar),
        "spark.binshift.internal.faults": faults,
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
