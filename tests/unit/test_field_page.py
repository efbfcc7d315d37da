"""The page on the field tells of what was run."""

import importlib.util
import sys
from pathlib import Path

spec = importlib.util.spec_from_file_location("field_script", Path(__file__).parents[2] / "scripts/field.py")
field = importlib.util.module_from_spec(spec)
# Its dataclasses look for their module there.
sys.modules[spec.name] = field
spec.loader.exec_module(field)


def test_the_page_has_the_table_of_the_results_and_none_of_them_is_a_failure():
    text, ran = field.PAGE.read_text(), field.read()
    assert field.page(text, ran) == text
    assert set(ran) <= {p.name for p in field.PARTS}
    assert [name for name, o in ran.items() if o["failed"] or not o["passed"]] == []
