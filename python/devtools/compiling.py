"""Compiles Scala with what pyspark carries, for the few things that need code in the JVM."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterable
from pathlib import Path

import pyspark

from binshift.session import jar_path

__all__ = ["FILE_SYSTEMS", "compile_to"]

#: Sources of file systems, which Spark makes before it loads jars: they have to be on the class path of a JVM.
FILE_SYSTEMS = sorted((Path(__file__).parent / "jvm").glob("*.scala"))


def compile_to(target: Path, sources: Iterable[Path]) -> None:
    """Compiles against Spark and binshift into `target`, a jar or a directory that exists."""
    jars = f"{Path(pyspark.__file__).parent}/jars/*{os.pathsep}{jar_path()}"
    # The compiler runs for seconds: too short for the optimising one of the JVM to pay.
    command = ["java", "-Xss8m", "-XX:TieredStopAtLevel=1", "-cp", jars, "scala.tools.nsc.Main"]
    subprocess.run([*command, "-classpath", jars, "-d", str(target), *map(str, sources)], check=True)
