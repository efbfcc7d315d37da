"""Runs drivers in processes of their own, which may die."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from traces.checker import check as check_trace

HERE = Path(__file__).parent


@pytest.fixture(autouse=True)
def traced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Has all drivers and executors write down what they do, which has to be what the model allows."""
    monkeypatch.setenv("BINSHIFT_TESTS_TRACE", str(tmp_path / "trace"))
    yield
    check_trace(tmp_path / "trace")


@pytest.fixture
def drive(tmp_path: Path, jvm_jar: Path) -> Callable[..., subprocess.CompletedProcess[str]]:
    """Runs `driver.py`, or another script, on a directory of the test, to its end or its death."""

    def run(
        *args: str, env: dict[str, str] | None = None, script: str = "driver.py", seconds: int = 240
    ) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, str(HERE / script), str(tmp_path / "run"), *args]
        (tmp_path / "run").mkdir(exist_ok=True)
        return subprocess.run(
            command,
            env={**os.environ, **(env or {})},
            capture_output=True,
            text=True,
            timeout=seconds,
            check=False,
        )

    return run


@pytest.fixture
def real_time(tmp_path: Path, jvm_jar: Path) -> Iterator[Callable[..., Any]]:
    """Starts drivers of queries in real-time mode, each in a folder of the test; they end with it."""
    from cluster.realtime_runs import commanded

    with ExitStack() as drivers:

        def start(name: str = "run", conf: Mapping[str, str] | None = None, **options: Any) -> Any:
            return drivers.enter_context(commanded(tmp_path / name, jvm_jar, conf, **options))

        yield start


@pytest.fixture
def check(tmp_path: Path) -> Callable[..., dict[str, Any]]:
    """Compares what the drivers reported with counts made in Python, without Spark."""

    def verify(partitions: int, last: subprocess.CompletedProcess[str]) -> dict[str, Any]:
        root = tmp_path / "run"
        assert last.returncode == 0, last.stderr[-4000:]
        report = json.loads((root / "report.json").read_text())
        state = expected_state(root / "input")
        assert {tuple(r) for r in report["state"]} == state
        assert report["partitions"] == partitions
        assert report["metadata"] == [partitions]
        assert report["numRowsTotal"] == report["keys"] == len(state)
        assert outputs_of(root / "outputs") == expected_outputs(root / "input")
        return report

    return verify


def expected_state(folder: Path) -> set[tuple[str, int, int]]:
    counts: dict[str, tuple[int, int]] = {}
    for batch in inputs_of(folder):
        count(batch, counts)
    return {(k, n, total) for k, (n, total) in counts.items()}


def expected_outputs(folder: Path) -> dict[int, list[list[Any]]]:
    """Update mode: the keys of each epoch with their counts so far."""
    counts: dict[str, tuple[int, int]] = {}
    outputs = {}
    for epoch, batch in enumerate(inputs_of(folder)):
        count(batch, counts)
        outputs[epoch] = sorted([k, *counts[k]] for k in {r["k"] for r in batch})
    return outputs


def count(batch: list[dict[str, Any]], counts: dict[str, tuple[int, int]]) -> None:
    for row in batch:
        n, total = counts.get(row["k"], (0, 0))
        counts[row["k"]] = (n + 1, total + row["v"])


def inputs_of(folder: Path) -> list[list[dict[str, Any]]]:
    files = sorted(folder.glob("*.json"))
    return [[json.loads(line) for line in f.read_text().splitlines()] for f in files]


def outputs_of(folder: Path) -> dict[int, list[list[Any]]]:
    return {int(f.stem): sorted(json.loads(f.read_text())) for f in folder.glob("*.json")}
