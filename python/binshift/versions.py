"""The versions of everything that takes part, for reports of faults."""

from __future__ import annotations

import os
import platform
import re
import shutil
import subprocess
import sys
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

from binshift._version import version
from binshift.session import SUPPORTED_SPARK, installed_jars

__all__ = ["show_versions"]

_LIBRARIES = (
    *("pyspark", "numpy", "pyarrow", "pandas", "click"),
    *("rocksdict", "google-crc32c", "xxhash", "hdfs-native", "grpcio", "matplotlib"),
)
#: A JVM that does not say its version by then is not asked any longer.
_JAVA_SECONDS = 20


def show_versions() -> None:
    """Prints the versions of binshift, Python, Java, Spark and the libraries.

    Paste it into a report of a fault. Nothing of it is secret: it names no checkpoint, no host and no setting.
    """
    jars = ", ".join(f"Spark {spark}" for spark in installed_jars()) or "none"
    rows = {
        "binshift": version,
        "jars": f"{jars} (supported: {', '.join(SUPPORTED_SPARK)})",
        "Python": f"{platform.python_version()} ({platform.python_implementation()})",
        "system": f"{platform.system()} {platform.release()} {platform.machine()}",
        "Java": _java(),
        **{name: _installed(name) for name in _LIBRARIES},
    }
    width = max(map(len, rows))
    sys.stdout.write("".join(f"{name:<{width}}  {found}\n" for name, found in rows.items()))


def _installed(library: str) -> str:
    try:
        return distribution(library).version
    except PackageNotFoundError:
        pass
    # As a vendor's runtime has it: on the path, and unknown to pip.
    module = sys.modules.get(library)
    return str(getattr(module, "__version__", "not installed"))


def _java() -> str:
    """The version of the Java that a new driver of this process would start."""
    home = os.environ.get("JAVA_HOME")
    java = str(Path(home, "bin", "java")) if home else shutil.which("java")
    if java is None:
        return "not found; set JAVA_HOME, or put java onto PATH"
    try:
        said = subprocess.run(
            [java, "-version"], capture_output=True, text=True, timeout=_JAVA_SECONDS, check=True
        )
    except (OSError, subprocess.SubprocessError) as error:
        return f"{java} does not run: {error}"
    found = re.search(r'version "([^"]+)"', said.stderr)
    return f"{found[1] if found else said.stderr.strip()} ({java})"
