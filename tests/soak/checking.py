"""Compares the results of a soak's queries with those of undisturbed queries on Spark's own provider."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from soak.driver import WORKLOAD

_ORACLE = Path(__file__).with_name("oracle.py")


def differences(root: Path, target: Path) -> list[str]:
    """Runs the oracle on the same input; returns some of the differences."""
    target.mkdir(parents=True)
    done = subprocess.run(
        [sys.executable, str(_ORACLE), str(root), str(target)], capture_output=True, text=True, check=False
    )
    if done.returncode != 0:
        return [f"the oracle failed:\n{done.stderr[-3000:]}"]
    return [problem for name in WORKLOAD for problem in _of(name, root / name, target / name)]


def _of(name: str, run: Path, oracle: Path) -> list[str]:
    expected = {_epoch(f): json.loads(f.read_text()) for f in (oracle / "outputs").glob("[0-9]*.json")}
    seen: set[int] = set()
    problems = []
    for file in sorted((run / "outputs").glob("[0-9]*.json")):
        seen.add(_epoch(file))
        if json.loads(file.read_text()) != expected.get(_epoch(file)):
            problems.append(f"{name}: the output {file.name} is another one")
    problems += [f"{name}: epoch {epoch} has no output" for epoch in sorted(set(expected) - seen)]
    state = json.loads((run / "state.json").read_text())["state"]
    if state != json.loads((oracle / "state.json").read_text())["state"]:
        problems.append(f"{name}: the state is another one")
    return problems[:20]


def _epoch(file: Path) -> int:
    return int(file.stem.split("-")[0])
