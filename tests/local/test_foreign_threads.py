"""Jobs of `foreachBatch` from threads without the epoch's local properties."""

from concurrent.futures import ThreadPoolExecutor

import pytest

from binshift.session import PROVIDER
from harness import STOCK, assert_same_results, entries
from local.migrations import feed_until, finish, submit_shift
from local.queries import QUERIES, count_by_key, counted, counted_at_once
from local.settings import MIN_DELTAS, NO_CHANGELOG, ONE_EPOCH
from local.test_sources import lose_changelog


def in_pool(run, pool):
    """The run, whose sink has another thread write its rows."""
    keep = run._keep
    run._keep = lambda batch, epoch: pool.submit(keep, batch, epoch).result()
    return run


def test_a_query_whose_sink_works_in_a_pool_of_its_own_begins_migrates_and_begins_again(stream):
    """Without changelogs each commit uploads a snapshot, which has to be recognised as this run's."""
    query = QUERIES["count"]
    with ThreadPoolExecutor(1) as pool:
        run, oracle = (
            in_pool(
                stream(query.build, name, mode=query.mode, provider=provider, conf=ONE_EPOCH | NO_CHANGELOG),
                pool,
            )
            for name, provider in (("run", PROVIDER), ("oracle", STOCK))
        )
        for r in (run, oracle):
            r.start()
            r.run(0, 1)
        run.attach().rescale(3, prepare=False)
        for r in (run, oracle):
            r.run(2, 3, 4, 5, 6, 7)
            r.stop()
            # The next run begins first with a repeated epoch, and then with a new one.
            r.forget(7)
            r.start()
            r.run(8)
            r.stop()
            r.start()
            r.run(9)
        assert run.attach().routing().partitions == 3
        assert_same_results(run, oracle)


@pytest.mark.long
def test_a_step_whose_source_has_lost_a_file_waits_for_a_snapshot_that_nobody_can_ask_for(stream):
    with ThreadPoolExecutor(1) as pool:
        run = in_pool(stream(count_by_key, conf=ONE_EPOCH | {MIN_DELTAS: "16"}), pool).start()
        run.run(0, 1, 2)
        lose_changelog(run, 2)
        migration = submit_shift(run, prepare=False)
        after = feed_until(run, 3, lambda: "in vain" in str(migration.status))
        assert "the one that is due after 16 epochs (spark.sql" in str(migration.status)
        assert list(entries(run.checkpoint)) == [0]
        after = finish(run, migration, after)
        assert migration.status.steps_done == 1
        run.run(after)
        assert counted(run) == counted_at_once(run)
