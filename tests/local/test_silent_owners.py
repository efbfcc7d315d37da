"""For old owners that send nothing, as on a lost machine, tasks wait once in total, and not once for each."""

from contextlib import nullcontext

import pytest
from pyspark import InheritableThread

from binshift import AllAtOnce, OnDemand
from harness import Fault, until
from local.migrations import SHIP, assert_never_migrated, finish
from local.queries import QUERIES

pytestmark = pytest.mark.usefixtures("nothing_left")

#: Far longer than an epoch that reads the checkpoints of two small partitions.
SECONDS = 20


@pytest.mark.long
@pytest.mark.parametrize(
    ("name", "strategy", "rows"),
    [
        pytest.param("count", AllAtOnce(), None, id="at-once"),
        pytest.param("count", OnDemand(), ("rows.request", "throw", True), id="by-bin"),
        pytest.param("count", OnDemand(), ("rows.answer", "block"), id="by-row"),
        # This query scans its state, and so needs all bins.
        pytest.param("tumbling-append", OnDemand(), None, id="all-bins"),
    ],
)
def test_several_old_owners_that_send_nothing_are_waited_for_together(stream, tmp_path, name, strategy, rows):
    query = QUERIES[name]
    conf = {"spark.sql.shuffle.partitions": "4", SHIP + "timeout": f"{SECONDS}s"}
    run = stream(query.build, mode=query.mode, conf=conf).start()
    run.run(0, 1)
    migration = run.attach().rescale(1, strategy=strategy, prepare=False)
    with (
        Fault(*rows) if rows else nullcontext(),
        Fault("fetch.chunk", "block"),
        Fault("checkpoint.changes", "count") as reads,
    ):
        epochs = InheritableThread(target=run.run, args=[2, 3])
        epochs.start()
        # If it waits for rows, it waits for whole bins afterwards.
        assert until(lambda: reads.count > 0, 2.5 * SECONDS)
        # The first of three is given up; the epoch can't end before all are.
        epochs.join(SECONDS)
        is_over = not epochs.is_alive()
        epochs.join()
    assert is_over
    epoch = finish(run, migration, 4)
    assert migration.wait(0).bins_from_checkpoint == len(migration.plan.moves)
    assert_never_migrated(run, query, epoch, tmp_path)
