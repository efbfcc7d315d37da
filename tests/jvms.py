"""Where the JVMs of a test run find what they share, and the flags with which they start fast.

A test run starts some 150 JVMs, drivers and executors, that live for seconds and load the same classes. An
archive of loaded classes (class data sharing) takes a third of their processor time away. It holds only for
the very class path that it was made with, so all processes of a run have the one directory `SHARED`.
"""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path

if "BINSHIFT_TESTS_SHARED" not in os.environ:
    # The first process of a run; it removes the directory at its end.
    os.environ["BINSHIFT_TESTS_SHARED"] = tempfile.mkdtemp(prefix="binshift-tests-")

SHARED = Path(os.environ["BINSHIFT_TESTS_SHARED"])
#: What tests add to the JVM, by `spark.jars`.
TESTS_JAR = SHARED / "tests.jar"
#: File systems are made before Spark loads `spark.jars`, so theirs has to be on the class path.
FILES_JAR = SHARED / "files.jar"
ARCHIVE = SHARED / "classes.jsa"
#: The installed pyspark by another path: a local-cluster writes its executors' directories there.
SPARK_HOME = SHARED / "spark"
#: On the class path too, where any directory that is not empty rules the archive out.
CONF_DIR = SHARED / "conf"

# The optimising compiler does not pay for JVMs that live for minutes. Without it, a JVM has little room for
# compiled code, and would throw it away and compile it again for a third of its time.
_FLAGS = "-XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=240m -XX:+UseSerialGC"
_LOGGING = f"-Dlog4j2.configurationFile={Path(__file__).parent / 'log4j2.properties'}"


def surroundings(scratch: Path) -> None:
    """Sets the environment in which this process starts JVMs, with `scratch` for what they leave behind."""
    os.environ.update(
        SPARK_HOME=str(SPARK_HOME),
        SPARK_CONF_DIR=str(CONF_DIR),
        SPARK_LOCAL_DIRS=str(scratch),
        SPARK_LOCAL_IP="127.0.0.1",
        # Executors in JVMs of their own start this interpreter, and not whatever python3 is on the PATH.
        PYSPARK_PYTHON=sys.executable,
        BINSHIFT_TESTS_TMP=str(scratch),
    )


def quick(archive: str = f"-XX:SharedArchiveFile={ARCHIVE}") -> dict[str, str]:
    """Settings for JVMs that start fast, and that start no processes to write a file."""
    scratch = f"-Djava.io.tmpdir={os.environ['BINSHIFT_TESTS_TMP']}"
    settings = {
        "spark.hadoop.fs.file.impl": "binshift.devtools.QuickLocalFiles",
        "spark.hadoop.fs.AbstractFileSystem.file.impl": "binshift.devtools.QuickLocalFs",
    }
    for role in ("driver", "executor"):
        settings[f"spark.{role}.extraClassPath"] = str(FILES_JAR)
        settings[f"spark.{role}.extraJavaOptions"] = f"{_FLAGS} {scratch} {_LOGGING} {archive}"
    return settings
