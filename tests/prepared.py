"""Makes the files that the JVMs of a test run share (see jvms.py)."""

from __future__ import annotations

import fcntl
import subprocess
import sys
from pathlib import Path
from zipfile import ZipFile

import pyspark

from devtools.compiling import FILE_SYSTEMS, compile_to
from jvms import ARCHIVE, CONF_DIR, FILES_JAR, SHARED, SPARK_HOME, TESTS_JAR, surroundings

HERE = Path(__file__).parent


def link_spark() -> None:
    CONF_DIR.mkdir()
    SPARK_HOME.mkdir()
    for entry in Path(pyspark.__file__).parent.iterdir():
        if entry.name != "work":
            (SPARK_HOME / entry.name).symlink_to(entry)


def prepare_jvms(scratch: Path) -> None:
    """All that a program outside of pytest has to do before it starts JVMs, which leave things in `scratch`."""
    SHARED.mkdir(parents=True, exist_ok=True)
    scratch.mkdir(parents=True, exist_ok=True)
    surroundings(scratch)
    if not SPARK_HOME.exists():
        link_spark()
    prepare()


def prepare() -> None:
    """Compiles and archives classes, once in a test run; other processes wait for that."""
    with (SHARED / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not ARCHIVE.exists():
            compile_jars()
            _archive()


def compile_jars() -> None:
    classes = SHARED / "classes"
    classes.mkdir()
    ours = HERE / "jvm"
    # Code that looks into Spark's plans is written for one version of Spark.
    of_version = ours / f"spark-{'.'.join(pyspark.__version__.split('.')[:2])}"
    sources = [*sorted(ours.glob("*.scala")), *sorted(of_version.glob("*.scala"))]
    compile_to(classes, [*FILE_SYSTEMS, *sources])
    with ZipFile(TESTS_JAR, "w") as own, ZipFile(FILES_JAR, "w") as first:
        for file in classes.rglob("*.class"):
            name = file.relative_to(classes)
            (first if name.parts[:2] == ("binshift", "devtools") else own).write(file, name)


def _archive() -> None:
    command = [sys.executable, str(HERE / "short_query.py"), str(ARCHIVE)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ARCHIVE.exists(), f"no archive of classes was written:\n{done.stdout}\n{done.stderr}"
