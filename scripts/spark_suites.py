"""Runs Spark's own streaming suites with binshift's provider, and tells what differs from the stock one.

The suites are the test jars of a Spark release, which Maven fetches from wherever its settings say. Their
sessions get the provider from a system property; where a suite names Spark's RocksDB provider itself, the name
is replaced in its compiled classes. A suite runs once on each provider, and its tests are compared one by one:
what passes on the stock provider has to pass on binshift's, or to be explained below.

    scripts/spark_suites.py                        the selection below
    scripts/spark_suites.py --suite streaming.StreamingInnerJoinV4Suite
"""

from __future__ import annotations

import argparse
import os
import shutil
import struct
import subprocess
import sys
import xml.etree.ElementTree as ET
import zipfile
from pathlib import Path

import pyspark

import binshift.session

STOCK = binshift.session.STOCK_PROVIDER
JARS = Path(pyspark.__file__).parent / "jars"
PACKAGE = "org.apache.spark.sql."

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

#: Tests that fail with binshift's provider only, and why they may. Part of the name is enough.
EXPLAINED: dict[str, str] = {
    "introducing TTL after restart fails query": "a race in the test: it stops the query in the middle of a "
    "batch; if that batch was not committed, the error that it expects comes before the test waits for it",
}

SCALATEST = [
    "scalatest-core", "scalatest-funsuite", "scalatest-funspec", "scalatest-flatspec", "scalatest-freespec",
    "scalatest-featurespec", "scalatest-wordspec", "scalatest-propspec", "scalatest-refspec",
    "scalatest-diagrams", "scalatest-matchers-core", "scalatest-shouldmatchers", "scalatest-mustmatchers",
]  # fmt: skip

#: Asks Maven for jars; nothing is built.
POM = """<project><modelVersion>4.0.0</modelVersion>
<groupId>binshift</groupId><artifactId>spark-suites</artifactId><version>1</version>
<dependencies>{dependencies}</dependencies></project>
"""

OPENED = [
    "java.lang", "java.lang.invoke", "java.lang.reflect", "java.io", "java.net", "java.nio", "java.util",
    "java.util.concurrent", "java.util.concurrent.atomic", "jdk.internal.ref", "sun.nio.ch", "sun.nio.cs",
    "sun.security.action", "sun.util.calendar",
]  # fmt: skip


def artifacts(spark: str) -> list[tuple[str, str, str, str]]:
    """Group, artifact, version and classifier of the jars that are needed beside Spark's own."""
    tests = [f"spark-{m}_2.13" for m in ("sql", "catalyst", "core", "sql-api", "tags", "common-utils")]
    return [
        *(("org.apache.spark", m, spark, "tests") for m in tests),
        *(("org.scalatest", f"{m}_2.13", "3.2.19", "") for m in SCALATEST),
        ("org.scalatest", "scalatest-compatible", "3.2.19", ""),
        ("org.scalactic", "scalactic_2.13", "3.2.19", ""),
        ("org.scalatestplus", "scalacheck-1-18_2.13", "3.2.19.0", ""),
        ("org.scalacheck", "scalacheck_2.13", "1.18.0", ""),
        ("org.scalatestplus", "mockito-5-12_2.13", "3.2.19.0", ""),
        ("org.mockito", "mockito-core", "5.12.0", ""),
        ("net.bytebuddy", "byte-buddy", "1.14.17", ""),
    ]


def fetch(work: Path, spark: str) -> list[Path]:
    """The jars of `artifacts`, each without what it depends on, by Maven."""
    lib = work / f"lib-{spark}"
    if not lib.exists():
        staging = lib.with_suffix(".part")
        staging.mkdir(parents=True, exist_ok=True)
        pom = staging / "pom.xml"
        pom.write_text(POM.format(dependencies="".join(map(_dependency, artifacts(spark)))))
        goal = ["dependency:copy-dependencies", "-DexcludeTransitive=true", f"-DoutputDirectory={staging}"]
        done = subprocess.run(["mvn", "-q", "-B", "-f", str(pom), *goal], check=False)
        if done.returncode != 0:
            raise SystemExit(f"Maven serves no test jars of Spark {spark}; name another release with --spark")
        staging.rename(lib)
    return sorted(lib.glob("*.jar"))


def _dependency(artifact: tuple[str, str, str, str]) -> str:
    group, name, version, classifier = artifact
    kind = f"<classifier>{classifier}</classifier>" if classifier else ""
    ids = f"<groupId>{group}</groupId><artifactId>{name}</artifactId><version>{version}</version>"
    return f"<dependency>{ids}{kind}</dependency>"


def unpack(tests: Path, target: Path, provider: str) -> Path:
    """The test classes in a directory (some tests look for resources as files), naming `provider`."""
    if not target.exists():
        staging = target.with_suffix(".part")
        shutil.rmtree(staging, ignore_errors=True)
        with zipfile.ZipFile(tests) as jar:
            jar.extractall(staging)
        if provider != STOCK:
            for file in (staging / "org/apache/spark/sql").rglob("*.class"):
                code = file.read_bytes()
                changed = renamed(code, STOCK.replace(".", "/"), provider.replace(".", "/"))
                if changed != code:
                    file.write_bytes(changed)
        staging.rename(target)
    return target


def renamed(code: bytes, old: str, new: str) -> bytes:
    """A class file whose constant pool says `new` where it says exactly `old`."""
    sizes = {
        3: 4,
        4: 4,
        5: 8,
        6: 8,
        7: 2,
        8: 2,
        9: 4,
        10: 4,
        11: 4,
        12: 4,
        15: 3,
        16: 2,
        17: 4,
        18: 4,
        19: 2,
        20: 2,
    }
    (count,) = struct.unpack_from(">H", code, 8)
    out, at, index = [code[:10]], 10, 1
    while index < count:
        tag = code[at]
        if tag == 1:
            (length,) = struct.unpack_from(">H", code, at + 1)
            text = code[at + 3 : at + 3 + length]
            if text == old.encode():
                text = new.encode()
            out.append(struct.pack(">BH", 1, len(text)) + text)
            at += 3 + length
        else:
            out.append(code[at : at + 1 + sizes[tag]])
            at += 1 + sizes[tag]
        index += 2 if tag in (5, 6) else 1
    return b"".join([*out, code[at:]])


def run(suite: str, provider: str, classes: Path, libs: list[Path], work: Path) -> dict[str, bool]:
    """Whether each test of the suite passed; empty if the suite could not be run at all."""
    name = "stock" if provider == STOCK else "binshift"
    reports, scratch = work / "reports" / name / suite, work / "scratch" / name
    shutil.rmtree(reports, ignore_errors=True)
    shutil.rmtree(scratch, ignore_errors=True)
    for directory in (reports, scratch):
        directory.mkdir(parents=True)
    path = [str(classes), *(str(j) for j in libs if not j.name.startswith("spark-sql_")), f"{JARS}/*"]
    extension = []
    if provider != STOCK:
        path.insert(0, str(binshift.session.jar_path()))
        # The suites' sessions do not look for extensions on the class path.
        extension = ["-Dspark.sql.extensions=org.apache.spark.sql.binshift.BinshiftExtensions"]
    command = [
        "java", "-Xss8m", "-Xmx4g", *(f"--add-opens=java.base/{p}=ALL-UNNAMED" for p in OPENED),
        "-Dspark.testing=1", "-Dspark.ui.enabled=false", "-Djdk.reflect.useDirectMethodHandle=false",
        *extension, f"-Dspark.sql.streaming.stateStore.providerClass={provider}",
        f"-Dspark.test.home={scratch}", f"-Djava.io.tmpdir={scratch}", "-cp", os.pathsep.join(path),
        "org.scalatest.tools.Runner", "-R", str(classes), "-s", PACKAGE + suite, "-u", str(reports),
    ]  # fmt: skip
    with (reports / "log.txt").open("w") as log:
        subprocess.run(command, cwd=scratch, stdout=log, stderr=subprocess.STDOUT, check=False)
    shutil.rmtree(scratch, ignore_errors=True)
    return {
        # Some suites say in a test's name which provider it runs on.
        case.get("name", "").replace(provider, STOCK): case.find("failure") is None
        and case.find("error") is None
        for report in reports.glob("*.xml")
        for case in ET.parse(report).iter("testcase")
        if case.find("skipped") is None
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--suite", action="append", help=f"suite below {PACKAGE}; may be repeated")
    parser.add_argument("--spark", default=pyspark.__version__, help="release whose suites are run")
    parser.add_argument("--work", type=Path, default=Path("build/spark-suites"))
    args = parser.parse_args()
    work = args.work.resolve()
    libs = fetch(work, args.spark)
    tests = next(j for j in libs if j.name.startswith("spark-sql_"))
    providers = {STOCK: work / "classes-stock", binshift.session.PROVIDER: work / "classes-binshift"}
    unexplained = 0
    print(f"{'suite':70} tests  both pass  both fail  only binshift fails")
    for suite in args.suite or SELECTION:
        stock, ours = (run(suite, p, unpack(tests, c, p), libs, work) for p, c in providers.items())
        differs = sorted(t for t, passed in stock.items() if passed and not ours.get(t, False))
        both = [
            sum(1 for t, passed in stock.items() if passed is x and ours.get(t) is x) for x in (True, False)
        ]
        print(f"{suite:70} {len(stock):5}  {both[0]:9}  {both[1]:9}  {len(differs)}", flush=True)
        for test in differs:
            reason = next((r for part, r in EXPLAINED.items() if part in test), None)
            unexplained += reason is None
            print(f"    {test}: {reason or 'NOT EXPLAINED'}", flush=True)
        unexplained += not stock
    return 1 if unexplained else 0


if __name__ == "__main__":
    sys.exit(main())
