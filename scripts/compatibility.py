"""Runs a few tests of each row of the table of what works, on the Spark of this interpreter.

The table is that of docs/what-works.md. What became of the tests goes to tests/compatibility.json, which keeps
the results on other versions of Spark, and the table is made from that file. Most of the tests compare a query
with Spark's own provider.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import xml.etree.ElementTree as ET
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

from devtools.pages import with_part

ROOT = Path(__file__).resolve().parents[1]
PAGE, RESULTS = ROOT / "docs/what-works.md", ROOT / "tests/compatibility.json"
#: The table stands between these two lines of the page.
MARKS = ("<!-- Below: written by `make compatibility`. -->\n\n", "\n\n<!-- Above. -->")
SPARKS = ("4.1", "4.2", "4.3")


@dataclass(frozen=True, kw_only=True)
class Row:
    """A line of the table, and the tests that prove it.

    Attributes
    ----------
    name : str
        Names the row in the results.
    what, rescaled : str
        The operator or setting, and whether its queries can be rescaled.
    tests : tuple of str
        Their ids.
    since : str
        The minor version of Spark that has it first.
    """

    name: str
    what: str
    tests: tuple[str, ...]
    rescaled: str = "yes"
    since: str = SPARKS[0]


def of_test(module: str, function: str, ending: str = "") -> Callable[..., tuple[str, ...]]:
    """Returns a function that makes the ids of a test's cases."""

    def ids(*cases: str) -> tuple[str, ...]:
        return tuple(f"tests/{module}.py::{function}[{case}{ending}]" for case in cases)

    return ids


#: Queries of tests/local/queries.py that grow, are shuffled and shrink.
moved = of_test(
    "local/test_operators", "test_results_equal_those_of_a_query_that_never_migrated", ending="-at-once"
)
#: The same under a setting of the store, which stands in front of the query.
under = of_test("local/test_operators", "test_results_are_the_same_under_every_setting_of_the_store")
#: Queries that stay where they are.
unmoved = of_test("local/test_operators", "test_without_a_migration_the_query_behaves_as_on_the_stock_provider")
#: Plans with several exchanges.
planned = of_test("local/test_plans", "test_a_plan_gives_the_same_results_whatever_the_routing")
#: Operators that run, and are named by a rescale.
refused = of_test("local/test_controller", "test_an_operator_that_cannot_migrate_runs_and_a_rescale_names_it")
#: Queries in real-time mode that grow, shrink and are shuffled.
in_real_time = of_test("cluster/test_realtime", "test_operators_of_the_mode_grow_shrink_and_are_shuffled")
#: Checkpoints of earlier builds, written on Spark 4.1.
golden = of_test(
    "local/test_golden_checkpoints",
    "test_a_checkpoint_of_an_earlier_build_is_read_rescaled_and_gone_on_with",
)
#: Checkpoints of Spark's own provider that are taken over, rescaled and given back.
given_back = of_test("local/test_convert", "test_a_checkpoint_that_was_taken_over_and_rescaled_is_given_back")
#: Checkpoints of older versions of Spark, in the middle of a migration.
upgraded = of_test(
    "cluster/test_upgrade", "test_a_migration_that_was_under_way_on_an_older_spark_is_carried_on"
)

ROWS = (
    Row(
        name="aggregation",
        what="streaming aggregation, windowed or not; append, update, complete; several in a chain",
        tests=(
            *moved("count", "count-complete", "tumbling-update", "sliding-append"),
            *unmoved("tumbling-update"),
            *planned("two aggregations"),
        ),
    ),
    Row(
        name="session",
        what="session windows, fixed and dynamic gap",
        tests=moved("session-fixed", "session-dynamic"),
    ),
    Row(
        name="dedup",
        what="`dropDuplicates`, `dropDuplicatesWithinWatermark`",
        tests=moved("dedup", "dedup-watermark", "dedup-within-watermark"),
    ),
    Row(
        name="join",
        what="stream-stream joins, all types; state formats 2 and 3",
        tests=(
            *moved("join-inner", "join-left", "join-right", "join-full", "join-semi"),
            *unmoved("join-full"),
            *under("join-3-join-full"),
        ),
    ),
    Row(
        name="join-4",
        what="stream-stream joins in state format 4",
        tests=under("join-4-join-full"),
        since="4.3",
    ),
    Row(
        name="groups-with-state",
        what="`applyInPandasWithState`, `flatMapGroupsWithState`, timeouts; initial state, by "
        "[Spark's own suites](spark-suites.md)",
        tests=moved("pandas-with-state", "jvm-with-state"),
    ),
    Row(
        name="transform-with-state",
        what="`transformWithState`, JVM, pandas and rows: all state variables, TTL, timers, initial state",
        rescaled="yes, but for the next two rows",
        tests=(
            *moved("tws-jvm", "tws-pandas", "tws-rows", "tws-initial-state"),
            *unmoved("tws-jvm"),
            "tests/local/test_processing_time.py::test_timers_and_times_to_live",
        ),
    ),
    Row(
        name="time-keys",
        what="`transformWithState` in Python, grouped by a timestamp or a window; in pandas, by a float that "
        "may be null",
        rescaled="no: `UnsupportedOperatorError`",
        tests=refused("timestamp in Python", "null of a float in pandas"),
    ),
    Row(
        name="typed-keys",
        what="`transformWithState` in the JVM, with a typed key of another type than its column "
        "(`groupBy(int).as[Long, V]`)",
        rescaled="no: `UnsupportedOperatorError`",
        tests=refused("typed key"),
    ),
    Row(
        name="one-partition",
        what="aggregation without grouping columns, `limit`",
        rescaled="stays in one partition; does not hinder the rest of the query",
        tests=("tests/local/test_plans.py::test_an_aggregation_without_keys_stays_where_it_is",),
    ),
    Row(
        name="plans",
        what="stream-static joins, unions, `repartition()` in the same query",
        rescaled="are left alone, or follow",
        tests=planned("batch table, sort-merge join", "union", "repartition by key"),
    ),
    Row(
        name="avro",
        what="state encodings unsaferow and avro (Spark: `transformWithState` only)",
        tests=under("avro-tws-jvm"),
    ),
    Row(
        name="checkpoint-ids",
        what="state checkpoint formats 1 and 2",
        tests=under("checkpoint-ids-dedup", "checkpoint-ids-tws-jvm"),
    ),
    Row(name="no-changelog", what="changelog checkpointing on and off", tests=under("no-changelog-count")),
    Row(name="checksums", what="row checksums", tests=under("row-checksums-dedup"), since="4.2"),
    Row(
        name="real-time",
        what="real-time mode with `real_time=True`, [experimental](using.md#real-time-mode): "
        "aggregation, `dropDuplicates`, `transformWithState` of the JVM",
        rescaled="yes, at the boundary of a batch",
        tests=in_real_time("count-sent", "distinct-sent", "transform-sent"),
        since="4.3",
    ),
    Row(
        name="stock",
        what="checkpoints of Spark's own RocksDB provider, taken over and given back",
        tests=given_back("count-{}"),
    ),
    Row(
        name="earlier-build",
        what="checkpoints of an earlier build, of each format",
        tests=golden("join-full-1"),
    ),
    Row(
        name="upgrade",
        what="checkpoints of an earlier Spark",
        rescaled="yes, also in the middle of a migration",
        tests=upgraded("4.1"),
        since="4.2",
    ),
    Row(
        name="sql",
        what="[SQL, JDBC, Scala, Java](sql.md)",
        rescaled="yes; targets by load in Python",
        tests=(
            "tests/local/test_sql.py::test_a_query_is_rescaled_and_followed_in_sql",
            "tests/local/test_sql.py::test_scala_and_java_plan_submit_and_follow",
            "tests/local/test_jdbc.py::test_a_query_is_planned_for_rescaled_and_followed_over_jdbc",
        ),
    ),
    Row(
        name="connect",
        what="[Spark Connect](sql.md#spark-connect), with the same Python API",
        tests=("tests/local/test_links.py::test_a_query_is_looked_at_planned_for_and_rescaled[connect]",),
    ),
)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--page", action="store_true", help="run nothing; write the table from the results")
    parser.add_argument("--missing", action="store_true", help="run those that have not passed on this release")
    args = parser.parse_args()
    results = read()
    if args.page:
        PAGE.write_text(page(PAGE.read_text(), results))
        return 0
    release = metadata.version("pyspark")
    minor = ".".join(release.split(".")[:2])
    wanted = sorted({test for row in of(minor) for test in row.tests})
    before = results.get(minor, {})
    known = before["tests"] if args.missing and before.get("spark") == release else {}
    kept = {test: "passed" for test in wanted if known.get(test) == "passed"}
    outcomes = kept | run([test for test in wanted if test not in kept])
    results |= {minor: {"spark": release, "tests": outcomes}}
    RESULTS.write_text(json.dumps(results, indent=2, sort_keys=True) + "\n")
    PAGE.write_text(page(PAGE.read_text(), results))
    return int(outcomes != dict.fromkeys(wanted, "passed"))


def of(minor: str) -> tuple[Row, ...]:
    """The rows for a minor version of Spark."""
    return tuple(row for row in ROWS if row.since <= minor)


def run(tests: list[str]) -> dict[str, str]:
    """Runs tests, and returns the outcome of each: passed, failed or skipped."""
    if not tests:
        return {}
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.xml"
        # An expression that is always true, because without one the matrix is left out.
        options = ["-n", "0", "-q", "-m", "matrix or not matrix", f"--junitxml={report}"]
        subprocess.run([sys.executable, "-m", "pytest", *options, *tests], cwd=ROOT, check=False)
        cases = {id_of(case): case for case in ET.parse(report).getroot().iter("testcase")}
    return {test: outcome(cases[test]) for test in tests if test in cases}


def id_of(case: ET.Element) -> str:
    """The id of a test in the report, as pytest takes it."""
    return f"{case.attrib['classname'].replace('.', '/')}.py::{case.attrib['name']}"


def outcome(case: ET.Element) -> str:
    if case.find("failure") is not None or case.find("error") is not None:
        return "failed"
    return "passed" if case.find("skipped") is None else "skipped"


def read() -> dict[str, Any]:
    return json.loads(RESULTS.read_text()) if RESULTS.exists() else {}


def page(text: str, results: Mapping[str, Any]) -> str:
    """The text of the page with the table of the results."""
    return with_part(text, MARKS, table(results))


def table(results: Mapping[str, Any]) -> str:
    """The table as Markdown, with the versions of Spark on which the tests of each row have passed."""
    heads = " | ".join(f"Spark {results[s]['spark'] if s in results else s}" for s in SPARKS)
    lines = [f"| operator or setting | can be rescaled | {heads} |", "|---|---|---|---|---|"]
    for row in ROWS:
        cells = " | ".join(cell(row, spark, results.get(spark, {}).get("tests", {})) for spark in SPARKS)
        lines.append(f"| {row.what} | {row.rescaled} | {cells} |")
    return "\n".join(lines)


def cell(row: Row, spark: str, outcomes: Mapping[str, str]) -> str:
    if spark < row.since:
        return "not there"
    if not outcomes.keys() & set(row.tests):
        return "not run"
    passed = [outcomes.get(test) for test in row.tests].count("passed")
    return f"{passed} of {len(row.tests)}"


if __name__ == "__main__":
    sys.exit(main())
