"""Queries in real-time mode are rescaled live, at the boundary of a batch; each record is counted once.

The source is Spark's in-memory one of that mode, with a clock that stands still until a batch is to end.
"""

from __future__ import annotations

import json
import shutil
import subprocess
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from cluster.commands import DriverEndedError
from cluster.realtime import fed
from cluster.realtime_runs import HALTING, INSTANTS_OF_A_STEP, Two, assert_exact, expected, report_of

pytestmark = [
    pytest.mark.needs_spark("4.3", reason="real-time mode runs stateful queries"),
    pytest.mark.timeout(900),
]


@pytest.fixture
def drive(drive: Any, jvm_jar: Path) -> Any:
    """Runs the driver script of this file, with the tests' classes in the JVM."""

    def run(*arguments: str, env: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
        conf = f"--conf=spark.jars={jvm_jar}"
        # Batches of several executors end by the clock, after five seconds each.
        return drive(*arguments, conf, script="realtime.py", env=env, seconds=800)

    return run


@pytest.mark.long
def test_a_count_is_rescaled_while_batches_are_open(drive, tmp_path):
    report = report_of(tmp_path, "count", drive("--rescale", "4", "2", "--prepare"))
    assert report["partitions"] == 2
    # Each epoch is logged with the partitions that it ran with.
    assert report["offsets"][0] == "2"
    assert "4" in report["offsets"]
    assert report["offsets"][-1] == "2"
    assert min(report["history"]) > 0


@pytest.mark.matrix
def test_a_plan_that_does_not_fit_waits(drive, tmp_path):
    report = report_of(tmp_path, "count", drive("--rescale", "5", "--occupy"))
    assert report["partitions"] == 5


@pytest.mark.matrix
@pytest.mark.parametrize(
    "prepare", [(), ("--prepare",), ("--on-demand",)], ids=["sent", "prepared", "on-demand"]
)
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


INSTANTS = ["after:/binshift/plans/*.json", *INSTANTS_OF_A_STEP]


@pytest.mark.parametrize(
    ("instant", "to"),
    [pytest.param(i, "4", marks=pytest.mark.matrix) for i in INSTANTS]
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


@pytest.mark.matrix
def test_an_epoch_of_which_two_drivers_wrote_one_log_each_is_not_gone_on_from(drive, tmp_path):
    """A start treats an epoch that another driver has logged and not committed as lost, and logs it anew."""
    halting = (
        "--conf=spark.sql.streaming.checkpointFileManagerClass=binshift.tests.HaltingCheckpointFileManager"
    )
    assert drive("--rescale", "4", halting, env={"BINSHIFT_HALT": "after:/commits/4"}).returncode != 0
    checkpoint = tmp_path / "run/checkpoint"
    shutil.copy(checkpoint / "offsets/3", checkpoint / "offsets/4")
    (checkpoint / "offsets/.4.crc").unlink(missing_ok=True)
    last = drive("--rescale", "4")
    assert last.returncode != 0
    assert "commits/4 has state of 4 partitions, and offsets/4 was logged with 2" in last.stderr


@pytest.mark.matrix
@pytest.mark.parametrize("operator", ["count", "distinct", "transform"])
def test_a_checkpoint_of_sparks_provider_is_taken_over(drive, tmp_path, operator):
    report = report_of(tmp_path, operator, drive("--take-over", "--operator", operator, "--rescale", "4"))
    assert report["partitions"] == 4


@pytest.mark.matrix
@pytest.mark.parametrize(
    "instant", ["before:/binshift/layout.json", "before:/offsets/2", "after:/offsets/2", "after:/commits/2"]
)
def test_a_driver_that_dies_while_it_takes_over_goes_on_exactly_once(drive, tmp_path, instant):
    arguments = [
        *("--take-over", "--rescale", "4"),
        "--conf=spark.sql.streaming.checkpointFileManagerClass=binshift.tests.HaltingCheckpointFileManager",
    ]
    died = drive(*arguments, env={"BINSHIFT_HALT": instant})
    assert died.returncode != 0, f"nothing happened at {instant}: {died.stdout[-2000:]}"
    report = report_of(tmp_path, "count", drive(*arguments))
    assert report["partitions"] == 4


@pytest.mark.matrix
def test_a_query_goes_from_real_time_mode_to_micro_batches_and_back(drive, tmp_path):
    last = drive("--batches", "--rescale", "4", "3")
    assert last.returncode == 0, last.stderr[-6000:]
    report = json.loads((tmp_path / "run/report.json").read_text())
    lines, state = expected("count", report["fed"])
    # A micro-batch outputs a row for each of its keys, not for each input row.
    assert set(report["lines"]) <= set(lines)
    assert {f"{k} {n} {total}" for k, n, total in state} <= set(report["lines"])
    assert (report["state"], report["partitions"]) == (state, 3)


@pytest.mark.matrix
def test_a_second_driver_ends_and_the_first_one_keeps_its_table(tmp_path, real_time):
    two = Two(tmp_path, real_time)
    second = two.start_second()
    two.first("batches", 1)
    assert "CONCURRENT" in second("ends_in_vain")
    assert two.epoch in two.first("tables")
    two.first("finish")
    # Opened partitions upload all their state, and the second driver is the newest run in the history.
    two.first("rescale", 6)
    two.first("finish")
    report = assert_exact(two.first("report"))
    assert report["partitions"] == 6


@pytest.mark.matrix
def test_a_second_driver_that_is_faster_goes_on_and_takes_the_step_again(tmp_path, real_time):
    two = Two(tmp_path, real_time)
    second = two.start_second()
    second("batches", 1)
    assert "CONCURRENT" in two.first("ends_in_vain")
    second("finish")
    report = assert_exact(second("report"))
    assert report["partitions"] == 4


@pytest.mark.matrix
def test_the_table_of_an_epoch_is_found_though_its_driver_and_a_second_one_have_died(tmp_path, real_time):
    two = Two(tmp_path, real_time, halt="after:/commits/4")
    second = two.start_second()
    with pytest.raises(DriverEndedError):
        two.first("batches", 1)
    assert "CONCURRENT" in second("ends_in_vain")
    third = two.start("third")
    assert third("open") == two.epoch + 1
    assert two.epoch in third("tables")
    third("finish")
    report = assert_exact(third("report"))
    assert report["partitions"] == 4


@pytest.mark.matrix
def test_a_second_driver_with_other_partitions_leaves_the_first_epoch_alone(tmp_path, real_time):
    first = real_time("first")
    assert first("open") == 0
    first("rows")
    other = {"spark.sql.shuffle.partitions": "4"}
    second = real_time("second", other, checkpoint=tmp_path / "first/checkpoint")
    with pytest.raises(DriverEndedError):
        second("open")
    said = (tmp_path / "second/stderr").read_text()
    assert "epoch 0 was begun with 2 partitions by another run" in said
    assert "this run has 4;" in said
    first("batches", 2)
    report = assert_exact(first("report"))
    assert report["partitions"] == 2


@pytest.mark.matrix
def test_variables_of_an_attempt_that_did_not_end_give_way_to_those_of_the_next_one(tmp_path, real_time):
    """Spark writes which variables there are when a run's first batch ends, and keeps a file that is there."""
    root = tmp_path / "run"
    operator = {"spark.binshift.tests.operator": "transform"}
    first = real_time(conf=operator)
    first("batches", 2)
    first.kill()
    attempt = real_time(conf=operator | HALTING, halt="after:/0/_metadata/v2/2")
    with pytest.raises(DriverEndedError):
        attempt("batches", 1)
    assert (root / "checkpoint/state/0/_metadata/v2/2").exists()
    later = {"spark.binshift.tests.operator": "transform-more"}
    last = real_time(conf=later)
    assert last("open") == 2
    last("batches", 1)
    counts = last("variable", "count")
    # The next batch has the attempt's rows and those that have come since.
    assert dict(counts) == Counter(k for epoch in (2, 3) for k, _ in fed(epoch))


@pytest.mark.matrix
@pytest.mark.parametrize("operator", ["count", "transform"])
def test_bins_go_from_executor_to_executor_while_tasks_have_all_cores(drive, tmp_path, operator):
    cluster = ("--master", "local-cluster[2,4,1024]")
    arguments = ("--operator", operator, "--rescale", "6", "3", "--prepare", "--at-once", *cluster)
    report = report_of(tmp_path, operator, drive(*arguments))
    assert report["partitions"] == 3
    assert report["paths"]["Prepared"] > 0
    assert report["paths"]["FromCheckpoint"] == 0
