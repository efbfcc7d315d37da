"""The table of the README says what tests have passed, and on which Spark."""

import json

from devtools.compatibility import RECORD, ROWS, SPARKS, Record, rewritten, rows_of
from golden_checkpoints import Golden
from local.settings import IDS, JOIN_4
from snippets import ROOT


def test_a_test_speaks_for_the_operators_and_settings_that_it_is_given():
    test = "local/test_operators.py::test_results[x]"
    assert rows_of(test, ["session-fixed", "at-once"]) == ["session"]
    assert rows_of(test, ["count", IDS]) == ["aggregation", "ids"]
    assert rows_of(test, ["join-full", JOIN_4 | IDS]) == ["join", "join-4", "ids"]
    assert rows_of(test, ["checkpoint-ids", "tws-jvm"]) == ["transform-with-state", "ids"]
    # A name is one as a whole.
    assert rows_of(test, ["counter", "joined", 3, None]) == []
    golden = Golden("tws-jvm", "avro", {})
    assert rows_of("local/test_golden_checkpoints.py::test_a[x]", [golden, 1]) == [
        "transform-with-state", "avro", "upgrade",
    ]  # fmt: skip


def test_runs_of_parts_add_up_and_a_failure_takes_a_test_out(tmp_path):
    record = Record(tmp_path / "record.jsonl")
    record.add("4.3.0", {"a.py::f[x]": (True, ["join"]), "a.py::f[y]": (True, ["join", "ids"])})
    record.add("4.2.1", {"a.py::f[x]": (True, ["join"])})
    record.add("4.3.1", {"a.py::f[z]": (True, ["join"]), "a.py::g": (True, ["join"])})
    assert [record.count(spark, "join") for spark in SPARKS] == [0, 1, 4]
    assert record.versions() == {"4.2": "4.2.1", "4.3": "4.3.1"}
    record.add("4.3.1", {"a.py::f[y]": (False, ["join", "ids"]), "a.py::g": (False, ["join"])})
    assert [record.count("4.3", row) for row in ("join", "ids")] == [2, 0]
    assert [json.loads(line)["test"] for line in record.file.read_text().splitlines()] == ["a.py::f"] * 2


def test_the_readme_has_the_table_and_each_row_has_tests_on_each_spark_that_has_it():
    record = Record(RECORD)
    readme = (ROOT / "README.md").read_text()
    assert readme == rewritten(readme, record)
    without = [
        (r.id, spark) for r in ROWS for spark in SPARKS if spark >= r.since and not record.count(spark, r.id)
    ]
    assert without == []
    assert [(r.id, s) for r in ROWS for s in SPARKS if s < r.since and record.count(s, r.id)] == []
