"""The README's table of versions is of what the tests ran, on each version and for each operator."""

import importlib.util
import json
from pathlib import Path

from binshift.session import SUPPORTED_SPARK
from local.queries import QUERIES

ROOT = Path(__file__).parents[2]
SPEC = importlib.util.spec_from_file_location("compatibility", ROOT / "scripts/compatibility.py")
compatibility = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(compatibility)


def test_the_table_is_that_of_the_records():
    found = compatibility.within((ROOT / "README.md").read_text())
    assert found == compatibility.table(), "scripts/compatibility.py writes it anew"


def test_each_version_has_a_record_of_each_operator():
    records = {f.stem: json.loads(f.read_text()) for f in compatibility.RECORDS.glob("*.json")}
    assert tuple(sorted(records)) == SUPPORTED_SPARK
    assert {q for queries in compatibility.KINDS.values() for q in queries} == set(QUERIES)
    for minor, record in records.items():
        assert record["spark"].startswith(f"{minor}.")
        assert set(record["operators"]) == set(QUERIES), f"'scripts/compatibility.py record' on Spark {minor}"
