"""A driver of a query in real-time mode that was replaced while it was stopped, and wakes up again."""

import pytest

from cluster.frozen import Drivers, drivers_of_a_query
from cluster.realtime_runs import INSTANTS_OF_A_STEP, SCRIPT, assert_exact

pytestmark = [
    pytest.mark.long,
    pytest.mark.needs_spark("4.3", reason="real-time mode runs stateful queries"),
]


class RealTimeDrivers(Drivers):
    # Tasks of all partitions run at the same time, and are tried once.
    master = "local[8,1]"
    script = SCRIPT


@pytest.fixture
def drivers(tmp_path, jvm_jar):
    with drivers_of_a_query(tmp_path / "run", jvm_jar, {}, RealTimeDrivers) as started:
        yield started


ALWAYS = ("after:/offsets/4", "before:/commits/4")


@pytest.mark.parametrize(
    "instant", [pytest.param(i, marks=[] if i in ALWAYS else pytest.mark.matrix) for i in INSTANTS_OF_A_STEP]
)
def test_a_driver_that_is_replaced_at_any_instant_of_a_step_changes_nothing(drivers, instant):
    first = drivers.start(instant)
    first("batches", 2)
    first("rescale", 4)
    first.tell("batches", 4)
    first.await_stop()
    second = drivers.start()
    second("finish")
    assert first.wake_in_vain()
    assert_goes_on(drivers, second)


@pytest.mark.matrix
@pytest.mark.parametrize("point", ["run.begin", "run.claimed", "run.begun"])
def test_a_driver_that_wakes_in_its_start_leaves_the_table_of_its_successor(drivers, point):
    driver = drivers.start()
    driver("batches", 2)
    driver.kill()
    first = drivers.start(faults=[f"{point}.stop"])
    first.tell("batches", 1)
    first.await_stop()
    second = drivers.start()
    second("rescale", 4)
    second("finish")
    assert first.wake_in_vain()
    assert_goes_on(drivers, second)


def assert_goes_on(drivers, last):
    """The driver that is left goes on, and another one after it, from the checkpoint."""
    last("batches", 1)
    last.kill()
    third = drivers.start()
    third("batches", 2)
    report = assert_exact(third("report"))
    assert report["partitions"] == 4
