"""Queries in real-time mode are rescaled live, at the boundary of a batch; each record is counted once.

The source is Spark's in-memory one of that mode, with a clock that stands still until a batch is to end.
"""

from __future__ import annotations

import json
import subprocess
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.needs_spark("4.3", reason="real-time mode runs stateful queries")

Lines = list[str]


def expected(operator: str, fed: list[list[Any]]) -> tuple[Lines, list[list[Any]]]:
    """What a query writes and keeps, counted in Python."""
    lines: Lines = []
    counts: Counter[str] = Counter()
    sums: Counter[str] = Counter()
    for k, v in (row for epoch in fed for row in epoch):
        counts[k] += 1
        sums[k] += v
        if operator == "distinct":
            if counts[k] == 1:
                lines.append(k)
        else:
            lines.append(f"{k} {counts[k]} {sums[k]}")
    state: list[list[Any]] = {
        "count": [[k, counts[k], sums[k]] for k in counts],
        "distinct": [[k, None] for k in counts],
        "transform": [[k, sums[k]] for k in counts],
    }[operator]
    return sorted(lines), sorted(state)


def report_of(root: Path, operator: str, last: subprocess.CompletedProcess[str]) -> dict[str, Any]:
    assert last.returncode == 0, last.stderr[-6000:]
    report: dict[str, Any] = json.loads((root / "run" / "report.json").read_text())
    lines, state = expected(operator, report["fed"])
    assert report["lines"] == lines
    assert report["state"] == state
    assert report["provider"] == "binshift.StateStoreProvider"
    assert "OrderByBin" not in report["plan"]
    assert report["metadata"] == [report["partitions"]]
    return report


@pytest.fixture
def drive(drive: Any, jvm_jar: Path) -> Any:
    """The driver script of this file, with what tests add to the JVM."""

    def run(*arguments: str, env: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
        return drive(*arguments, f"--conf=spark.jars={jvm_jar}", script="realtime.py", env=env)  # type: ignore[no-any-return]

    return run


def test_a_count_is_rescaled_while_batches_are_open(drive, tmp_path):
    report = report_of(tmp_path, "count", drive("--rescale", "4", "2", "--prepare"))
    assert report["partitions"] == 2
    # Each epoch is logged with the partitions that it ran with.
    assert report["offsets"][0] == "2"
    assert "4" in report["offsets"]
    assert report["offsets"][-1] == "2"
    assert min(report["history"]) > 0


def test_a_plan_that_does_not_fit_waits(drive, tmp_path):
    report = report_of(tmp_path, "count", drive("--rescale", "5", "--occupy"))
    assert report["partitions"] == 5


@pytest.mark.matrix
@pytest.mark.parametrize("prepare", [(), ("--prepare",)], ids=["sent", "prepared"])
@pytest.mark.parametrize("operator", ["count", "distinct", "transform"])
def test_operators_of_the_mode_grow_shrink_and_are_shuffled(drive, tmp_path, operator, prepare):
    arguments = ("--operator", operator, "--rescale", "5", "0", "3", *prepare)
    report = report_of(tmp_path, operator, drive(*arguments))
    assert report["partitions"] == 3


@pytest.mark.matrix
def test_the_second_format_of_the_offset_log_says_what_held(drive, tmp_path):
    conf = "--conf=spark.sql.streaming.offsetLog.formatVersion=2"
    report = report_of(tmp_path, "count", drive("--rescale", "4", "2", conf))
    assert report["offsets"][0] == report["offsets"][-1] == "2"


#: The rescale is asked for in epoch 2. Its step is prepared while epoch 3 is planned, for epoch 4.
INSTANTS = [
    "after:/binshift/plan.json",
    "before:/binshift/routing/4",
    "after:/binshift/routing/4",
    "after:/state/0/3/5_*.zip",
    "before:/state/0/0/5_*.changelog",
    "before:/offsets/4",
    "after:/offsets/4",
    "before:/commits/4",
    "after:/commits/4",
]


@pytest.mark.parametrize(
    ("instant", "to"),
    [pytest.param(i, "4", marks=[pytest.mark.matrix] * (i != "after:/offsets/4")) for i in INSTANTS]
    + [pytest.param(i, to, marks=pytest.mark.matrix) for i in INSTANTS[5:8] for to in ("0", "1")],
)
def test_a_driver_that_dies_in_a_batch_goes_on_exactly_once(drive, tmp_path, instant, to):
    arguments = [
        *("--rescale", to),
        "--conf=spark.sql.streaming.checkpointFileManagerClass=binshift.tests.HaltingCheckpointFileManager",
    ]
    died = drive(*arguments, env={"BINSHIFT_HALT": instant})
    assert died.returncode != 0, f"nothing happened at {instant}: {died.stdout[-2000:]}"
    assert not (tmp_path / "run/report.json").exists(), died.stderr[-4000:]
    report = report_of(tmp_path, "count", drive(*arguments))
    assert report["partitions"] == {"4": 4, "0": 2, "1": 1}[to]
    # What was set aside is gone once it was of no use.
    assert not list((tmp_path / "run/checkpoint/binshift/aside").glob("[0-9]*"))
