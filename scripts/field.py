"""Runs the tests that need servers, part by part, and says in a table what was run with which versions.

A part that fails does not keep the others from running; the exit code tells. `--only kafka s3` runs some.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
import tempfile
import xml.etree.ElementTree as ET
from dataclasses import dataclass
from pathlib import Path

import pyspark

ROOT = Path(__file__).resolve().parents[1]
SERVERS = ROOT / "python/devtools/servers"


@dataclass(frozen=True, kw_only=True)
class Part:
    """Some tests, and the artifacts of Maven whose versions matter to them."""

    name: str
    tests: tuple[str, ...]
    artifacts: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """What became of a part."""

    part: Part
    passed: int
    failed: int
    skipped: int
    seconds: float


_CHECKPOINTS = "tests/field/test_checkpoints.py"
PARTS = (
    Part(name="kafka", tests=("tests/field/test_kafka.py",),
         artifacts=(("kafka", "kafka_2.13"), ("spark-kafka", "spark-sql-kafka-0-10_2.13"))),
    Part(name="s3", tests=(_CHECKPOINTS, "-k", "s3"), artifacts=(("s3a", "hadoop-aws"),)),
    Part(name="hdfs", tests=(_CHECKPOINTS, "-k", "hdfs"), artifacts=(("hdfs", "hadoop-client-minicluster"),)),
    Part(name="autoscaling", tests=("tests/field/test_autoscaling.py",)),
    Part(name="standalone", tests=("tests/cluster/test_standalone.py",)),
    Part(name="spark-submit", tests=("tests/cluster/test_submitted.py",)),
    Part(name="connect", tests=("tests/local/test_connect.py",)),
)  # fmt: skip


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", nargs="+", choices=[p.name for p in PARTS], help="parts to run")
    only = parser.parse_args().only
    outcomes = [run(part) for part in PARTS if only is None or part.name in only]
    print(table(outcomes))
    return int(any(o.failed or not o.passed for o in outcomes))


def run(part: Part) -> Outcome:
    print(f"\n== {part.name} ==", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.xml"
        # An expression that is always true, because without one the field is left out.
        marker = ["-m", "field or not field", f"--junitxml={report}"]
        done = subprocess.run(
            [sys.executable, "-m", "pytest", "-n", "0", "-q", *part.tests, *marker], cwd=ROOT, check=False
        )
        if not report.exists():
            return Outcome(part=part, passed=0, failed=1, skipped=0, seconds=0.0)
        suite = next(ET.parse(report).getroot().iter("testsuite")).attrib
    bad = int(suite["failures"]) + int(suite["errors"])
    skipped = int(suite["skipped"])
    passed = int(suite["tests"]) - bad - skipped
    return Outcome(
        part=part,
        passed=passed,
        failed=bad or int(done.returncode != 0),
        skipped=skipped,
        seconds=float(suite["time"]),
    )


def table(outcomes: list[Outcome]) -> str:
    """As Markdown, for the docs."""
    rows = [
        f"\nSpark {pyspark.__version__}\n",
        "| part | with | passed | failed | skipped | s |",
        "|---|---|---|---|---|---|",
    ]
    for o in outcomes:
        versions = (
            ", ".join(f"{name} {version(file, name)}" for file, name in o.part.artifacts) or "Spark alone"
        )
        rows.append(f"| {o.part.name} | {versions} | {o.passed} | {o.failed} | {o.skipped} | {o.seconds:.0f} |")
    return "\n".join(rows)


def version(file: str, artifact: str) -> str:
    """What Maven is asked for."""
    found = re.search(
        rf"<artifactId>{re.escape(artifact)}</artifactId>\s*<version>([^<]+)",
        (SERVERS / f"{file}.xml").read_text(),
    )
    assert found is not None
    return found[1]


if __name__ == "__main__":
    sys.exit(main())
