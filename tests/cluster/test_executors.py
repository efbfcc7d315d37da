"""Several executors, each a JVM of its own, and what may happen to them at a switch."""

import pytest

CLUSTER = "--master=local-cluster[3,1,1024]"


def test_a_query_on_several_executors_grows_and_shrinks(drive, check):
    finished = drive(CLUSTER, "--rescale=1:6:64", "--epochs=6")
    report = check(partitions=6, last=finished)
    assert report["partitions_seen"][0] == 2
    assert report["partitions_seen"][-1] == 6
    assert report["executors"] == ["0", "1", "2"]
    assert report["inexact_bins"] == 0


@pytest.mark.long
@pytest.mark.parametrize(
    ("fault", "operator"),
    [
        pytest.param("fail-task", "transform", marks=pytest.mark.matrix),
        ("kill-executor", "aggregate"),
        pytest.param("fail-task", "aggregate", marks=pytest.mark.matrix),
        pytest.param("kill-executor", "transform", marks=pytest.mark.matrix),
    ],
)
def test_a_fault_at_the_switch_epoch_leaves_exact_results(drive, check, tmp_path, fault, operator):
    ids = "--conf=spark.sql.streaming.stateStore.checkpointFormatVersion=" + str(1 + (operator == "transform"))
    finished = drive(
        CLUSTER, "--rescale=1:6:64", "--epochs=6", f"--fault={fault}", f"--operator={operator}", ids
    )
    # Reports of failed tasks are not counted, and no report is counted twice.
    assert check(partitions=6, last=finished)["inexact_bins"] == 0
    assert (tmp_path / "run/fault.done").exists()


@pytest.mark.matrix
def test_a_task_that_fails_at_a_shrinking_switch_is_retried(drive, check, tmp_path):
    finished = drive("--rescale=1:1:64", "--epochs=5", "--fault=fail-task")
    check(partitions=1, last=finished)
    assert (tmp_path / "run/fault.done").exists()
