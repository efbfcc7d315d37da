"""Runs the tests that need servers, part by part, and records in docs/field.md what ran with which versions.

If a part fails, the others still run, and the exit code tells. `--only kafka s3` runs only these parts, and
keeps the page's rows of the others.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
import tempfile
import xml.etree.ElementTree as ET
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import Any

from devtools import cut_costs, results
from devtools.pages import with_part

ROOT = Path(__file__).resolve().parents[1]
SERVERS = ROOT / "python/devtools/servers"
PAGE, RESULTS = ROOT / "docs/field.md", ROOT / "tests/field/results.json"
#: A line for each cut.
CUTS = ROOT / "tests/field/hosts/results.jsonl"
#: The tables stand between these pairs of lines of the page.
MARKS = ("<!-- Below: written by `make field`. -->\n\n", "\n\n<!-- Above. -->")
CUT_MARKS = ("<!-- Below: written by `make field PART=hosts`. -->\n\n", "\n\n<!-- Above: cuts. -->")


@dataclass(frozen=True, kw_only=True)
class Part:
    """Some tests, what they try, and the artifacts of Maven and of PyPI whose versions matter to them."""

    name: str
    tests: tuple[str, ...]
    tries: str
    artifacts: tuple[tuple[str, str], ...] = ()
    packages: tuple[str, ...] = ()


_CHECKPOINTS, _CLAIMS = "tests/field/test_checkpoints.py", "tests/field/test_claims.py"
#: Drivers that are stopped, and wake up later. Each part has them under one of the checkpoint formats, and
#: stops them at half of the instants of a migration, because all of them would take an hour.
_STOPPED = "(at_any_instant or successor or table)"
# Only under format 1 does a start that was wound back delete state.
_S3_ONLY = f"s3 and not (s3-1 and {_STOPPED} and not clean) and (not at_any_instant or before or routing)"
_HDFS_ONLY = f"hdfs and not (hdfs-2 and {_STOPPED}) and (not at_any_instant or after)"
PARTS = (
    Part(
        name="kafka",
        tests=("tests/field/test_kafka.py",),
        tries="a query from topic to topic is rescaled under load, killed and started again; transactions are "
        "aborted; the demo",
        artifacts=(("kafka", "kafka_2.13"), ("spark-kafka", "spark-sql-kafka-0-10_2.13")),
        packages=("confluent-kafka",),
    ),
    Part(
        name="s3",
        tests=(_CHECKPOINTS, _CLAIMS, "-k", _S3_ONLY),
        tries="checkpoints of both formats: the query is rescaled, stopped, killed while bins move and at a "
        "step, converted; one of several executors dies; drivers and an executor are stopped, replaced and "
        "woken up again; Spark's file manager that writes in one request",
        artifacts=(("s3a", "hadoop-aws"), ("s3a", "spark-hadoop-cloud_2.13")),
        packages=("moto",),
    ),
    Part(
        name="hdfs",
        tests=(_CHECKPOINTS, _CLAIMS, "tests/field/test_hdfs.py", "-k", _HDFS_ONLY),
        tries="the same on one executor, with the file manager that renames",
        artifacts=(("hdfs", "hadoop-client-minicluster"),),
        packages=("hdfs-native",),
    ),
    Part(
        name="load",
        tests=("tests/field/test_load_curve.py",),
        tries="the load grows to ten times and falls again, and the autoscaler asks for executors and gives "
        "them back",
    ),
    Part(
        name="monitoring",
        tests=("tests/field/test_monitoring_rules.py",),
        tries="`promtool` accepts the alerts, the dashboard and the configuration, and the alerts fire",
    ),
    Part(
        name="kubernetes",
        tests=("tests/field/test_kubernetes.py",),
        tries="the manifests and the image have the form that Kubernetes and Docker accept, and fit together",
        packages=("kubernetes-validate",),
    ),
    Part(
        name="standalone",
        tests=("tests/cluster/test_standalone.py",),
        tries="authentication and encryption; workers die, join and are decommissioned; the autoscaler asks "
        "for executors; also in CI",
    ),
    Part(
        name="hosts",
        tests=("tests/field/hosts",),
        tries="five hosts, links between which are cut [while bins move](#a-cluster-of-hosts)",
        artifacts=(("s3a", "hadoop-aws"),),
        packages=("moto",),
    ),
    Part(
        name="spark-submit",
        tests=("tests/cluster/test_submitted.py",),
        tries="`spark-submit` in its forms, and the shell; also in CI",
    ),
    Part(
        name="connect",
        tests=(*(f"tests/local/test_{name}.py" for name in ("connect", "links", "demo")), "-k", "connect"),
        tries="a server in a process of its own, and one in the client's process, both also in CI; the demo",
    ),
)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", nargs="+", choices=[p.name for p in PARTS], help="parts to run")
    only = parser.parse_args().only
    outcomes = read()
    ran = {part.name: run(part) for part in PARTS if only is None or part.name in only}
    outcomes |= ran
    RESULTS.write_text(json.dumps(outcomes, indent=2, sort_keys=True) + "\n")
    PAGE.write_text(page(PAGE.read_text(), outcomes))
    print("\n" + table(ran, [p for p in PARTS if p.name in ran]))
    return int(any(o["failed"] or not o["passed"] for o in ran.values()))


def run(part: Part) -> dict[str, Any]:
    """The outcome of a part."""
    print(f"\n== {part.name} ==", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.xml"
        # An expression that is always true, because without one the field is left out.
        marker = ["-m", "field or not field", f"--junitxml={report}"]
        done = subprocess.run(
            [sys.executable, "-m", "pytest", "-n", "0", "-q", *part.tests, *marker], cwd=ROOT, check=False
        )
        made = ET.parse(report).getroot() if report.exists() else ET.fromstring("<none/>")
    suite = next(made.iter("testsuite"), ET.Element("testsuite")).attrib
    count = {name: int(suite.get(name, 0)) for name in ("tests", "failures", "errors", "skipped")}
    bad = count["failures"] + count["errors"]
    return {
        "on": datetime.now(UTC).date().isoformat(),
        "versions": versions(part),
        "passed": count["tests"] - bad - count["skipped"],
        "failed": bad or int(done.returncode != 0),
        "skipped": count["skipped"],
        "seconds": round(float(suite.get("time", 0))),
        "told": [p.attrib["value"] for p in made.iter("property") if p.attrib["name"] == "told"],
    }


def versions(part: Part) -> dict[str, str]:
    """The versions of Spark, the clients and the servers, in the order of the results."""
    return dict(sorted(({p: metadata.version(p) for p in ("pyspark", *part.packages)} | asked(part)).items()))


def asked(part: Part) -> dict[str, str]:
    """The artifacts that Maven is asked for, in a part."""
    return {name: version(file, name) for file, name in part.artifacts}


def version(file: str, artifact: str) -> str:
    """The version that Maven is asked for."""
    found = re.search(
        rf"<artifactId>{re.escape(artifact)}</artifactId>\s*<version>([^<]+)",
        (SERVERS / f"{file}.xml").read_text(),
    )
    assert found is not None
    return found[1]


def read() -> dict[str, Any]:
    return json.loads(RESULTS.read_text()) if RESULTS.exists() else {}


def page(text: str, outcomes: Mapping[str, Any]) -> str:
    """The text of the page with the tables of what was run, and of what cuts cost."""
    return with_part(with_part(text, MARKS, table(outcomes)), CUT_MARKS, cut_costs.table(results.read(CUTS)))


def table(outcomes: Mapping[str, Any], parts: Sequence[Part] = PARTS) -> str:
    """The table as Markdown; a part that hasn't run yet has no figures."""
    rows = [
        "| part | what is tried | with | passed | failed | skipped | s | on |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for part in parts:
        ran = outcomes.get(part.name, {})
        used = ", ".join(f"{name} {number}" for name, number in (ran.get("versions") or asked(part)).items())
        counts = " | ".join(str(ran.get(name, "")) for name in ("passed", "failed", "skipped", "seconds", "on"))
        tries = ". ".join([part.tries, *ran.get("told", [])])
        rows.append(f"| {part.name} | {tries} | {used} | {counts} |")
    return "\n".join(rows)


if __name__ == "__main__":
    sys.exit(main())
