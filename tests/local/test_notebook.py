"""The notebook of the examples runs from top to bottom."""

import json
from pathlib import Path

import pytest

from local.programs import printed

NOTEBOOK = Path(__file__).parents[2] / "python/examples/rescaling.ipynb"


@pytest.mark.long
def test_the_notebook_runs_and_counts_as_a_batch_does(tmp_path, jvm_jar):
    cells = [c for c in json.loads(NOTEBOOK.read_text())["cells"] if c["cell_type"] == "code"]
    program = "\n\n".join("".join(c["source"]) for c in cells)
    out = printed(program, tmp_path, timeout=240, MPLBACKEND="Agg")
    # The program ends with an assertion of its own; what it prints shows that it came that far.
    assert "MigrationPlan: 2 -> 6 partitions, optimized(32)" in out
    assert "rows counted, as in batch" in out.splitlines()[-1]
