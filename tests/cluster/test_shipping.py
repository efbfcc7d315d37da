"""Bins are shipped between executors in separate JVMs, any of which may die meanwhile."""

import json

import pytest

from binshift.session import CHANGELOG_KEY
from harness import Fault

CLUSTER = "--master=local-cluster[3,1,1024]"
FAULTS = (
    "--conf=spark.binshift.internal.faults=org.apache.spark.sql.execution.streaming.state.binshift.TestFaults"
)
SPLIT = "spark.sql.streaming.stateStore.binshift.ship.minBytesToSplit"
PIECES = "spark.sql.streaming.stateStore.binshift.ship.chunkBytes"


@pytest.fixture
def ship(drive, jvm_jar):
    def run(*args):
        return drive(
            CLUSTER, "--prepare", "--rescale=1:6:24", "--epochs=8", f"--conf=spark.jars={jvm_jar}", *args
        )

    return run


@pytest.mark.parametrize("operator", ["aggregate", pytest.param("transform", marks=pytest.mark.matrix)])
def test_every_bin_travels_before_its_step(ship, check, operator):
    # If Spark moved a partition off a busy executor after its wait of 3 s, copies would be made again there.
    options = ("--conf=spark.locality.wait=1min", f"--conf={PIECES}=1", "--count-messages")
    report = check(partitions=6, last=ship(f"--operator={operator}", *options))
    # Two senders and four receivers report their begin and end to the driver, and nobody reports pieces.
    assert 0 < report["messages"] <= 2 * (2 + 4)
    others = {"Shipped": 0, "FromCheckpoint": 0, "Recopied": 0}
    assert report["paths"] == {"Prepared": sum(report["history"]), **others}


@pytest.mark.long
@pytest.mark.parametrize(
    "fault",
    [
        pytest.param("fetch.chunk.kill", marks=pytest.mark.matrix),
        "switch.ingest.kill",
        pytest.param("export.chunk.kill", marks=pytest.mark.matrix),
        pytest.param("stage.done.kill", marks=pytest.mark.matrix),
    ],
)
def test_an_executor_that_dies_while_it_ships_leaves_exact_results(ship, check, fault):
    point, action = fault.rsplit(".", 1)
    armed = Fault(point, action)
    try:
        report = check(
            partitions=6,
            last=ship(FAULTS, f"--shipping-fault={fault}"),
        )
        assert armed.happened
        assert sum(report["paths"].values()) > 0
    finally:
        armed.file.unlink(missing_ok=True)


@pytest.mark.long
@pytest.mark.parametrize(
    "fault",
    [
        "rows.answer.kill",
        *(
            pytest.param(f, marks=pytest.mark.matrix)
            for f in ("rows.add.kill", "rows.overlay.kill", "rows.answer.throw", "rows.answer.damage")
        ),
    ],
)
def test_a_fault_while_rows_travel_leaves_exact_results(ship, check, fault):
    point, action = fault.rsplit(".", 1)
    armed = Fault(point, action)
    try:
        report = check(partitions=6, last=ship(FAULTS, "--on-demand", f"--shipping-fault={fault}"))
        assert armed.happened
    finally:
        armed.file.unlink(missing_ok=True)
    # The other old owners' bins are fetched although one owner does not answer.
    assert report["rows_fetched"] > 0


@pytest.mark.long
@pytest.mark.parametrize(
    "how",
    [pytest.param((), id="prepared"), pytest.param(("--on-demand",), id="on-demand", marks=pytest.mark.matrix)],
)
def test_speculative_tasks_change_nothing(ship, check, how):
    options = (
        "spark.speculation=true",
        "spark.speculation.interval=10ms",
        "spark.speculation.multiplier=1.01",
        "spark.speculation.quantile=0.1",
        "spark.speculation.minTaskRuntime=1ms",
    )
    report = check(partitions=6, last=ship(*how, *(f"--conf={o}" for o in options)))
    assert report["inexact_bins"] == 0


@pytest.fixture
def split(drive, jvm_jar):
    def run(*args):
        return drive(
            CLUSTER,
            "--rescale=1:6:64",
            "--epochs=8",
            f"--conf=spark.jars={jvm_jar}",
            f"--conf={SPLIT}=1b",
            *args,
        )

    return run


@pytest.mark.long
@pytest.mark.parametrize("operator", ["aggregate", pytest.param("transform", marks=pytest.mark.matrix)])
def test_new_partitions_begin_with_whole_files_wherever_old_owners_are(split, check, operator):
    # Each epoch makes a snapshot, with which those can begin whose old owner is elsewhere.
    snapshots = f"--conf={CHANGELOG_KEY}=false"
    with Fault("split.begun", "count") as begins:
        report = check(partitions=6, last=split(FAULTS, snapshots, f"--operator={operator}"))
        assert begins.count >= 4
    assert report["paths"]["FromCheckpoint"] > 0
    assert report["paths"]["Prepared"] == report["paths"]["Recopied"] == 0
    assert sum(report["paths"].values()) == sum(report["history"])


@pytest.mark.long
@pytest.mark.parametrize(
    "fault", ["split.begun.kill", pytest.param("split.link.kill", marks=pytest.mark.matrix)]
)
def test_an_executor_that_dies_with_whole_files_leaves_exact_results(split, check, fault):
    armed = Fault(*fault.rsplit(".", 1))
    try:
        check(partitions=6, last=split(FAULTS, f"--shipping-fault={fault}"))
        assert armed.happened
    finally:
        armed.file.unlink(missing_ok=True)


@pytest.mark.long
def test_a_task_that_is_retried_on_another_executor_does_not_wait_for_what_the_first_one_got(
    drive, check, tmp_path
):
    elsewhere = (
        "spark.excludeOnFailure.taskAndStage.enabled=true",
        "spark.excludeOnFailure.task.maxTaskAttemptsPerExecutor=1",
        "spark.task.maxFailures=3",
        "spark.sql.streaming.stateStore.binshift.ship.timeout=10min",
    )
    finished = drive(
        "--master=local-cluster[2,1,1024]",
        "--rescale=1:2:64",
        "--epochs=4",
        "--on-demand",
        "--fault=fail-task",
        *(f"--conf={o}" for o in elsewhere),
    )
    report = check(partitions=2, last=finished)
    assert (tmp_path / "run/fault.done").exists()
    # If a wait were in vain, the waiting task would read the bin from the checkpoint, which would be counted.
    assert report["paths"]["FromCheckpoint"] == 0
    assert 0 < report["paths"]["Recopied"] < report["paths"]["Shipped"]


@pytest.mark.long
def test_who_looks_at_a_shipment_under_way_sees_all_of_what_it_says(drive, tmp_path, jvm_jar):
    finished = drive(str(jvm_jar), script="markers.py")
    assert finished.returncode == 0, finished.stderr[-4000:]
    seen = json.loads((tmp_path / "run/markers.json").read_text())
    assert seen["reads"] > 10
    assert seen["bad"] == 0
    assert not seen["known"]
