"""Build hook: puts the jars into the package, building one with Gradle where there is none that is up to date.

A source tree has a jar for each minor version of Spark that it was built for (`make jar SPARK=4.2`). If it has
none, as in `pip install git+...`, the hook builds one: for the newest Spark, or for the one that BINSHIFT_SPARK
names. It doesn't build more, because an environment has only one pyspark to compile against.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

NEWEST = "4.3"
OLDEST_JAVA = 17


class JarBuildHook(BuildHookInterface):  # type: ignore[misc]
    """Puts `python/binshift/jars/binshift-spark<minor>_2.13-<version>.jar` into the wheel."""

    PLUGIN_NAME = "custom"

    def dependencies(self) -> list[str]:
        """pyspark, whose jars are compiler and class path; nothing if a jar exists already."""
        if self._current_jars():
            return []
        # Checked first, so that pip doesn't fetch 450 MB in vain.
        self._require_tools()
        return [f"pyspark=={self._spark()}.*"]

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Called before the files of the wheel are collected."""
        build_data["pure_python"] = True
        current = self._current_jars()
        if version != "editable":
            for outdated in set(self._jars_folder.glob("*.jar")) - set(current):
                outdated.unlink()
        if current:
            return
        self._require_tools()
        command = ["gradle", "--quiet", "--no-daemon", "jar", f"-Ppython={sys.executable}"]
        subprocess.run(command, cwd=self.root, check=True)

    def _spark(self) -> str:
        """The minor version of Spark whose jar has to be built."""
        spark = os.environ.get("BINSHIFT_SPARK", NEWEST)
        known = sorted(
            f.name.removeprefix("spark-") for f in (Path(self.root) / "jvm_shim/src").glob("spark-*")
        )
        if spark not in known:
            raise SystemExit(f"BINSHIFT_SPARK is {spark!r}; set it to one of {', '.join(known)}, or unset it")
        return spark

    def _require_tools(self) -> None:
        """Raises an error that lists everything that is missing to build the jar.

        Raises
        ------
        SystemExit
            The message says what to install.
        """
        java = _java_version()
        home = os.environ.get("JAVA_HOME")
        where = f"JAVA_HOME, {home}, has no Java that runs" if home else "there is no Java on PATH"
        wrong = []
        if java is None:
            wrong.append(f"{where}: install a JDK of version {OLDEST_JAVA} or newer, and set JAVA_HOME to it")
        elif java < OLDEST_JAVA:
            wrong.append(
                f"Java is {java}: install a JDK of version {OLDEST_JAVA} or newer, and set JAVA_HOME to it"
            )
        if shutil.which("gradle") is None:
            wrong.append("there is no Gradle on PATH: install it")
        if wrong:
            problems = "".join(f"\n- {problem}" for problem in wrong)
            # Not an exception of another kind, because pip would print the stack of each above the message.
            raise SystemExit(
                "binshift is being built from its sources, which compiles its jar, and something that this "
                f"needs is missing:{problems}\n"
                "On Debian and Ubuntu, 'apt-get install openjdk-17-jdk-headless gradle' installs both. A wheel "
                "of binshift needs neither of them."
            )

    @property
    def _jars_folder(self) -> Path:
        return Path(self.root) / "python/binshift/jars"

    def _current_jars(self) -> list[Path]:
        """The jars of this version that are newer than their sources."""
        root = Path(self.root)
        properties = root / "gradle.properties"
        match = re.search(r"^version=(.+)$", properties.read_text(), re.MULTILINE)
        assert match is not None, "gradle.properties names no version"
        jars = self._jars_folder.glob(f"binshift-spark*_2.13-{match[1]}.jar")
        return [jar for jar in jars if jar.stat().st_mtime >= self._changed(jar)]

    def _changed(self, jar: Path) -> float:
        """When a source of the jar was changed last."""
        root = Path(self.root)
        sources = [root / "gradle.properties", root / "build.gradle"]
        spark = jar.name.removeprefix("binshift-spark").partition("_")[0]
        for folder in ("statestore", "jvm_shim"):
            for part in (root / folder / "src").iterdir():
                if _is_of(part.name, spark):
                    sources += [p for p in part.rglob("*") if p.is_file()]
        return max(p.stat().st_mtime for p in sources)


def _java_version() -> int | None:
    """The major version of the Java that Gradle uses; None if there is none that runs."""
    home = os.environ.get("JAVA_HOME")
    java = str(Path(home, "bin", "java")) if home else shutil.which("java")
    if java is None:
        return None
    try:
        said = subprocess.run([java, "-version"], capture_output=True, text=True, check=True).stderr
    except (OSError, subprocess.CalledProcessError):
        return None
    found = re.search(r'version "(?:1\.)?(\d+)', said)
    return None if found is None else int(found[1])


def _is_of(folder: str, spark: str) -> bool:
    """True if the sources in a folder are for a version of Spark. Must agree with build.gradle."""
    kind, _, bound = folder.partition("-")
    if not bound:
        return kind == "main"
    (here, limit) = (tuple(map(int, v.split("."))) for v in (spark, bound))
    return {"spark": here == limit, "since": here >= limit, "until": here <= limit}[kind]
