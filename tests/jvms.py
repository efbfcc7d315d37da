"""The files that all JVMs of a test run share, and the flags with which they start fast.

A test run starts some 150 JVMs, drivers and executors, that live for seconds and load the same classes. An
archive of loaded classes (class data sharing) takes a third of their processor time away. It holds only for
the very class path that it was made with, so all processes of a run have the one directory `SHARED`.
"""

from __future__ import annotations

import atexit
import os
import shutil
import sys
import tempfile
from pathlib import Path

if "BINSHIFT_TESTS_SHARED" not in os.environ:
    # The first process of a run; it removes the directory at its end.
    os.environ["BINSHIFT_TESTS_SHARED"] = tempfile.mkdtemp(prefix="binshift-tests-")
    atexit.register(shutil.rmtree, os.environ["BINSHIFT_TESTS_SHARED"], ignore_errors=True)

SHARED = Path(os.environ["BINSHIFT_TESTS_SHARED"])
#: The jar of the tests' classes, for `spark.jars`.
TESTS_JAR = SHARED / "tests.jar"
#: The jar of the tests' file systems: they are created before Spark loads `spark.jars`.
FILES_JAR = SHARED / "files.jar"
ARCHIVE = SHARED / "classes.jsa"
#: The installed pyspark by another path: a local-cluster writes its executors' directories there.
SPARK_HOME = SHARED / "spark"
#: Spark's conf directory is on the class path, too, and has to be empty, or the archive isn't used.
CONF_DIR = SHARED / "conf"

#: Faults that tests lay in wait (TestFaults.scala), as settings of a session.
FAULTS = {
    "spark.binshift.internal.faults": "org.apache.spark.sql.execution.streaming.state.binshift.TestFaults"
}

# The optimising compiler doesn't pay for JVMs that live for minutes. Without it, a JVM reserves little room for
# compiled code, and would spend a third of its time on discarding code and compiling it again.
_FLAGS = "-XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=240m -XX:+UseSerialGC"
_LOGGING = f"-Dlog4j2.configurationFile={Path(__file__).parent / 'log4j2.properties'}"


def surroundings(scratch: Path) -> None:
    """Sets the environment of JVMs that this process starts; `scratch` gets the files that they leave."""
    os.environ.update(
        SPARK_HOME=str(SPARK_HOME),
        SPARK_CONF_DIR=str(CONF_DIR),
        SPARK_LOCAL_DIRS=str(scratch),
        SPARK_LOCAL_IP="127.0.0.1",
        # Executors in separate JVMs must start this interpreter, not any python3 on the PATH.
        PYSPARK_PYTHON=sys.executable,
        BINSHIFT_TESTS_TMP=str(scratch),
    )


def quick(archive: str = f"-XX:SharedArchiveFile={ARCHIVE}") -> dict[str, str]:
    """Settings for JVMs that start fast, and that write files without starting processes."""
    scratch = f"-Djava.io.tmpdir={os.environ['BINSHIFT_TESTS_TMP']}"
    settings = {
        "spark.hadoop.fs.file.impl": "binshift.devtools.QuickLocalFiles",
        "spark.hadoop.fs.AbstractFileSystem.file.impl": "binshift.devtools.QuickLocalFs",
    }
    for role in ("driver", "executor"):
        settings[f"spark.{role}.extraClassPath"] = str(FILES_JAR)
        settings[f"spark.{role}.extraJavaOptions"] = f"{_FLAGS} {scratch} {_LOGGING} {archive}"
    return settings
