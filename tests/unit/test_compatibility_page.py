"""The table of what works tells of tests that have run."""

import importlib.util
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
spec = importlib.util.spec_from_file_location("compatibility_script", ROOT / "scripts/compatibility.py")
compatibility = importlib.util.module_from_spec(spec)
# Its dataclasses look for their module there.
sys.modules[spec.name] = compatibility
spec.loader.exec_module(compatibility)


def test_the_page_has_the_table_of_the_results():
    text = compatibility.PAGE.read_text()
    assert compatibility.page(text, compatibility.read()) == text


@pytest.mark.parametrize("minor", compatibility.SPARKS)
def test_what_was_run_is_of_the_rows_and_has_passed(minor):
    results = compatibility.read()[minor]
    assert results["spark"].startswith(f"{minor}.")
    wanted = {test for row in compatibility.of(minor) for test in row.tests}
    assert results["tests"].keys() == wanted
    assert set(results["tests"].values()) == {"passed"}


def test_what_was_not_run_or_did_not_pass_is_not_counted():
    row = compatibility.Row(name="a", what="a", tests=("x", "y", "z"), since="4.2")
    cells = [
        compatibility.cell(row, spark, {"x": "passed", "y": "failed"} | more)
        for spark, more in [("4.1", {}), ("4.2", {}), ("4.3", {"y": "passed", "z": "skipped"})]
    ]
    assert cells == ["not there", "1 of 3", "2 of 3"]
    assert compatibility.cell(row, "4.3", {"w": "passed"}) == "not run"


def test_a_test_of_the_report_is_known_by_its_id():
    report = compatibility.ET.fromstring(
        '<s><testcase classname="tests.local.test_a" name="test_b[c d-{}]"/>'
        '<testcase classname="tests.local.test_a" name="test_e"><skipped/></testcase>'
        '<testcase classname="tests.local.test_a" name="test_f"><failure/></testcase></s>'
    )
    found = {compatibility.id_of(case): compatibility.outcome(case) for case in report}
    assert found == {
        "tests/local/test_a.py::test_b[c d-{}]": "passed",
        "tests/local/test_a.py::test_e": "skipped",
        "tests/local/test_a.py::test_f": "failed",
    }
