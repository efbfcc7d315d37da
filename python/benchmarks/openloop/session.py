"""The Spark session in which benchmarks run."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

import binshift
from devtools.compiling import FILE_SYSTEMS, compile_to

__all__ = ["session"]

JVM = Path(__file__).parents[1] / "jvm"


def session(scratch: Path, master: str = "local[2]", memory: str = "6g", **conf: str) -> SparkSession:
    """A quiet session that keeps all progress reports of a run, and writes only below `scratch`.

    Its file system starts no processes (devtools/jvm/QuickLocalFiles.scala). Spark's does so on a local disk,
    and only there, which takes most of a small epoch's time.
    """
    jar = scratch / "benchmarks.jar"
    compile_to(jar, [*FILE_SYSTEMS, *sorted(JVM.glob("*.scala"))])
    # Workers of Python run what this process runs, not whatever python3 is on the PATH.
    os.environ["PYSPARK_PYTHON"] = sys.executable
    options: dict[str, Any] = {
        "spark.driver.extraClassPath": str(jar),
        # Commits all of the heap at the start, because growing costs time, and hides what else grows.
        "spark.driver.extraJavaOptions": f"-Xms{memory} -XX:+AlwaysPreTouch -XX:+UseG1GC",
        "spark.driver.memory": memory,
        "spark.hadoop.fs.AbstractFileSystem.file.impl": "binshift.devtools.QuickLocalFs",
        "spark.hadoop.fs.file.impl": "binshift.devtools.QuickLocalFiles",
        "spark.local.dir": str(scratch),
        "spark.log.level": "OFF",
        "spark.sql.streaming.numRecentProgressUpdates": "10000",
        "spark.sql.warehouse.dir": str(scratch / "warehouse"),
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        **conf,
    }
    return binshift.configure(SparkSession.builder.master(master).config(map=options), bins=1024).getOrCreate()
