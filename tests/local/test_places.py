"""Whole partitions that are to move, where there is one executor: what becomes of the wish."""

import json

import pytest

from binshift import AllAtOnce, Controller, MigrationState
from binshift.migration import Migration
from binshift.planning.options import MigrationOptions
from harness import plans
from local.queries import count_by_key


@pytest.fixture
def run(stream):
    run = stream(count_by_key).start()
    run.run(0)
    return run


def submit(controller: Controller, **options) -> Migration:
    """As `rebalance` and `drain` do, but for what they refuse."""
    return controller._submit(controller.plan(controller.routing()), MigrationOptions(**options))


def edit(run, **changed):
    (file,) = plans(run.checkpoint)
    file.write_text(json.dumps(json.loads(file.read_text()) | changed))
    file.with_name(f".{file.name}.crc").unlink(missing_ok=True)


def test_an_executor_that_is_not_there_gets_nothing_and_no_job_waits_for_it(run):
    migration = submit(run.attach(), places={0: "7", 1: "7"})
    assert migration.status.misplaced == 2
    run.run(1)
    assert migration.wait(60).steps == 0
    run.run(2)
    assert run.attach()._placement().partitions == (("driver",), ("driver",))


def test_a_partition_that_is_there_waits_for_nothing(run):
    migration = submit(run.attach(), places={0: "driver", 1: "driver"})
    run.run(1, 2, 3)
    assert migration.wait(60).steps == 0


def test_a_drain_goes_on_until_the_executor_is_empty_or_it_is_cancelled(run):
    # Nobody else can take the partitions.
    drain = submit(run.attach(), vacate="driver")
    run.run(1, 2)
    status = drain.status
    assert (status.state, status.misplaced) == (MigrationState.WAITING, 2)
    assert "2 partitions do not run on their new executors yet" in str(status)
    assert run.attach()._placement().leaving == ("driver",)
    # The next run of the same application goes on with it.
    run.stop()
    run.start()
    run.run(3)
    migration = run.attach().migration()
    assert migration.id == drain.id
    assert not migration.status.is_over
    migration.cancel()
    assert migration.status.state is MigrationState.CANCELLED
    assert run.attach()._placement().leaving == ()
    assert run.attach().rescale(4, strategy=AllAtOnce(), prepare=False).plan.target.partitions == 4
    run.run(4, 5, 6)
    assert run.attach().routing().partitions == 4


def test_another_application_has_other_executors_and_forgets_the_places(run):
    drain = submit(run.attach(), vacate="driver")
    run.run(1)
    assert not drain.status.is_over
    run.stop()
    edit(run, application="another")
    run.start()
    run.run(2)
    assert run.attach().migration() is None
    assert run.attach()._placement().leaving == ()
    # Nobody is told that the executor is empty.
    told = json.loads(run.attach()._link.progress(drain.id))
    assert (told["state"], told["steps_done"]) == ("cancelled", 0)


def test_a_run_that_ends_by_itself_moves_no_partitions_and_says_so(run):
    drain = submit(run.attach(), vacate="driver")
    run.stop()
    run.feed([{"k": "key1", "v": 1, "t": "2026-01-01 00:00:00"}])
    run.start(availableNow=True)
    link = run.attach()._link
    run.query.awaitTermination()
    assert json.loads(link.progress(drain.id))["state"] == "cancelled"
