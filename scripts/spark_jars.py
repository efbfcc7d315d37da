#!/usr/bin/env python3
"""Prints a directory with the jars of a minor version of Spark: `spark_jars.py 4.2`.

An environment with that pyspark has them. If there is none, pip downloads the package, and its jars are
unpacked into `build/`. It is not installed, because compiling needs nothing but the jars.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import IO

ROOT = Path(__file__).parents[1]
#: The version whose environment is `.venv`.
NEWEST = "4.3"


def main(minor: str) -> None:
    """Prints the directory; progress goes to stderr."""
    environment = f".venv{'' if minor == NEWEST else f'-{minor}'}"
    unpacked = ROOT / f"build/spark-{minor}"
    for jars in (*ROOT.glob(f"{environment}/lib/python3*/site-packages/pyspark/jars"), unpacked):
        if any(jars.glob(f"spark-core_2.13-{minor}.*.jar")):
            print(jars)
            return
    fetch(minor, unpacked)
    print(unpacked)


def fetch(minor: str, target: Path) -> None:
    """Puts the jars into `target`, which is there when all of them are."""
    target.parent.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=f"spark-{minor}-", dir=target.parent) as scratch:
        folder = Path(scratch)
        print(f"Spark {minor}: downloading pyspark for its jars, 450 MB", file=sys.stderr, flush=True)
        pip = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check"]
        download = ["download", "--no-deps", "--no-cache-dir", "--dest", scratch, f"pyspark=={minor}.*"]
        subprocess.run([*pip, *download], check=True, stdout=subprocess.DEVNULL)
        (package,) = (f for f in folder.iterdir() if f.is_file())
        print(f"Spark {minor}: unpacking the jars of {package.name}", file=sys.stderr, flush=True)
        jars = folder / "jars"
        jars.mkdir()
        for name, stream in jars_of(package):
            with (jars / name).open("wb") as file:
                shutil.copyfileobj(stream, file, 1 << 20)
        shutil.rmtree(target, ignore_errors=True)
        jars.rename(target)


def jars_of(package: Path) -> Iterator[tuple[str, IO[bytes]]]:
    """The jars in a source distribution or a wheel of pyspark, by name."""
    if package.suffix == ".whl":
        with zipfile.ZipFile(package) as wheel:
            for name in wheel.namelist():
                if is_jar(name):
                    with wheel.open(name) as stream:
                        yield Path(name).name, stream
        return
    with tarfile.open(package) as sdist:
        for member in sdist:
            stream = sdist.extractfile(member) if is_jar(member.name) else None
            if stream is not None:
                yield Path(member.name).name, stream


def is_jar(name: str) -> bool:
    """True if it is one of Spark's jars, and none of an example."""
    path = Path(name)
    return path.suffix == ".jar" and path.parent.name == "jars" and "examples" not in path.parts


if __name__ == "__main__":
    main(*sys.argv[1:])
