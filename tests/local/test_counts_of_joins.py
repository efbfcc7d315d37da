"""Joins whose values have arrived while their counts, in other stores, are still on their way."""

import pytest

from harness import Fault, until
from local.migrations import assert_never_migrated, feed_until, finish, submit_shift
from local.queries import QUERIES

pytestmark = pytest.mark.usefixtures("nothing_left")

#: Only one side's counts are held, so that other stores' copies have free threads.
COUNTS = ("fetch.chunk.left-keyToNumValues", "block")
TWO = {"spark.sql.shuffle.partitions": "2"}


@pytest.mark.long
def test_a_migration_is_not_over_while_counts_are_on_their_way(history, tmp_path):
    h = history("join", **TWO)
    with Fault(*COUNTS):
        migration = h.switched({})
        h.epoch = feed_until(h.run, h.epoch, lambda: h.came("Shipped") == 128)
        h.feed({}, {})
        assert h.metrics(h.epoch - 1)["binshiftBinsAwaited"] >= 64
        assert not migration.status.is_over
    h.finish(migration)
    assert h.came("FromCheckpoint") == 0
    h.assert_never_migrated(tmp_path)


def test_a_prepared_step_waits_for_copies_of_counts(stream, tmp_path):
    query = QUERIES["join-unbounded"]
    run = stream(query.build, mode=query.mode, conf=TWO).start()
    run.run(0, 1)
    with Fault(*COUNTS), Fault("stage.done", "count") as others:
        migration = submit_shift(run)
        run.run(2, 3)
        # The values of both sides of two partitions, and the other side's counts.
        assert until(lambda: others.count == 6)
        run.run(4, 5, 6)
        assert run.progress(6).stateOperators[0].customMetrics["binshiftBinsAwaited"] == 64
        assert migration.status.next_epoch is None
    epoch = finish(run, migration, 7)
    report = migration.wait(0)
    assert report.bins_from_checkpoint == report.bins_shipped == 0
    assert_never_migrated(run, query, epoch, tmp_path)
