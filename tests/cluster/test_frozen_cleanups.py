"""A driver that is stopped while it deletes old files, and wakes up when another one has taken its place."""

import pytest

from cluster.frozen import CLEANED, Drivers, drivers_of_a_query
from cluster.test_frozen_drivers import FORMATS, assert_goes_on, cases

#: Old files go soon, and few entries are kept for the history.
CONF = CLEANED | {"spark.sql.streaming.stateStore.binshift.routing.minEntriesToRetain": "0"}
#: Of a file by its name, or a fault.
INSTANTS = [
    "retired.delete",
    # Some files of a partition have gone, and some are still there.
    "retired.file",
    "versions.deleted",
    "delete:/state/0/0/9*.changelog",
    "delete:/state/0/*/10*.zip",
    "delete:/binshift/ids/*",
    "delete:/binshift/routing/*",
    "delete:/binshift/runs/*",
]


@pytest.fixture
def drivers(tmp_path, jvm_jar, checkpoint_format):
    conf = CONF | FORMATS[checkpoint_format]
    with drivers_of_a_query(tmp_path / "run", jvm_jar, conf) as started:
        yield started


@pytest.mark.long
@pytest.mark.parametrize(
    ("checkpoint_format", "instant"), cases(*((i,) for i in INSTANTS), always=[(1, "retired.delete")])
)
def test_a_driver_that_wakes_as_it_deletes_old_files_leaves_those_of_its_successor(drivers, instant):
    assert_leaves_files_of_its_successor(drivers, instant)


def assert_leaves_files_of_its_successor(drivers: Drivers, instant: str) -> None:
    """The first driver stops while it deletes, and goes on when its successor has the partitions again."""
    first = drivers.start(instant if ":" in instant else "")
    first("epochs", 2)
    first("rescale", 4, 64, False)
    first("finish")
    first("rescale", 2, 64, False)
    if ":" not in instant:
        drivers.lay(f"{instant}.stop")
    for _ in range(3):
        first.tell("finish")
        first.tell("swap")
    if "/runs/" in instant:
        first.tell("runs", 30)
    first.tell("epochs", 30)
    first.await_stop()
    second = drivers.start()
    second("finish")
    # The partitions that have gone come again.
    second("rescale", 4, 64, False)
    second("finish")
    assert first.wake_in_vain()
    assert_goes_on(drivers, second, partitions=4)
