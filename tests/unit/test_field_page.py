"""docs/field.md has the results of the last runs of `make field`, and none of them is a failure."""

import importlib.util
import sys
from pathlib import Path

spec = importlib.util.spec_from_file_location("field_script", Path(__file__).parents[2] / "scripts/field.py")
field = importlib.util.module_from_spec(spec)
# Dataclasses look up their module in sys.modules.
sys.modules[spec.name] = field
spec.loader.exec_module(field)


def test_the_page_has_the_table_of_the_results_and_none_of_them_is_a_failure():
    text, ran = field.PAGE.read_text(), field.read()
    assert field.page(text, ran) == text
    assert set(ran) <= {p.name for p in field.PARTS}
    assert [name for name, o in ran.items() if o["failed"] or not o["passed"]] == []
