#!/usr/bin/env python3
"""Runs Spark's own streaming suites with binshift's provider, and reports differences from the stock one.

The suites are the test jars of a Spark release, which Maven fetches from the repositories in its settings.
Their sessions get the provider from a system property. If a suite names Spark's RocksDB provider itself, the
name is replaced in its compiled classes. A test that fails on binshift's provider also runs on the stock one:
if it passes there, it has to pass here, or be explained in devtools/suites/explained.py.

Results are kept in devtools/suites/results.jsonl. Suites with a result don't run again, so a long run can
continue after a stop, on this machine or on another.

    scripts/spark_suites.py                        a suite or two of each operator
    scripts/spark_suites.py --all --minutes 60     all suites of streams and state, for an hour
    scripts/spark_suites.py --spark 4.1.1          those of another release
    scripts/spark_suites.py --again --suite streaming.StreamingInnerJoinV4Suite
"""

from __future__ import annotations

import argparse
import hashlib
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pyspark

import binshift.session
from devtools.suites.comparing import Comparing
from devtools.suites.order import SELECTION, by_weight
from devtools.suites.report import HEAD, page, section, sections
from devtools.suites.results import Results
from devtools.suites.running import Provider, Runner
from devtools.suites.testjars import PACKAGE, fetch, suites, unpack

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs/spark-suites.md"
RESULTS = ROOT / "python/devtools/suites/results.jsonl"
STOCK = binshift.session.STOCK_PROVIDER


def interpreter(work: Path, spark: str) -> Path:
    """An interpreter with that very pyspark; makes an environment for it if this one has another."""
    if spark == pyspark.__version__:
        return Path(sys.executable)
    python = work / f"venv-{spark}/bin/python"
    ready = python.parent / "ready"
    if not ready.exists():
        subprocess.run([sys.executable, "-m", "venv", str(python.parents[1])], check=True)
        subprocess.run([str(python), "-m", "pip", "install", "--quiet", f"pyspark=={spark}"], check=True)
        ready.touch()
    return python


def spark_jars(python: Path) -> Path:
    """The jars of the pyspark of an interpreter."""
    code = "import os, pyspark; print(os.path.dirname(pyspark.__file__))"
    home = subprocess.run([str(python), "-c", code], check=True, capture_output=True, text=True).stdout
    return Path(home.strip()) / "jars"


def built(python: Path, spark: str) -> Path:
    """The jar for that Spark, compiled against it."""
    command = ["gradle", "--quiet", "--no-daemon", "jar", f"-Ppython={python}"]
    subprocess.run(command, cwd=ROOT, check=True)
    return binshift.session.jar_for(spark)


def binned(work: Path, libs: list[Path], jar: Path) -> Provider:
    """Binshift's provider, with a jar of its own that a build in the meantime does not touch."""
    kept = work / "jars" / f"{hashlib.sha256(jar.read_bytes()).hexdigest()[:16]}.jar"
    kept.parent.mkdir(parents=True, exist_ok=True)
    shutil.copy(jar, kept)
    commit = ["git", "log", "-1", "--format=%h", "--", "statestore", "jvm_shim"]
    written = subprocess.run(commit, cwd=ROOT, check=True, capture_output=True, text=True).stdout.strip()
    ours = binshift.session.PROVIDER
    # The suites' sessions do not look for extensions on the class path.
    extension = "-Dspark.sql.extensions=org.apache.spark.sql.binshift.BinshiftExtensions"
    classes = unpack(libs, work / "classes-binshift", (STOCK, ours))
    return Provider(ours, "binshift", written, classes, (kept,), (extension,))


def write_page(every: list[str], comparing: Comparing, spark: str) -> None:
    """Writes the page with the results of a release, and keeps its sections on others."""
    known = {suite: comparing.known(suite) for suite in sorted(every)}
    left = [suite for suite, compared in known.items() if compared is None]
    told = section([c for c in known.values() if c], spark, left)
    PAGE.write_text(page(sections(PAGE.read_text()) | {spark: told}))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--suite", action="append", help=f"suite below {PACKAGE}; may be repeated")
    parser.add_argument("--all", action="store_true", help="all suites of streams and state")
    parser.add_argument("--spark", default="4.2.0", help="release whose suites are run")
    parser.add_argument("--minutes", type=float, help="begin no suites after so long; 0 only writes the page")
    parser.add_argument("--again", action="store_true", help="run also what has run")
    parser.add_argument("--at-once", type=int, default=6, help="how many suites share a JVM")
    parser.add_argument("--work", type=Path, default=ROOT / "build/spark-suites")
    args = parser.parse_args()
    ends = time.monotonic() + 60 * args.minutes if args.minutes is not None else float("inf")
    work = args.work.resolve() / args.spark
    libs = fetch(work, args.spark)
    python = interpreter(work, args.spark)
    stock = Provider(STOCK, "stock", args.spark, unpack(libs, work / "classes-stock", None))
    ours = binned(work, libs, built(python, args.spark))
    results = Results(RESULTS)
    comparing = Comparing(Runner(work, libs, spark_jars(python), args.spark, STOCK), results, ours, stock)
    every = by_weight(suites(stock.classes))
    wanted = args.suite or (every if args.all else [suite for suite in SELECTION if suite in every])
    if args.again:
        results.forget(wanted, args.spark)
    print(HEAD)
    for at in range(0, len(wanted), args.at_once):
        some = wanted[at : at + args.at_once]
        if time.monotonic() < ends:
            comparing.run(some)
        for one in filter(None, map(comparing.known, some)):
            print(one.line, flush=True)
            for test, reason in one.differs.items():
                print(f"    {test}: {reason or 'NOT EXPLAINED'}", flush=True)
        write_page(every, comparing, args.spark)
    known = filter(None, map(comparing.known, wanted))
    return 1 if any(c.unexplained or not c.ours.ended for c in known) else 0


if __name__ == "__main__":
    sys.exit(main())
