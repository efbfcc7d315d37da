"""The driver dies at every instant of a migration; started again, it goes on with exact results."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

# The rescale is submitted after epoch 1. Epoch 2 prepares the first step, which takes effect at epoch 3.
INSTANTS = [
    "after:/binshift/plans/*.json",
    "before:/binshift/routing/3-*",
    "after:/binshift/routing/3-*",
    "before:/offsets/3",
    "after:/offsets/3",
    "after:/state/0/3/4.zip",
    "before:/state/0/0/4.changelog",
    "before:/commits/3",
    "after:/commits/3",
]


#: Instants that their neighbours stand for in the default test run.
MATRIX = (
    "after:/binshift/plans/*.json",
    "before:/binshift/routing/3-*",
    "after:/binshift/routing/3-*",
    "before:/offsets/3",
    "after:/state/0/3/4.zip",
    "before:/state/0/0/4.changelog",
    "after:/commits/3",
)

#: The same with column families, and with files that have ids in their names.
TRANSFORM = ["--operator=transform", "--conf=spark.sql.streaming.stateStore.checkpointFormatVersion=2"]


#: With copies: partitions are opened at epoch 3, and bins are ordered while that is planned.
PREPARE = ["--prepare"]
PREPARE_INSTANTS = ["after:/binshift/shipping.json", "after:/binshift/routing/3-*", "before:/commits/4"]


#: Partitions are opened at epoch 3, and the switch is at epoch 4; at this pace, bins are missing for long.
ON_DEMAND = [
    "--on-demand",
    "--epochs=8",
    "--conf=spark.sql.streaming.stateStore.binshift.ship.maxBytesPerSecond=1",
]
ON_DEMAND_INSTANTS = [
    "before:/commits/4",
    "before:/state/0/1/7.changelog",
    "after:/offsets/7",
    "before:/commits/7",
]


#: Partitions are opened at epoch 3, and begin with whole files at epoch 4.
SPLIT = ["--epochs=8", "--conf=spark.sql.streaming.stateStore.binshift.ship.minBytesToSplit=1b"]
SPLIT_INSTANTS = ["after:/offsets/4", "before:/state/0/3/5.changelog", "before:/commits/4"]


@pytest.mark.long
@pytest.mark.parametrize(
    ("instant", "extra"),
    [pytest.param(i, [], marks=[pytest.mark.matrix] * (i in MATRIX)) for i in INSTANTS]
    + [pytest.param(i, PREPARE, marks=pytest.mark.matrix) for i in PREPARE_INSTANTS]
    + [
        pytest.param(i, ON_DEMAND, marks=[pytest.mark.matrix] * (i != ON_DEMAND_INSTANTS[1]))
        for i in ON_DEMAND_INSTANTS
    ]
    + [
        pytest.param(i, SPLIT, marks=[pytest.mark.matrix] * (i != SPLIT_INSTANTS[1]), id=f"{i}-split")
        for i in SPLIT_INSTANTS
    ]
    + [
        pytest.param(instant, TRANSFORM, marks=pytest.mark.matrix)
        for instant in ("before:/offsets/3", "after:/offsets/3", "before:/commits/3")
    ]
    + [
        pytest.param(
            instant,
            ON_DEMAND + TRANSFORM,
            marks=pytest.mark.matrix,
            id=f"{instant}-on-demand-transform",
        )
        for instant in ("before:/commits/4", "before:/commits/7")
    ],
    ids=lambda value: value if isinstance(value, str) else "".join(value[:1]).strip("-"),
)
def test_a_driver_that_dies_goes_on_exactly_once(drive, check, jvm_jar, instant, extra):
    arguments = [
        "--rescale=1:5:24",
        "--epochs=5",
        *extra,
        "--conf=spark.sql.streaming.checkpointFileManagerClass=binshift.tests.HaltingCheckpointFileManager",
        f"--conf=spark.jars={jvm_jar}",
    ]
    died = drive(*arguments, env={"BINSHIFT_HALT": instant})
    assert died.returncode != 0, f"nothing happened at {instant}: {died.stdout[-2000:]}"
    report = check(partitions=5, last=drive(*arguments))
    assert sum(report["history"]) >= 38


@pytest.mark.matrix
def test_a_driver_killed_from_outside_while_it_migrates_goes_on_exactly_once(drive, check, tmp_path):
    root = tmp_path / "run"
    root.mkdir()
    arguments = ["--rescale=1:5:8", "--epochs=8"]
    driver = Path(__file__).parent / "driver.py"
    process = subprocess.Popen(
        [sys.executable, str(driver), str(root), *arguments],
        start_new_session=True,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    deadline = time.monotonic() + 120
    while not (root / "checkpoint/offsets/4").exists():
        assert process.poll() is None, "the driver ended before it could be killed"
        assert time.monotonic() < deadline
        time.sleep(0.01)
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    # More epochs, as the first driver may have come to the end of its own before it was killed.
    check(partitions=5, last=drive(*arguments[:-1], "--epochs=12"))
