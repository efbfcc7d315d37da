"""The JVM in which quick lives are lived through, outside of pytest."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from harness import session
from jvms import FAULTS, TESTS_JAR
from prepared import prepare_jvms


@contextmanager
def session_of_lives(root: Path) -> Iterator[Any]:
    """A session with faults, whose files are below `root`."""
    prepare_jvms(root / "scratch")
    os.environ["BINSHIFT_TESTS_TRACE"] = str(root / "trace")
    spark = session(
        "local[2,4]",
        **{
            "spark.jars": str(TESTS_JAR),
            "spark.executor.cores": "2",
            "spark.driver.memory": "1g",
            **FAULTS,
        },
    )
    yield spark
    spark.stop()
