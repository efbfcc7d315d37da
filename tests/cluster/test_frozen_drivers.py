"""A driver that was replaced and wakes up again leaves alone what its successor made.

Each test ends with a third driver, which reads all of the state from the checkpoint.
"""

import pytest

from cluster.frozen import drivers_of_a_query

FORMATS = [{}, {"spark.sql.streaming.stateStore.checkpointFormatVersion": "2"}]


@pytest.fixture(params=FORMATS, ids=["format-1", "format-2"])
def drivers(request, tmp_path, jvm_jar):
    with drivers_of_a_query(tmp_path / "run", jvm_jar, request.param) as started:
        yield started


def run_some(drivers, epochs=2):
    """A driver that has run some epochs, and has ended."""
    driver = drivers.start()
    driver("epochs", epochs)
    return driver


def assert_goes_on(drivers, last, partitions=2):
    """The driver that is left goes on without its executors, and another one after it."""
    last("epochs", 1)
    last("lose_stores")
    last("epochs", 1)
    last.assert_outputs()
    last.kill()
    third = drivers.start()
    third("epochs", 2)
    third.assert_exact(partitions)


@pytest.mark.long
@pytest.mark.parametrize("begins", [0, 2])
def test_a_run_that_wakes_in_its_first_epoch_deletes_nothing_of_its_successor(drivers, begins):
    if begins > 0:
        run_some(drivers, begins).kill()
    first = drivers.start(f"after:/offsets/{begins}", faults=["run.begun.kill"])
    first.tell("epochs", 1)
    first.await_stop()
    second = drivers.start(f"before:/commits/{begins}")
    second.await_stop()
    first.wake_in_vain()
    second.wake()
    assert_goes_on(drivers, second)


@pytest.mark.long
@pytest.mark.parametrize("partitions", [2, 4])
def test_a_table_that_a_replaced_driver_writes_late_is_not_obeyed(drivers, partitions):
    first = drivers.start("after:/offsets/2")
    first("epochs", 2)
    if partitions == 2:
        first("swap")
    else:
        first("rescale", partitions, 64, False)
    first.tell("epochs", 1)
    first.await_stop()
    second = drivers.start()
    second("cancel")
    second("epochs", 1)
    assert first.wake_in_vain()
    assert_goes_on(drivers, second)


@pytest.mark.long
def test_a_run_that_wakes_after_an_epoch_that_it_ran_again_leaves_the_table_in_force(drivers):
    driver = drivers.start("after:/offsets/2")
    driver("epochs", 2)
    driver.tell("epochs", 1)
    driver.await_stop()
    driver.kill()
    first = drivers.start("after:/offsets/3")
    first.tell("epochs", 1)
    first.await_stop()
    second = drivers.start()
    second("epochs", 1)
    second("swap")
    second("epochs", 3)
    assert first.wake_in_vain()
    assert_goes_on(drivers, second)
