"""Runs programs of the documentation unchanged, in separate processes: the README's program, the notebook."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from pathlib import Path

from jvms import quick


def printed(program: str, folder: Path, *submit: str, timeout: float, **environment: str) -> str:
    """The output of a program that must succeed; see `ran`."""
    return ran(program, folder, *submit, timeout=timeout, **environment).stdout


def ran(
    program: str, folder: Path, *submit: str, timeout: float, **environment: str
) -> subprocess.CompletedProcess[str]:
    """Runs a program that must succeed.

    Parameters
    ----------
    program : str
        The Python program.
    folder : Path
        An empty directory for all files that it leaves behind.
    submit : str
        Arguments of `spark-submit`, in addition to those for JVMs that start fast.
    timeout : float
        Seconds.
    environment : str
    """
    file = folder / "program.py"
    file.write_text(program)
    settings = [f"--conf={key}={value}" for key, value in quick().items()]
    arguments = shlex.join([*submit, *settings, "pyspark-shell"])
    scratch = {"SPARK_LOCAL_DIRS": str(folder), "TMPDIR": str(folder)}
    done = subprocess.run(
        [sys.executable, str(file)],
        env={**os.environ, "PYSPARK_SUBMIT_ARGS": arguments, **scratch, **environment},
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    return done
