"""State of retired partitions is deleted, without disturbing partitions that come back."""

import pytest

from binshift import AllAtOnce
from harness import Fault, until
from local.migrations import finish
from local.queries import count_by_key
from local.settings import MIN_DELTAS

RETAIN = "spark.sql.streaming.minBatchesToRetain"
AT_ONCE = {"strategy": AllAtOnce(), "prepare": False}


def partitions_there(run):
    return {int(f.name) for f in (run.checkpoint / "state/0").iterdir() if f.name.isdigit()}


def with_partitions_that_are_gone(stream, most):
    """A query that had two partitions, then `most`, and has two again; and the next epoch."""
    run = stream(count_by_key, conf={RETAIN: "2", MIN_DELTAS: "2"}).start()
    run.run(0)
    epoch = finish(run, run.attach().rescale(most, **AT_ONCE), 1)
    return run, finish(run, run.attach().rescale(2, **AT_ONCE), epoch)


def first_delete_is_held(run, epoch, deletes):
    """Runs epochs until the first deletion has begun; returns the next epoch."""
    while deletes.count == 0:
        run.run(epoch)
        epoch += 1
        assert epoch < 100, "nothing is deleted"
    return epoch


def assert_counted(run):
    assert sorted((*key, *value) for key, value in run.state()) == sorted(
        (r.k, r.n, r.total) for r in count_by_key(run.batch()).collect()
    )


@pytest.mark.long
def test_a_run_that_has_ended_deletes_no_more_partitions(stream):
    run, epoch = with_partitions_that_are_gone(stream, 5)
    with Fault("retired.delete", "count") as deletes:
        with Fault("retired.delete", "block"):
            epoch = first_delete_is_held(run, epoch, deletes)
            run.stop()
        # The deletion that had begun goes on.
        assert until(lambda: partitions_there(run) == {0, 1, 2, 3})
        run.start()
        assert deletes.count == 1
        epoch = finish(run, run.attach().rescale(5, **AT_ONCE), epoch)
    assert run.attach().routing().partitions == 5
    assert partitions_there(run) == set(range(5))
    assert_counted(run)


@pytest.mark.long
def test_a_file_that_comes_to_a_partition_while_it_is_deleted_stays(stream):
    run, epoch = with_partitions_that_are_gone(stream, 4)
    with Fault("retired.delete", "count") as deletes, Fault("retired.delete", "block"):
        first_delete_is_held(run, epoch, deletes)
        later = run.checkpoint / "state/0/3/99.changelog"
        later.write_text("of another driver")
    assert until(lambda: list((run.checkpoint / "state/0/3").iterdir()) == [later])
    assert later.read_text() == "of another driver"


@pytest.mark.long
def test_partitions_come_back_while_the_state_of_others_is_deleted(stream):
    run, epoch = with_partitions_that_are_gone(stream, 5)
    with Fault("retired.delete", "count") as deletes, Fault("retired.delete", "block"):
        epoch = first_delete_is_held(run, epoch, deletes)
        # The last partition waits for its deletion, and those before it come back.
        epoch = finish(run, run.attach().rescale(4, **AT_ONCE), epoch)
        assert deletes.count == 1
        migration = run.attach().rescale(5, **AT_ONCE)
        for _ in range(4):
            run.run(epoch)
            epoch += 1
        assert run.attach().routing().partitions == 4
    epoch = finish(run, migration, epoch)
    assert run.attach().routing().partitions == 5
    assert partitions_there(run) == set(range(5))
    assert_counted(run)
