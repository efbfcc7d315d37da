"""The notebook of the examples runs from top to bottom, as a program of its own."""

import json
import os
import shlex
import subprocess
import sys
from pathlib import Path

from jvms import quick

NOTEBOOK = Path(__file__).parents[2] / "python/examples/rescaling.ipynb"


def test_the_notebook_runs_and_counts_as_a_batch_does(tmp_path, jvm_jar):
    cells = [c for c in json.loads(NOTEBOOK.read_text())["cells"] if c["cell_type"] == "code"]
    program = tmp_path / "rescaling.py"
    program.write_text("\n\n".join("".join(c["source"]) for c in cells))
    settings = [f"--conf={key}={value}" for key, value in quick().items()]
    submit = {"PYSPARK_SUBMIT_ARGS": shlex.join([*settings, "pyspark-shell"])}
    scratch = {"SPARK_LOCAL_DIRS": str(tmp_path), "TMPDIR": str(tmp_path), "MPLBACKEND": "Agg"}
    done = subprocess.run(
        [sys.executable, str(program)],
        env={**os.environ, **submit, **scratch},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    # The program ends with an assertion of its own; what it prints shows that it came that far.
    assert "MigrationPlan: 2 -> 6 partitions, optimized(32)" in done.stdout
    assert "rows counted, as in batch" in done.stdout.splitlines()[-1]
