"""Jars that Maven resolves, kept in build/field."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from pathlib import Path

__all__ = ["BUILD", "jars"]

HERE = Path(__file__).parent
BUILD = HERE.parents[2] / "build/field"
#: Artifacts that Spark contains itself, in other versions.
_OF_SPARK = ("io.netty", "org.slf4j", "commons-codec")


def jars(name: str, *, for_spark: bool = False) -> Sequence[Path]:
    """The jars that `<name>.xml` asks Maven for; `for_spark`, without those that Spark has itself."""
    lib = BUILD / name
    if not lib.exists():
        BUILD.mkdir(parents=True, exist_ok=True)
        staging = lib.with_suffix(".part")
        command = ["mvn", "-q", "-B", "-f", str(HERE / f"{name}.xml"), "dependency:copy-dependencies"]
        command += [f"-DoutputDirectory={staging}", "-DincludeScope=runtime"]
        command += [f"-DexcludeGroupIds={','.join(_OF_SPARK)}"] * for_spark
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise RuntimeError(f"Maven does not serve the jars of {name}:\n{done.stdout[-3000:]}")
        staging.rename(lib)
    return sorted(lib.glob("*.jar"))
