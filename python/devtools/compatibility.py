"""What works on which Spark, told by the tests that passed there.

Tests that run with `--record` say so in compatibility.jsonl, and the README gets its table from there. A line
has the tests of one function on one Spark, so that runs of parts add up. A test that fails is taken out.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

__all__ = ["RECORD", "ROWS", "SPARKS", "Record", "Row", "rewritten", "rows_of", "table"]

RECORD = Path(__file__).with_suffix(".jsonl")
SPARKS = ("4.1", "4.2", "4.3")
#: Between these lines, the README has the table.
BEGIN, END = "<!-- compatibility: `make test RECORD=1` writes it -->", "<!-- end of compatibility -->"


@dataclass(frozen=True, kw_only=True)
class Row:
    """A line of the table, and which tests speak for it: any that has a word of it.

    Attributes
    ----------
    id : str
        Names the line in the record.
    what, rescaled : str
        The operator or setting, and whether its queries can be rescaled.
    words : tuple of str
        Beginnings of the names of queries in tests/local/queries.py, settings as `key=value`, names of settings
        that are parameters, and parts of the names of tests.
    since : str
        The minor version of Spark that has it first.
    """

    id: str
    what: str
    rescaled: str
    words: tuple[str, ...]
    since: str = SPARKS[0]


_STORE = "spark.sql.streaming.stateStore."
_JOIN = "spark.sql.streaming.join.stateFormatVersion="
ROWS = (
    Row(
        id="aggregation",
        what="streaming aggregation, windowed or not; append, update, complete; several in a chain",
        rescaled="yes",
        words=("count", "tumbling", "sliding"),
    ),
    Row(id="session", what="session windows, fixed and dynamic gap", rescaled="yes", words=("session",)),
    Row(
        id="dedup",
        what="`dropDuplicates`, `dropDuplicatesWithinWatermark`",
        rescaled="yes",
        words=("dedup",),
    ),
    Row(
        id="join", what="stream-stream joins, all types; state formats 2 and 3", rescaled="yes", words=("join",)
    ),
    Row(
        id="join-4",
        what="the same in state format 4",
        rescaled="yes",
        words=(f"{_JOIN}4", "join-4", "test_row_checksums_and_virtual"),
        since="4.3",
    ),
    Row(
        id="groups-with-state",
        what="`applyInPandasWithState`, `flatMapGroupsWithState`, timeouts, initial state",
        rescaled="yes",
        words=("pandas-with-state", "jvm-with-state"),
    ),
    Row(
        id="transform-with-state",
        what="`transformWithState`, JVM, pandas and rows: all state variables, TTL, timers, initial state",
        rescaled="yes, but for the next row",
        words=("tws",),
    ),
    Row(
        id="other-keys",
        what="the same in Python, grouped by a timestamp or a window; in the JVM, with a typed key of another "
        "type than its column (`groupBy(int).as[Long, V]`)",
        rescaled="no: `UnsupportedOperatorError`",
        words=("test_an_operator_that_cannot_migrate",),
    ),
    Row(
        id="single",
        what="aggregation without grouping columns, `limit`",
        rescaled="stays in one partition; does not hinder the rest of the query",
        words=("test_an_aggregation_without_keys", "test_state_without_grouping_columns"),
    ),
    Row(
        id="shapes",
        what="stream-static joins, unions, `repartition()` in the same query",
        rescaled="are left alone, or follow",
        words=("test_a_plan_gives_the_same_results", "test_a_plan_is_routed_as_a_whole"),
    ),
    Row(
        id="avro",
        what="state encoding avro (Spark: `transformWithState` only)",
        rescaled="yes",
        words=(f"{_STORE}encodingFormat=avro", "avro"),
    ),
    Row(
        id="ids",
        what="state checkpoint format 2",
        rescaled="yes",
        words=(f"{_STORE}checkpointFormatVersion=2", "checkpoint-ids"),
    ),
    Row(id="no-changelog", what="changelog checkpointing off", rescaled="yes", words=("no-changelog",)),
    Row(
        id="checksums",
        what="row checksums",
        rescaled="yes",
        words=(f"{_STORE}rowChecksum.enabled=true", "row-checksums", "test_row_checksums_and_virtual"),
        since="4.2",
    ),
    Row(
        id="taken-over",
        what="checkpoints of Spark's own RocksDB provider, taken over and given back",
        rescaled="yes",
        words=("test_a_stock_checkpoint_goes_on_with_bins", "test_a_checkpoint_that_was_taken_over"),
    ),
    Row(
        id="upgrade",
        what="checkpoints of an earlier Spark and an earlier binshift go on",
        rescaled="yes, also in the middle of a migration",
        words=("test_upgrade.py", "test_golden_checkpoints.py"),
    ),
    Row(
        id="sql",
        what="[SQL, JDBC, Scala, Java](docs/sql.md)",
        rescaled="yes; targets by load in Python",
        words=("test_sql.py", "test_jdbc.py"),
    ),
    Row(
        id="connect",
        what="[Spark Connect](docs/sql.md#spark-connect), with the same Python API",
        rescaled="yes",
        words=("test_links.py", "test_connect.py"),
    ),
)


def rows_of(test: str, parameters: Iterable[Any]) -> list[str]:
    """The ids of the rows that a test speaks for, by its id and what it is given."""
    words = {test, *(word for value in parameters for word in _words(value))}
    return [row.id for row in ROWS if any(_is_about(row, word, test) for word in words)]


def _is_about(row: Row, word: str, test: str) -> bool:
    return any(w in test if w.startswith("test_") else word == w or word.startswith(f"{w}-") for w in row.words)


def _words(value: Any) -> set[str]:
    """Names and settings in a parameter of a test."""
    if isinstance(value, str):
        return {value}
    if isinstance(value, Mapping):
        return {f"{k}={v}" for k, v in value.items()}
    if hasattr(value, "settings"):
        return {value.name, value.settings} | _words(value.conf)
    return set()


@dataclass(frozen=True)
class Record:
    """The tests that have passed, by Spark's minor version and test function."""

    file: Path

    def add(self, spark: str, outcomes: Mapping[str, tuple[bool, Sequence[str]]]) -> None:
        """Adds what became of tests, by their ids: whether they passed, and the rows that they speak for."""
        lines = self._read()
        minor = ".".join(spark.split(".")[:2])
        for test, (passed, rows) in outcomes.items():
            function, _, parameters = test.partition("[")
            line = lines.setdefault((minor, function), {"spark": minor, "test": function, "passed": {}})
            line["version"] = spark
            for row in [row.id for row in ROWS]:
                known = set(line["passed"].get(row, ())) - {parameters}
                if passed and row in rows:
                    known.add(parameters)
                line["passed"][row] = sorted(known)
            line["passed"] = {row: tests for row, tests in line["passed"].items() if tests}
        kept = [json.dumps(lines[key]) + "\n" for key in sorted(lines) if lines[key]["passed"]]
        staging = self.file.with_suffix(".part")
        staging.write_text("".join(kept))
        os.replace(staging, self.file)

    def count(self, spark: str, row: str) -> int:
        """How many tests of a row have passed on a minor version."""
        return sum(len(line["passed"].get(row, ())) for (on, _), line in self._read().items() if on == spark)

    def versions(self) -> dict[str, str]:
        """The releases on which they ran, by minor version."""
        return {on: line["version"] for (on, _), line in self._read().items()}

    def _read(self) -> dict[tuple[str, str], dict[str, Any]]:
        lines = self.file.read_text().splitlines() if self.file.exists() else []
        return {(line["spark"], line["test"]): line for line in map(json.loads, lines)}


def table(record: Record) -> str:
    """The table: of each row, how many of its tests have passed on which Spark."""
    versions = record.versions()
    heads = [f"Spark {versions.get(spark, spark)}" for spark in SPARKS]
    lines = [f"| operator or setting | can be rescaled | {' | '.join(heads)} |", "|---|---|---|---|---|"]
    for row in ROWS:
        counts = [_cell(row, spark, record.count(spark, row.id)) for spark in SPARKS]
        lines.append(f"| {row.what} | {row.rescaled} | {' | '.join(counts)} |")
    return "\n".join(lines) + "\n"


def _cell(row: Row, spark: str, passed: int) -> str:
    if passed:
        return f"{passed} tests" if passed > 1 else "1 test"
    return "not in Spark" if spark < row.since else "no test"


def rewritten(readme: str, record: Record) -> str:
    """The README with the table of what is recorded."""
    before, _, rest = readme.partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}\n\n{table(record)}\n{END}{after}"
