"""Stores that are closed at each commit (`unloadOnCommit`): their files, and the places of partitions."""

from __future__ import annotations

import pytest

from binshift import AllAtOnce, OnDemand, PlanError
from binshift.session import PROVIDER
from chaos.life import committed
from harness import STOCK, end_maintenance, rows, until
from local.migrations import assert_never_migrated
from local.queries import QUERIES
from local.test_places import submit

COUNT = QUERIES["count"]
UNLOAD = "spark.sql.streaming.stateStore.unloadOnCommit"
UNLOADED = {UNLOAD: "true"}


@pytest.fixture
def run(stream):
    run = stream(COUNT.build, mode=COUNT.mode, conf=UNLOADED).start()
    run.run(0, 1)
    return run


def test_a_rescale_takes_effect_as_if_it_were_not_prepared(run, tmp_path, caplog):
    log = run.spark._jvm.org.apache.spark.sql.binshift.TestLog
    log.listen()
    try:
        migration = run.attach().rescale(4, strategy=AllAtOnce())
        (heard,) = [line for line in log.heard() if "copied ahead" in line]
    finally:
        log.end()
    why = f"no bins are copied ahead, because {UNLOAD} is true"
    assert heard.startswith(f"WARN query {run.query.id}: migration {migration.id}: {why}")
    # The client that asked hears it as well.
    (told,) = [r.getMessage() for r in caplog.records if "copied ahead" in r.getMessage()]
    assert told.startswith(f"migration {migration.id}: {why}; each step takes effect at once")
    run.run(2, 3)
    assert run.attach().routing().partitions == 4
    assert run.attach().migration() is None
    back = run.attach().rescale(2, strategy=OnDemand())
    run.run(4, 5)
    assert back.wait(60).steps == 1
    metrics = [run.progress(epoch).stateOperators[0].customMetrics for epoch in range(6)]
    adopted, read = (sum(m[f"binshiftBins{name}"] for m in metrics) for name in ("Adopted", "FromCheckpoint"))
    assert read == adopted > 0
    assert_never_migrated(run, COUNT, 6, tmp_path, **UNLOADED)


def test_a_partition_that_comes_back_waits_for_no_executor(run):
    """A local master looks for waiting tasks only when another task ends, so the epoch would never end."""
    run.attach().rescale(1, strategy=AllAtOnce())
    run.run(2, 3, 4)
    run.attach().rescale(4, strategy=AllAtOnce())
    for epoch in range(5, 8):
        run.feed(rows(epoch))
    assert until(lambda: committed(run.root) == 7)
    assert run.attach().routing().partitions == 4


def test_a_drain_is_refused_and_a_rebalance_moves_bins_only(run):
    with pytest.raises(PlanError, match="unloadOnCommit is true") as refused:
        submit(run.attach(), vacate="driver")
    assert (refused.value.condition, refused.value.parameters) == ("STORES_UNLOADED", {"executor": "driver"})
    assert run.attach().migration() is None
    assert submit(run.attach(), places={0: "driver", 1: "driver"}).status.is_over


def test_rows_are_counted_in_the_first_epoch_of_a_run_and_later(stream):
    """A replay of so many changes is counted later, if there is a later."""
    totals = {}
    for provider in (PROVIDER, STOCK):
        run = stream(COUNT.build, provider, mode=COUNT.mode, provider=provider, conf=UNLOADED).start()
        for epoch in range(4):
            if epoch == 2:
                run.stop()
                end_maintenance(run.spark)
                run.start()
            run.feed(rows(epoch, 6000, keys=9000))
            run.query.processAllAvailable()
            totals[provider, epoch] = run.progress(epoch).stateOperators[0].numRowsTotal
    assert all(totals[PROVIDER, epoch] == totals[STOCK, epoch] for epoch in range(4)), totals
