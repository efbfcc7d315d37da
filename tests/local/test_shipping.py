"""Bins are copied to their new owners before a step takes effect; the copies equal what was committed."""

import pytest
from harness import STOCK, StreamRun, assert_same_results
from local.queries import QUERIES

from binshift import AllAtOnce, Batched, Fluid, MigrationState

MAX_EPOCHS = 60


def shift(controller, by=1):
    """A table in which each partition's bins go to the next one."""
    table = controller.routing()
    return [(owner + by) % table.partitions for owner in table.assignment]


def finish(run, migration, epoch):
    """Feeds epochs until the migration is over; returns the epoch after the last."""
    while not migration.status.is_over:
        assert epoch < MAX_EPOCHS, str(migration.status)
        run.run(epoch)
        epoch += 1
    return epoch


def oracle_of(run, query, epochs, tmp_path, **conf):
    oracle = StreamRun(
        run.spark, tmp_path / "oracle", query.build, mode=query.mode, provider=STOCK, conf=conf
    ).start()
    oracle.run(*range(epochs))
    oracle.stop()
    return oracle


@pytest.mark.parametrize("strategy", [AllAtOnce(), Batched(8), Fluid()], ids=lambda s: type(s).__name__)
def test_a_prepared_rescale_moves_every_bin_by_its_copy(stream, tmp_path, strategy):
    query = QUERIES["tumbling-append"]
    run = stream(query.build, mode=query.mode).start()
    run.run(0, 1)
    migration = run.attach().rescale(4, strategy)
    epoch = finish(run, migration, 2)
    report = migration.wait(0)
    assert report.bins_prepared == report.bins_moved == len(migration.plan.moves)
    assert report.bins_shipped == report.bins_from_checkpoint == 0
    run.run(epoch)
    assert_same_results(run, oracle_of(run, query, epoch + 1, tmp_path), query.state)
