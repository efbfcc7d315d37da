"""The JVM in which quick lives are lived through, outside of pytest."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import jvms
import prepared
from harness import session

FAULTS = "org.apache.spark.sql.execution.streaming.state.binshift.TestFaults"


def prepare_jvms(scratch: Path) -> None:
    """Makes what the JVMs of all processes share, once, and sets the environment of this process."""
    scratch.mkdir(parents=True, exist_ok=True)
    jvms.SHARED.mkdir(parents=True, exist_ok=True)
    jvms.surroundings(scratch)
    if not jvms.SPARK_HOME.exists():
        prepared.link_spark()
    prepared.prepare()


@contextmanager
def session_of_lives(root: Path) -> Iterator[Any]:
    """A session with faults, whose files are below `root`."""
    prepare_jvms(root / "scratch")
    os.environ["BINSHIFT_TESTS_TRACE"] = str(root / "trace")
    spark = session(
        "local[2,4]",
        **{
            "spark.jars": str(jvms.TESTS_JAR),
            "spark.executor.cores": "2",
            "spark.driver.memory": "1g",
            "spark.binshift.internal.faults": FAULTS,
        },
    )
    yield spark
    spark.stop()
