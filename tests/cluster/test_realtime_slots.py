"""In real-time mode all tasks of a batch run at once, so a plan must fit into the existing slots."""

from __future__ import annotations

import pytest

from cluster.realtime_runs import assert_exact

pytestmark = [
    pytest.mark.needs_spark("4.3", reason="real-time mode runs stateful queries"),
    pytest.mark.timeout(900),
]


@pytest.mark.matrix
def test_a_plan_that_takes_fewer_slots_is_accepted_though_none_is_free(real_time):
    driver = real_time()
    driver("batches", 2)
    # More tasks than free slots: some wait for slots of the query.
    driver("occupy", 8, 5)
    driver("rescale", 1)
    driver("free")
    driver("finish")
    report = assert_exact(driver("report"))
    assert report["partitions"] == 1


@pytest.mark.matrix
def test_a_job_that_comes_while_a_batch_is_planned_ends_the_query_and_the_next_start_goes_on(real_time):
    driver = real_time()
    driver("batches", 2)
    driver("rescale", 5)
    due = driver("due")
    driver("occupy_while_planned", 3)
    assert "CONCURRENT_SCHEDULER_INSUFFICIENT_SLOT" in driver("ends_in_vain")
    driver("free")
    driver("start")
    assert driver("open") == due
    assert due not in driver("tables")
    driver("finish")
    report = assert_exact(driver("report"))
    assert report["partitions"] == 5


@pytest.mark.matrix
@pytest.mark.parametrize(
    ("operator", "before", "after"),
    [
        ("count", 2, 4),
        ("distinct-count", 2, 4),
        ("distinct-count", 1, 2),
        ("repartitioned", 2, 4),
        ("repartitioned-by-key", 2, 4),
        ("repartitioned-by-column", 2, 4),
        ("repartitioned-counts", 2, 4),
        ("united-repartitioned", 3, 4),
        ("united-repartitioned", 2, 4),
    ],
)
def test_slots_are_counted_as_spark_takes_them(real_time, operator, before, after):
    conf = {"spark.binshift.tests.operator": operator, "spark.sql.shuffle.partitions": str(before)}
    driver = real_time(conf=conf, master="local[12,1]")
    driver("batches", 1)
    needed = driver("needed", after)
    driver("rescale", after)
    driver("finish")
    assert driver("tasks") == needed


@pytest.mark.matrix
def test_fewer_partitions_that_need_more_slots_are_refused_or_wait(real_time):
    """With two state partitions, the user's two of the same keys are those of the state."""
    conf = {"spark.binshift.tests.operator": "repartitioned-by-key"}
    full = real_time("full", conf, master="local[3,1]")
    full("batches", 2)
    assert full("tasks") == 3
    condition, parameters, _ = full("refused", "rescale", 1)
    assert (condition, parameters) == ("TOO_FEW_SLOTS", {"needed": 4, "present": 3})
    full("finish")
    assert_exact(full("report"))
    full.kill()
    driver = real_time(conf=conf, master="local[4,1]")
    driver("batches", 2)
    driver("rescale", 1)
    driver("occupy", 1, 1)
    driver("batches", 3)
    assert driver("partitions") == 2
    driver("free")
    due = driver("due")
    driver("occupy", 1, 1)
    driver("batches", 1)
    assert due not in driver("tables")
    assert driver("partitions") == 2
    driver("free")
    driver("finish")
    assert driver("tasks") == 4
    # The user's two partitions are not counted in addition to those of the state.
    driver("rescale", 2)
    driver("finish")
    assert driver("tasks") == 3
    report = assert_exact(driver("report"))
    assert report["partitions"] == 2


@pytest.mark.matrix
def test_an_executor_is_drained_without_jobs_that_take_slots(real_time):
    conf = {
        "spark.sql.streaming.stateStore.binshift.standbys": "1",
        "spark.sql.shuffle.partitions": "4",
    }
    driver = real_time(conf=conf, master="local-cluster[2,4,1024]")
    driver("batches", 2)
    executor = driver("placed")[0][0]
    condition, parameters, message = driver("refused", "drain", executor)
    assert (condition, parameters) == ("TOO_FEW_SLOTS", {"needed": 5, "present": 4})
    assert f"without executor {executor}; add executors first" in message
    driver("rescale", 2)
    driver("finish")
    [executor] = driver("placed")[0]
    driver("drain", executor)
    driver("finish")
    assert executor not in {e for on in driver("placed") for e in on}
    # State gets no slot of this executor again.
    condition, parameters, message = driver("refused", "rescale", 4)
    assert (condition, parameters) == ("TOO_FEW_SLOTS", {"needed": 5, "present": 4})
    assert f"4 are there without executor {executor}; add executors" in message
    # No task waits for an executor that is full until the batch ends.
    assert not driver("is_set", "spark.locality.wait.process")
    assert driver("own_jobs") == []
    report = assert_exact(driver("report"))
    assert report["partitions"] == 2


@pytest.mark.matrix
def test_what_spark_decommissions_is_emptied_at_the_next_boundary(real_time):
    conf = {"spark.decommission.enabled": "true", "spark.sql.shuffle.partitions": "2"}
    driver = real_time(conf=conf, master="local-cluster[2,6,1024]")
    driver("batches", 2)
    executor = driver("placed")[0][0]
    driver("decommission", executor)
    driver("batches", 3)
    assert executor not in {e for on in driver("placed") for e in on}
    assert not driver("is_set", "spark.locality.wait.process")
    assert driver("own_jobs") == []
    report = assert_exact(driver("report"))
    assert report["partitions"] == 2
