"""The Spark session in which benchmarks run."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from pyspark.sql import SparkSession

import binshift

__all__ = ["session"]


def session(scratch: Path, master: str = "local[2]", memory: str = "10g", **conf: str) -> SparkSession:
    """Quiet, with all progress reports of a run kept, and all that Spark writes below `scratch`."""
    # Workers of Python run what this process runs, not whatever python3 is on the PATH.
    os.environ["PYSPARK_PYTHON"] = sys.executable
    options = {
        "spark.driver.memory": memory,
        "spark.local.dir": str(scratch),
        "spark.log.level": "OFF",
        "spark.sql.streaming.numRecentProgressUpdates": "10000",
        "spark.sql.warehouse.dir": str(scratch / "warehouse"),
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        **conf,
    }
    return binshift.configure(SparkSession.builder.master(master).config(map=options), 1024).getOrCreate()
