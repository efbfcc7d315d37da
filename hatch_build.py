"""Build hook: puts the jars into the package, building one with Gradle where there is none that is up to date.

A source tree has a jar for each minor version of Spark that it was built for (`make jar SPARK=4.2`). The
hook itself builds that of the newest only, because an environment has one pyspark to compile against.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

NEWEST = "4.3"


class JarBuildHook(BuildHookInterface):  # type: ignore[misc]
    """Puts `python/binshift/jars/binshift-spark<minor>_2.13-<version>.jar` into the wheel."""

    PLUGIN_NAME = "custom"

    def dependencies(self) -> list[str]:
        """pyspark, whose jars are compiler and class path; nothing if a jar is there."""
        return [] if self._current_jars() else [f"pyspark=={NEWEST}.*"]

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Called before the files of the wheel are collected."""
        build_data["pure_python"] = True
        current = self._current_jars()
        if version != "editable":
            for outdated in set(self._jars_folder.glob("*.jar")) - set(current):
                outdated.unlink()
        if current:
            return
        gradle = shutil.which("gradle")
        if gradle is None:
            raise RuntimeError(
                "the binshift jar has to be built and there is no Gradle; install it (Debian: apt-get "
                "install gradle) or install a wheel, which carries the jars"
            )
        command = [gradle, "--quiet", "--no-daemon", "jar", f"-Ppython={sys.executable}"]
        subprocess.run(command, cwd=self.root, check=True)

    @property
    def _jars_folder(self) -> Path:
        return Path(self.root) / "python/binshift/jars"

    def _current_jars(self) -> list[Path]:
        """The jars of this version that are newer than what they are built of."""
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


def _is_of(folder: str, spark: str) -> bool:
    """Whether sources in a folder are for a version of Spark, as build.gradle has it."""
    kind, _, bound = folder.partition("-")
    if not bound:
        return kind == "main"
    (here, limit) = (tuple(map(int, v.split("."))) for v in (spark, bound))
    return {"spark": here == limit, "since": here >= limit, "until": here <= limit}[kind]
