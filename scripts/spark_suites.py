#!/usr/bin/env python3
"""Runs Spark's own streaming suites with binshift's provider, and tells what differs from the stock one.

The suites are the test jars of a Spark release, which Maven fetches from wherever its settings say. Their
sessions get the provider from a system property; where a suite names Spark's RocksDB provider itself, the name
is replaced in its compiled classes. A suite runs once on each provider, and its tests are compared one by one:
what passes on the stock provider has to pass on binshift's, or to be explained in devtools/suites/explained.py.

Results are kept, and what has ended does not run again, so that a long run can go on after a stop.

    scripts/spark_suites.py                        the selection below
    scripts/spark_suites.py --all --minutes 60     all suites of streams and state, for an hour; writes the page
    scripts/spark_suites.py --again --suite streaming.StreamingInnerJoinV4Suite
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import time
from pathlib import Path

import pyspark

import binshift.session
from devtools.suites.report import HEAD, Comparison, page
from devtools.suites.running import Provider, Runner
from devtools.suites.testjars import PACKAGE, fetch, suites, unpack

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs/spark-suites.md"
STOCK = binshift.session.STOCK_PROVIDER

SELECTION = [
    "streaming.RocksDBStateStoreStreamingAggregationSuite",
    "streaming.RocksDBStateStoreStreamingDeduplicationSuite",
    "streaming.StreamingDeduplicationWithinWatermarkSuite",
    "streaming.StreamingSessionWindowSuite",
    "streaming.StreamingInnerJoinWithoutVCFSuite",
    "streaming.StreamingInnerJoinV4Suite",
    "streaming.StreamingOuterJoinWithVCFSuite",
    "streaming.StreamingOuterJoinV4Suite",
    "streaming.StreamingFullOuterJoinWithoutVCFSuite",
    "streaming.StreamingLeftSemiJoinV4Suite",
    "streaming.RocksDBStateStoreFlatMapGroupsWithStateSuite",
    "streaming.FlatMapGroupsWithStateWithInitialStateSuite",
    "streaming.TransformWithStateUnsafeRowSuite",
    "streaming.TransformWithStateAvroSuite",
    "streaming.TransformWithStateChainingSuite",
    "streaming.TransformWithStateInitialStateSuite",
    "streaming.TransformWithListStateSuite",
    "streaming.TransformWithListStateTTLSuite",
    "streaming.TransformWithMapStateSuite",
    "streaming.TransformWithMapStateTTLSuite",
    "streaming.TransformWithValueStateTTLSuite",
    "streaming.MultiStatefulOperatorsSuite",
    "streaming.EventTimeWatermarkSuite",
    "execution.streaming.state.RocksDBStateStoreIntegrationSuite",
]


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


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--suite", action="append", help=f"suite below {PACKAGE}; may be repeated")
    parser.add_argument("--all", action="store_true", help="all suites of streams and state; writes the page")
    parser.add_argument("--spark", default="4.2.0", help="release whose suites are run")
    parser.add_argument("--minutes", type=float, help="begin no suite after so long")
    parser.add_argument("--again", action="store_true", help="run on binshift's provider also what has run")
    parser.add_argument("--work", type=Path, default=ROOT / "build/spark-suites")
    args = parser.parse_args()
    ends = time.monotonic() + 60 * args.minutes if args.minutes else float("inf")
    work = args.work.resolve() / args.spark
    libs = fetch(work, args.spark)
    python = interpreter(work, args.spark)
    jar = built(python, args.spark)
    ours = binshift.session.PROVIDER
    stock = Provider(STOCK, "stock", unpack(libs, work / "classes-stock", None))
    # The suites' sessions do not look for extensions on the class path.
    extension = "-Dspark.sql.extensions=org.apache.spark.sql.binshift.BinshiftExtensions"
    binned = Provider(
        ours, "binshift", unpack(libs, work / "classes-binshift", (STOCK, ours)), (jar,), (extension,)
    )
    runner = Runner(work, libs, spark_jars(python), STOCK)
    every = suites(stock.classes)
    # What is most about state comes first.
    wanted = args.suite or ([*SELECTION, *(s for s in every if s not in SELECTION)] if args.all else SELECTION)
    compared = {}
    print(HEAD)
    for suite in wanted:
        if args.again:
            runner.forget(suite, binned)
        if time.monotonic() > ends and not (runner.kept(suite, stock) and runner.kept(suite, binned)):
            continue
        one = Comparison(suite, runner.outcome(suite, stock), runner.outcome(suite, binned))
        compared[suite] = one
        print(one.line, flush=True)
        for test, reason in one.differs.items():
            print(f"    {test}: {reason or 'NOT EXPLAINED'}", flush=True)
    if args.all:
        PAGE.write_text(page(compared, args.spark, len(every) - len(compared)))
    return 1 if any(c.unexplained or not c.tests for c in compared.values()) else 0


if __name__ == "__main__":
    sys.exit(main())
