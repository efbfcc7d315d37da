"""A driver that was replaced and wakes up again leaves alone what its successor made.

Each test ends with a third driver, which reads all of the state from the checkpoint.
"""

import os
from pathlib import Path

import pytest

from cluster.frozen import drivers_of_a_query
from harness import entries, until
from traces.by_hand import wound_back

FORMATS = {1: {}, 2: {"spark.sql.streaming.stateStore.checkpointFormatVersion": "2"}}


def cases(*some, always=()):
    """Parameters of which few run by default, in both formats."""
    return [
        pytest.param(f, *case, marks=[] if (f, *case) in always else [pytest.mark.matrix])
        for f in FORMATS
        for case in some
    ]


@pytest.fixture
def drivers(tmp_path, jvm_jar, checkpoint_format):
    with drivers_of_a_query(tmp_path / "run", jvm_jar, FORMATS[checkpoint_format]) as started:
        yield started


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
@pytest.mark.parametrize(("checkpoint_format", "begins"), cases((0,), (2,), always=[(2, 2)]))
def test_a_run_that_wakes_in_its_first_epoch_deletes_nothing_of_its_successor(drivers, begins):
    if begins > 0:
        driver = drivers.start()
        driver("epochs", begins)
        driver.kill()
    first = drivers.start(f"after:/offsets/{begins}", faults=["run.begun.kill"])
    first.tell("epochs", 1)
    first.await_stop()
    second = drivers.start(f"before:/commits/{begins}")
    second.await_stop()
    first.wake_in_vain()
    second.wake()
    assert_goes_on(drivers, second)


@pytest.mark.long
@pytest.mark.parametrize(("checkpoint_format", "partitions"), cases((2,), (4,), always=[(1, 2)]))
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
@pytest.mark.parametrize("checkpoint_format", cases((), always=[(2,)]))
def test_a_table_that_is_written_late_is_not_obeyed_while_the_successor_waits_for_copies(drivers):
    first = drivers.start("after:/offsets/5", faults=["export.chunk.block"])
    first("epochs", 2)
    first("swap", True)
    first("epochs", 2)
    copied = drivers.lay("stage.done.count")
    drivers.clear("export.chunk.block")
    assert until(lambda: copied.stat().st_size == 2)
    first("epochs", 1)
    first.tell("epochs", 1)
    first.await_stop()
    second = drivers.start(faults=["export.chunk.block"])
    second("epochs", 1)
    assert first.wake_in_vain()
    # The step of the first driver, which had all copies.
    assert list(entries(drivers.checkpoint)) == [0, 6]
    assert_goes_on(drivers, second)


@pytest.mark.long
@pytest.mark.parametrize("checkpoint_format", cases((), always=[(1,)]))
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


@pytest.mark.long
@pytest.mark.parametrize(
    ("checkpoint_format", "point"),
    [
        (1, "run.clean"),
        *(pytest.param(f, p, marks=pytest.mark.matrix) for f in FORMATS for p in ("run.begin", "run.claimed")),
    ],
)
def test_a_start_that_was_wound_back_and_wakes_late_deletes_nothing_of_its_successor(drivers, point):
    driver = drivers.start()
    driver("epochs", 4)
    driver.kill()
    # The source forgets as well, so that each epoch has the input that it had.
    for log in ("offsets", "commits", "sources/0"):
        for epoch in (2, 3):
            (drivers.checkpoint / log / str(epoch)).unlink()
            (drivers.checkpoint / log / f".{epoch}.crc").unlink(missing_ok=True)
    wound_back(Path(os.environ["BINSHIFT_TESTS_TRACE"]), drivers.checkpoint)
    first = drivers.start(faults=[f"{point}.stop"])
    first.await_stop()
    second = drivers.start()
    second("epochs", 3)
    assert first.wake_in_vain()
    assert_goes_on(drivers, second)


@pytest.mark.long
@pytest.mark.parametrize("checkpoint_format", cases((), always=[(2,)]))
def test_a_driver_that_wakes_as_it_deletes_its_plan_leaves_the_one_that_its_successor_has_accepted(drivers):
    first = drivers.start("delete:/binshift/plan*.json")
    first("epochs", 2)
    first("swap")
    first.tell("epochs", 4)
    first.await_stop()
    second = drivers.start()
    second("epochs", 1)
    second("rescale", 4, 64, False)
    assert first.wake_in_vain()
    second.kill()
    third = drivers.start()
    third("finish")
    assert_goes_on(drivers, third, partitions=4)


#: The second driver goes on with the plan, and so does the first one in its place.
INSTANTS = [
    "after:/binshift/plans/*.json",
    "after:/binshift/routing/3-*",
    "before:/offsets/3",
    "after:/offsets/3",
    "after:/state/0/3/4*.zip",
    "before:/state/0/0/4*.changelog",
    "before:/commits/3",
    "after:/commits/3",
    "before:/state/0/0/6*.zip",
    "delete:/binshift/plans/*.json",
]


@pytest.mark.long
@pytest.mark.matrix
@pytest.mark.parametrize(("checkpoint_format", "instant"), cases(*((i,) for i in INSTANTS)))
def test_a_driver_that_is_replaced_at_any_instant_of_a_migration_changes_nothing(drivers, instant):
    first = drivers.start(instant)
    first("epochs", 2)
    first.tell("rescale", 4, 64, False)
    first.tell("epochs", 8)
    first.await_stop()
    second = drivers.start()
    second("finish")
    assert first.wake_in_vain()
    assert_goes_on(drivers, second, partitions=4)
