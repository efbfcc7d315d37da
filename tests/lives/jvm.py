"""The JVM in which quick lives are lived through, outside of pytest."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

FAULTS = "org.apache.spark.sql.execution.streaming.state.binshift.TestFaults"


@contextmanager
def session_of_lives(root: Path) -> Iterator[Any]:
    """A session with faults, whose files are below `root`."""
    os.environ["BINSHIFT_TESTS_SHARED"] = os.environ.get("BINSHIFT_LIVES_SHARED", str(root / "shared"))
    import jvms
    import prepared

    jvms.SHARED.mkdir(parents=True, exist_ok=True)
    scratch = root / "scratch"
    scratch.mkdir(parents=True)
    jvms.surroundings(scratch)
    os.environ["BINSHIFT_TESTS_TRACE"] = str(root / "trace")
    if not jvms.SPARK_HOME.exists():
        prepared.link_spark()
    prepared.prepare()
    from harness import session

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
