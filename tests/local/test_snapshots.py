"""The stores of an executor make their snapshots by turns."""

from __future__ import annotations

import pytest

from harness import until
from local.migrations import shift
from local.queries import QUERIES
from local.settings import MIN_DELTAS


@pytest.fixture
def opened(spark, tmp_path):
    """Opens stores that make a snapshot every so many versions."""
    stores = []

    def open_store(every: int):
        turns = spark._jvm.org.apache.spark.sql.execution.streaming.state.binshift.TestTurn
        stores.append(turns.open(str(tmp_path / str(len(stores))), every))
        return stores[-1]

    yield open_store
    for store in stores:
        store.close()


def snapshots(store, commits: int, is_whole: bool = True) -> list[int]:
    """Which of the next commits make a snapshot."""
    return [i for i in range(commits) if store.commit(is_whole, False)]


def test_each_store_has_a_turn_of_its_own(opened):
    made = [snapshots(opened(3), 12) for _ in range(3)]
    assert sorted(made) == [[0, 3, 6, 9], [1, 4, 7, 10], [2, 5, 8, 11]]


def test_the_turn_of_a_store_that_is_closed_is_taken_by_the_next(opened):
    first, second = opened(5), opened(5)
    turn = snapshots(first, 5)
    snapshots(second, 5)
    first.close()
    assert snapshots(opened(5), 5) == turn


def test_a_store_that_misses_its_turns_makes_a_snapshot_as_soon_as_it_can(opened):
    store = opened(4)
    [turn] = snapshots(store, 4)
    assert snapshots(store, turn + 5, is_whole=False) == []
    assert snapshots(store, 8) == [0, 3, 7]


def test_a_store_that_never_makes_a_snapshot_of_itself_has_a_turn_too(opened):
    assert snapshots(opened(2**31 - 1), 5) == []


def test_a_store_that_adopted_bins_has_a_snapshot_within_ten_versions(opened):
    store = opened(1000)
    assert snapshots(store, 5) == []
    assert [store.commit(True, adopted) for adopted in [True] + 9 * [False]].count(True) == 1
    assert snapshots(store, 30) == []


def test_partitions_that_adopted_bins_have_snapshots_soon_but_not_all_at_the_switch(stream):
    query = QUERIES["count"]
    run = stream(query.build, mode=query.mode, conf={MIN_DELTAS: "998"}).start()
    run.run(0, 1)
    after, report = shift(run, 2)
    run.run(*range(after, after + 10))
    switch = report.last_epoch
    partitions = [run.checkpoint / "state/0" / str(p) for p in range(2)]

    def versions(partition):
        return {int(file.stem) for file in partition.glob("*.zip") if int(file.stem) > switch}

    assert until(lambda: all(versions(p) for p in partitions))
    assert len({max(versions(p)) for p in partitions}) > 1
