"""A driver that was replaced and wakes up again leaves alone what its successor made.

Each test ends with a third driver, which reads all of the state from the checkpoint.
"""

import json
import shutil

import pytest

from cluster.frozen import drivers_of_a_query
from harness import STOCK, entries, until

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
    drivers.wind_back(2, 3)
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


#: Watermarks move with the rows alone, so that each file is an epoch.
OF_A_FILE = {"spark.sql.streaming.noDataMicroBatches.enabled": "false"}


@pytest.mark.long
@pytest.mark.parametrize(
    ("checkpoint_format", "query"), cases(("join-full",), ("tws-jvm",), always=[(1, "join-full")])
)
def test_queries_with_several_stores_and_timers_do_what_they_do_with_sparks_provider(
    tmp_path, jvm_jar, checkpoint_format, query
):
    conf = FORMATS[checkpoint_format] | OF_A_FILE | {"spark.binshift.tests.query": query}
    with drivers_of_a_query(tmp_path / "run", jvm_jar, conf) as drivers:
        first = drivers.start("after:/offsets/3")
        first("epochs", 2)
        first("rescale", 4, 64, False)
        first.tell("epochs", 8)
        first.await_stop()
        second = drivers.start()
        second("finish")
        assert first.wake_in_vain()
        second("lose_stores")
        second("epochs", 2)
        second.kill()
        drivers.start()("epochs", 3)
    shutil.copytree(tmp_path / "run/input", tmp_path / "stock/run/input")
    stock = conf | {"spark.binshift.tests.provider": STOCK}
    with drivers_of_a_query(tmp_path / "stock/run", jvm_jar, stock) as drivers:
        drivers.start()("epochs", 0)
    mine, expected = (
        {f.name: f.read_text() for f in (root / "outputs").glob("*.json")}
        for root in (tmp_path / "run", tmp_path / "stock/run")
    )
    assert mine == expected
    assert any(json.loads(text) for text in mine.values())
