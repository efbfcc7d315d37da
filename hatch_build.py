"""Build hook: puts the jar into the package, building it with Gradle where it is missing or outdated."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class JarBuildHook(BuildHookInterface):  # type: ignore[misc]
    """Builds `python/binshift/jars/binshift-spark4.3_2.13-<version>.jar`."""

    PLUGIN_NAME = "custom"

    def dependencies(self) -> list[str]:
        """pyspark, whose jars are compiler and class path; nothing if the jar is there."""
        return [] if self._is_current() else ["pyspark>=4.3,<4.4"]

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Called before the files of the wheel are collected."""
        build_data["pure_python"] = True
        if self._is_current():
            return
        gradle = shutil.which("gradle")
        if gradle is None:
            raise RuntimeError(
                "the binshift jar has to be built and there is no Gradle; install it (Debian: apt-get "
                "install gradle) or install a wheel, which carries the jar"
            )
        command = [gradle, "--quiet", "--no-daemon", "jar", f"-Ppython={sys.executable}"]
        subprocess.run(command, cwd=self.root, check=True)

    def _is_current(self) -> bool:
        root = Path(self.root)
        properties = root / "gradle.properties"
        match = re.search(r"^version=(.+)$", properties.read_text(), re.MULTILINE)
        assert match is not None, "gradle.properties names no version"
        jar = root / "python/binshift/jars" / f"binshift-spark4.3_2.13-{match[1]}.jar"
        sources = [properties, root / "build.gradle"]
        for folder in ("statestore", "jvm_shim"):
            sources += [p for p in (root / folder).rglob("*") if p.is_file()]
        return jar.is_file() and all(p.stat().st_mtime <= jar.stat().st_mtime for p in sources)
