"""The first program that a reader meets runs as it stands, as a program of its own."""

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

from jvms import quick

README = Path(__file__).parents[2] / "README.md"


def test_the_program_of_the_readme_rescales_a_query(tmp_path, jvm_jar):
    (program,) = re.findall(r"^```python\n(.*?)^```$", README.read_text(), re.MULTILINE | re.DOTALL)
    settings = [f"--conf={key}={value}" for key, value in quick().items()]
    submit = {"PYSPARK_SUBMIT_ARGS": shlex.join(["--master", "local[2]", *settings, "pyspark-shell"])}
    done = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, **submit, "SPARK_LOCAL_DIRS": str(tmp_path), "TMPDIR": str(tmp_path)},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    assert "MigrationReport: batched(" in done.stdout
    assert "finished: " in done.stdout
