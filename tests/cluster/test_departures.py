"""Executors that are about to go, and those that Spark gives no tasks."""

import contextlib

import pytest

from cluster.commands import HERE, Driver

CONF = {"spark.sql.shuffle.partitions": "1"}


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
    # It is as any other one again, and counts.
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
    # At its start epoch at the latest: nothing else keeps other plans waiting.
    assert query("finished", 2)
    query.assert_exact(1)
    query.end()
