"""A driver of a query in real-time mode that was replaced while it was stopped, and wakes up again."""

import pytest

from cluster.frozen import Drivers, drivers_of_a_query
from cluster.realtime_runs import SCRIPT, assert_exact


class RealTimeDrivers(Drivers):
    # Tasks of all partitions run at the same time, and are tried once.
    master = "local[8,1]"
    script = SCRIPT


@pytest.fixture
def drivers(tmp_path, jvm_jar):
    with drivers_of_a_query(tmp_path / "run", jvm_jar, {}, RealTimeDrivers) as started:
        yield started


#: The table of epoch 4 has 4 partitions. In this mode, an epoch is logged when its batch ends.
@pytest.mark.long
@pytest.mark.needs_spark("4.3", reason="real-time mode runs stateful queries")
@pytest.mark.parametrize("instant", ["after:/offsets/4", "before:/commits/4"])
def test_a_driver_that_is_replaced_as_a_batch_ends_changes_nothing(drivers, instant):
    first = drivers.start(instant)
    first("batches", 2)
    first("rescale", 4)
    first.tell("batches", 4)
    first.await_stop()
    second = drivers.start()
    second("finish")
    assert first.wake_in_vain()
    second("batches", 1)
    second.kill()
    third = drivers.start()
    third("batches", 2)
    report = assert_exact(third("report"))
    assert report["partitions"] == 4
