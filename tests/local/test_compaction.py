"""Compactions are spread over time, within limits."""

from __future__ import annotations

import pytest

from harness import rows, until
from local.queries import QUERIES
from local.settings import SNAPSHOTS

PACE = "spark.sql.streaming.stateStore.binshift.compaction.bytesPerSecond"
FREELY = 1 << 26


@pytest.fixture
def pace(spark, stream):
    """The pace of an executor; a query has set it to 5 MB/s."""
    query = QUERIES["count"]
    stream(query.build, "first", mode=query.mode, conf={PACE: "5m"}).start().run(0)
    return spark._jvm.org.apache.spark.sql.execution.streaming.state.binshift.TestPace


def test_the_compactions_of_a_query_keep_to_the_pace(pace, stream):
    query = QUERIES["count"]
    run = stream(query.build, mode=query.mode, conf=SNAPSHOTS | {PACE: "4m"}).start()
    before = pace.bytesRead()
    run.run(*range(12))  # a compaction begins with the fourth snapshot
    assert until(lambda: pace.bytesRead() > before)
    assert pace.bytesPerSecond() == 4 << 20


def test_a_store_that_is_behind_with_its_compactions_ends_all_holding_back(pace, tmp_path):
    store = pace.open(str(tmp_path), 8)
    try:
        assert pace.bytesPerSecond() == 5 << 20
        store.commit()
        assert pace.bytesPerSecond() > FREELY
        store.merge()
        store.commit()
        assert pace.bytesPerSecond() == 5 << 20
    finally:
        store.close()


def test_a_store_that_is_closed_is_not_behind_any_more(pace, tmp_path):
    store = pace.open(str(tmp_path), 8)
    store.commit()
    assert pace.bytesPerSecond() > FREELY
    store.close()
    assert pace.bytesPerSecond() == 5 << 20


def test_files_of_bins_that_came_on_demand_do_not_end_it(pace, tmp_path):
    store = pace.open(str(tmp_path), 4)
    try:
        store.takeIn(60)
        store.commit()
        assert pace.bytesPerSecond() == 5 << 20
        # Files that were taken in are not counted until they are merged.
        store.merge()
        store.commit()
        store.write(8)
        store.commit()
        assert pace.bytesPerSecond() > FREELY
        store.merge()
        store.commit()
        store.takeIn(8)
        store.forget()
        store.commit()
        assert pace.bytesPerSecond() > FREELY
    finally:
        store.close()


def test_a_pace_that_is_none_is_refused(stream):
    query = QUERIES["count"]
    run = stream(query.build, mode=query.mode, conf={PACE: "0"}).start()
    run.feed(rows(0))
    with pytest.raises(Exception, match=r"compaction\.bytesPerSecond is '0'"):
        run.query.processAllAvailable()
