"""Executors that are about to leave, and executors that Spark gives no tasks."""

import contextlib

import pytest

from cluster.commands import HERE, Driver
from harness import Fault, until

CONF = {"spark.sql.shuffle.partitions": "1"}
SHIP = "spark.sql.streaming.stateStore.binshift.ship."


@pytest.fixture
def driver(tmp_path, jvm_jar):
    with contextlib.ExitStack() as drivers:

        def start(master="local-cluster[3,1,1024]", **conf):
            script = HERE / "departures.py"
            return drivers.enter_context(Driver(tmp_path / "run", master, CONF | conf, script=script))

        yield start


def used(query):
    return {e for on in query("placement")["partitions"] for e in on}


@pytest.mark.long
def test_an_executor_that_another_query_took_meanwhile_is_not_given_back(driver, tmp_path):
    query = driver()
    executors = set(query("await_executors", 3))
    query("epochs", 2)
    empty = sorted(executors - used(query))[0]
    assert query("given_back", empty, 2) == [empty]
    assert empty not in query("executors")
    assert empty in query("another_query", str(tmp_path / "other"), empty)
    query("end_epoch")
    query("epochs", 2)
    # It is like any other executor again, and counts.
    placement = query("placement")
    assert set(placement["executors"]) == executors
    assert (placement["leaving"], placement["configured"]) == ([], 3)
    query.assert_exact(1)
    query.end()


@pytest.mark.long
def test_a_drain_ends_whose_executor_goes_before_it_begins(driver):
    query = driver()
    executors = set(query("await_executors", 3))
    query("epochs", 2)
    empty = sorted(executors - used(query))[0]
    query("drain", empty, 3)
    query("kill", empty)
    query("epochs", 3)
    # The drain ends at its start epoch at the latest, as other plans have to wait for it.
    assert query("finished", 2)
    query.assert_exact(1)
    query.end()


@pytest.mark.long
def test_an_executor_that_spark_excludes_gets_no_partition(driver):
    excluding = {
        "spark.excludeOnFailure.enabled": "true",
        "spark.excludeOnFailure.application.maxFailedTasksPerExecutor": "1",
    }
    query = driver(**excluding, **{"spark.sql.shuffle.partitions": "2"})
    executors = set(query("await_executors", 3))
    query("epochs", 1)
    excluded = query("exclude")
    query("epochs", 2)
    placement = query("placement")
    assert (set(placement["executors"]), placement["decommissioned"]) == (executors - {excluded}, [excluded])
    # It gets neither new partitions nor others', although it has the fewest.
    query("grow", 3)
    query("finish")
    assert excluded not in used(query)
    drained = sorted(used(query))[0]
    assert set(query("drain", drained).values()) == executors - {excluded, drained}
    query("finish")
    assert used(query) == executors - {excluded, drained}
    query.assert_exact(3)
    query.end()


@pytest.mark.long
def test_a_drain_tries_another_executor_where_spark_does_not_run_the_partition(driver):
    query = driver(**{SHIP + "maxEpochsToWait": "1"})
    executors = set(query("await_executors", 3))
    query("epochs", 2)
    (drained,) = used(query)
    query("occupy", 3)
    query("free", drained)
    wanted = query("drain", drained)["0"]
    # The task waits for its executor as long as the settings allow.
    query("epochs", 1)
    assert used(query) == {drained}
    (other,) = executors - {drained, wanted}
    query("free", other)
    query("epochs", 1)
    assert used(query) == {other}
    assert query("lasted") < 25
    assert query("finished", 1)
    query("free", wanted)
    query.assert_exact(1)
    query.end()


@pytest.mark.long
def test_partitions_of_a_lost_executor_run_elsewhere_at_once_also_after_a_drain(driver):
    query = driver(**{"spark.sql.shuffle.partitions": "2", "spark.locality.wait": "2min"})
    query("await_executors", 3)
    query("epochs", 2)
    drained = sorted(used(query))[0]
    query("drain", drained)
    query("finish")
    # One partition has lost its executor, and Spark waits for the other's.
    assert len(used(query)) == 2
    lost = sorted(used(query))[0]
    query("kill", lost)
    query("epochs", 1)
    assert query("lasted") < 60
    assert not used(query) & {drained, lost}
    query.assert_exact(2)
    query.end()


@pytest.mark.long
@pytest.mark.parametrize("within", [False, True], ids=["before-an-epoch", "within-an-epoch"])
def test_after_a_drain_an_executor_that_is_lost_costs_no_longer_wait_than_sparks(driver, within):
    """With Spark's default for the wait, and while the executor that was drained lives on."""
    query = driver("local-cluster[4,1,1024]", **{"spark.sql.shuffle.partitions": "3"})
    query("await_executors", 4)
    query("epochs", 2)
    drained = sorted(used(query))[0]
    query("drain", drained)
    query("finish")
    assert drained in query("executors")
    lost = sorted(used(query))[0]
    if within:
        seconds = query("replace_within", lost, 4)
    else:
        query("kill", lost)
        query("await_executors", 4)
        query("epochs", 1)
        seconds = query("lasted")
    # The wait that a drain raises is 30 s.
    assert seconds < 15
    query("epochs", 1)
    assert query("lasted") < 15
    assert not used(query) & {drained, lost}
    query.assert_exact(3)
    query.end()


@pytest.mark.long
@pytest.mark.parametrize("within", [False, True], ids=["before-an-epoch", "within-an-epoch"])
def test_a_partition_waits_no_longer_than_sparks_if_its_second_executor_is_lost_as_well(driver, within):
    """Spark decommissions its executor, and then the one that binshift has chosen instead is lost."""
    query = driver("local-cluster[2,1,1024]", **{"spark.decommission.enabled": "true"})
    executors = set(query("await_executors", 2))
    query("epochs", 2)
    (first,) = used(query)
    (second,) = executors - {first}
    query("decommission", first)
    query("evacuated", 1)
    # No third one had joined by then.
    assert query("executors") == [second]
    if within:
        seconds = query("replace_within", second, 2)
    else:
        query("kill", second)
        assert until(lambda: len(set(query("executors")) - executors) == 2)
        query("epochs", 1)
        seconds = query("lasted")
    # The wait that a decommissioned executor raises is 30 s.
    assert seconds < 15
    query("epochs", 1)
    assert query("lasted") < 15
    assert not used(query) & executors
    query.assert_exact(1)
    query.end()


@pytest.mark.long
def test_a_lost_executor_costs_no_longer_wait_than_sparks_while_no_standby_is_ready(driver):
    with Fault("standby.turn", "block"):
        conf = {"spark.sql.shuffle.partitions": "2", "spark.sql.streaming.stateStore.binshift.standbys": "1"}
        query = driver("local-cluster[4,1,1024]", **conf)
        query("await_executors", 4)
        query("epochs", 2)
        drained = sorted(used(query))[0]
        query("drain", drained)
        query("finish")
        lost = sorted(used(query))[0]
        query("kill", lost)
        query("await_executors", 4)
        query("epochs", 1)
        assert query("lasted") < 15
        assert not used(query) & {drained, lost}
    query.assert_exact(2)
    query.end()
