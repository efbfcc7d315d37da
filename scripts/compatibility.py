#!/usr/bin/env python
"""What runs on which Spark, in the README, from what the tests ran.

`compatibility.py record` rescales each operator live on the Spark of its interpreter and compares with
Spark's own provider, some minutes; it writes `tests/compatibility/<minor>.json`. `compatibility.py` writes the
README's table from these files. `tests/unit/test_compatibility.py` fails if the table is of other files, or a
file lacks an operator.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from xml.etree import ElementTree

import pyspark

ROOT = Path(__file__).resolve().parents[1]
RECORDS = ROOT / "tests/compatibility"
TEST = "tests/local/test_operators.py::test_results_equal_those_of_a_query_that_never_migrated"
JOURNEY = "at-once"
BEGIN, END = "<!-- what the tests ran: scripts/compatibility.py -->\n", "<!-- end -->\n"

#: Rows of the table, with the queries of tests/local/queries.py that stand for them.
KINDS = {
    "aggregation": ("count", "count-complete", "tumbling-append", "tumbling-update", "sliding-append"),
    "session windows": ("session-fixed", "session-dynamic"),
    "deduplication": ("dedup", "dedup-watermark", "dedup-within-watermark"),
    "stream-stream joins": (
        "join-inner", "join-left", "join-right", "join-full", "join-semi", "join-window", "join-unbounded",
    ),
    "`applyInPandasWithState`": ("pandas-with-state",),
    "`flatMapGroupsWithState`": ("jvm-with-state",),
    "`transformWithState`, Python": ("tws-pandas", "tws-rows"),
    "`transformWithState`, JVM": ("tws-jvm", "tws-initial-state"),
}  # fmt: skip


def record() -> None:
    """Runs each operator on this interpreter's Spark, and writes the outcomes."""
    with tempfile.TemporaryDirectory() as scratch:
        report = Path(scratch) / "report.xml"
        command = [sys.executable, "-m", "pytest", "-q", "-m", "matrix or not matrix", f"--junitxml={report}"]
        subprocess.run([*command, "-k", JOURNEY, TEST], cwd=ROOT, check=False)
        operators = outcomes(ElementTree.parse(report).getroot())
    RECORDS.mkdir(exist_ok=True)
    minor = ".".join(pyspark.__version__.split(".")[:2])
    text = json.dumps({"spark": pyspark.__version__, "operators": operators}, indent=2, sort_keys=True)
    (RECORDS / f"{minor}.json").write_text(text + "\n")


def outcomes(report: ElementTree.Element) -> dict[str, str]:
    """How each operator did: passed, skipped or failed."""
    found = {}
    for case in report.iter("testcase"):
        match = re.search(rf"\[(.+)-{JOURNEY}\]$", case.get("name", ""))
        if match:
            bad = {child.tag for child in case} & {"failure", "error", "skipped"}
            found[match[1]] = ("skipped" if bad == {"skipped"} else "failed") if bad else "passed"
    return found


def table() -> str:
    """The README's table, from the records."""
    records = [json.loads(f.read_text()) for f in sorted(RECORDS.glob("*.json"))]
    versions = " | ".join(r["spark"] for r in records)
    lines = [
        f"| rescaled live, with the results of Spark's own provider | {versions} |",
        f"|---|{'---|' * len(records)}",
    ]
    for kind, queries in KINDS.items():
        cells = ["yes" if all(r["operators"].get(q) == "passed" for q in queries) else "no" for r in records]
        lines.append(f"| {kind} | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def within(readme: str) -> str:
    """The part of the README that is generated."""
    return readme.split(BEGIN)[1].split(END, maxsplit=1)[0].strip("\n") + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", nargs="?", choices=["record"])
    if parser.parse_args().what == "record":
        record()
    readme = ROOT / "README.md"
    before, rest = readme.read_text().split(BEGIN)
    readme.write_text(f"{before}{BEGIN}\n{table()}\n{END}{rest.split(END)[1]}")


if __name__ == "__main__":
    main()
