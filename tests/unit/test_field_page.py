"""docs/field.md has the results of the last runs of `make field`, and none of them is a failure."""

import importlib.util
import sys
from pathlib import Path

from devtools import cut_costs

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


def test_a_cut_costs_what_its_longest_epoch_takes_beyond_an_idle_one():
    def line(provider, longest, failures=()):
        told = {"kind": "executor and store", "idle": 2.0, "longest": longest, "failures": list(failures)}
        return {"provider": provider, **told}

    lines = [
        line("binshift", 5.0),
        line("binshift", 9.0),
        line("binshift", 6.5),
        line("spark", 12.0, ["ended"]),
    ]
    last = cut_costs.table(lines).splitlines()[-1]
    assert last == "| executor and store | 3 | 2.0 | 4.5, at most 7.0 | 0 | 2.0 | 10.0, at most 10.0 | 1 |"
