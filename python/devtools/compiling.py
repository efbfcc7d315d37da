"""Compiles Scala with the compiler that pyspark contains, for the few tools that need code in the JVM."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterable
from pathlib import Path

import pyspark

from binshift.session import jar_path

__all__ = ["FILE_SYSTEMS", "compile_to"]

#: Sources of file systems. Spark makes file systems before it loads jars, so these have to be on a JVM's class
#: path.
FILE_SYSTEMS = sorted((Path(__file__).parent / "jvm").glob("*.scala"))


def compile_to(target: Path, sources: Iterable[Path]) -> None:
    """Compiles against Spark and binshift into `target`, a jar or a directory that exists."""
    jars = f"{Path(pyspark.__file__).parent}/jars/*{os.pathsep}{jar_path()}"
    # The compiler only runs for seconds, so the JVM's optimising compiler wouldn't pay off.
    command = ["java", "-Xss8m", "-XX:TieredStopAtLevel=1", "-cp", jars, "scala.tools.nsc.Main"]
    subprocess.run([*command, "-classpath", jars, "-d", str(target), *map(str, sources)], check=True)
