"""Runs queries in real-time mode in drivers of their own, and compares them with expected results."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from cluster.commands import Driver

Lines = list[str]
#: The rescale to 4 partitions is asked for in epoch 2. Its step is prepared while epoch 3 is planned, for
#: epoch 4. An epoch is logged when it ends.
INSTANTS_OF_A_STEP = [
    "before:/binshift/routing/4-*",
    "after:/binshift/routing/4-*",
    "after:/state/0/3/5_*.zip",
    "before:/state/0/0/5_*.changelog",
    "before:/offsets/4",
    "after:/offsets/4",
    "before:/commits/4",
    "after:/commits/4",
]


def expected(operator: str, fed: list[list[Any]]) -> tuple[Lines, list[list[Any]]]:
    """The outputs and the state of a query, computed in Python."""
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
    state: dict[str, list[list[Any]]] = {
        "count": [[k, counts[k], sums[k]] for k in counts],
        "distinct": [[k, None] for k in counts],
        "transform": [[k, sums[k]] for k in counts],
    }
    return sorted(lines), sorted(state[operator])


def report_of(root: Path, operator: str, last: subprocess.CompletedProcess[str]) -> dict[str, Any]:
    assert last.returncode == 0, last.stderr[-6000:]
    return assert_exact(json.loads((root / "run" / "report.json").read_text()), operator)


def assert_exact(report: dict[str, Any], operator: str = "count") -> dict[str, Any]:
    lines, state = expected(operator, report["fed"])
    assert report["lines"] == lines
    assert report["state"] == state
    assert report["provider"] == "binshift.StateStoreProvider"
    assert "OrderByBin" not in report["plan"]
    assert report["metadata"] == [report["partitions"]]
    return report


SCRIPT = Path(__file__).parent / "realtime_commanded.py"
HALTING = {
    "spark.sql.streaming.checkpointFileManagerClass": "binshift.tests.HaltingCheckpointFileManager",
}


def commanded(
    root: Path,
    jvm_jar: Path,
    conf: Mapping[str, str] | None = None,
    *,
    checkpoint: Path | str = "",
    halt: str = "",
    master: str = "local[8,1]",
) -> Driver:
    """A driver of a query in real-time mode that takes commands."""
    all_of_it = {"spark.jars": str(jvm_jar), **(conf or {})}
    return Driver(root, master, all_of_it, str(checkpoint), halt=halt, script=SCRIPT)


class Two:
    """A driver in the epoch at which it goes to 4 partitions, and a second one, started by mistake."""

    def __init__(self, folder: Path, real_time: Callable[..., Driver], halt: str = "") -> None:
        self.folder, self.real_time = folder, real_time
        self.checkpoint = folder / "first/checkpoint"
        self.first = self.start("first", halt=halt)
        self.first("batches", 2)
        self.first("rescale", 4)
        self.epoch = self.first("batches", 2)
        assert self.first("tables")[-1] == self.epoch
        self.first("rows")

    def start(self, name: str, halt: str = "") -> Driver:
        """Starts another driver, with the first one's input and its outputs of committed epochs."""
        root = self.folder / name
        if name != "first":
            root.mkdir()
            for marker in (self.folder / "first").glob("fed-*"):
                (root / marker.name).touch()
            (root / "outputs").mkdir()
            for file in (self.folder / "first/outputs").iterdir():
                if (self.checkpoint / f"commits/{file.name.split('.')[0]}").exists():
                    shutil.copy(file, root / "outputs")
        return self.real_time(name, HALTING, checkpoint=self.checkpoint, halt=halt)

    def start_second(self) -> Driver:
        second = self.start("second")
        assert second("open") == self.epoch
        return second
