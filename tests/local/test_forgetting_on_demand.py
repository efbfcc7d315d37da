"""Joins, and state that is forgotten, while rows are fetched on demand; compared with unmigrated runs."""

from contextlib import ExitStack
from datetime import datetime, timedelta
from itertools import count

import pytest

from harness import Fault, rows, until
from local.migrations import MAX_EPOCHS
from local.rows_on_demand import BLOCKED, FORGETTING_BY_THE_ROW, INPUTS, ONE_WATERMARK
from local.settings import CHECKSUMS, IDS, JOIN_3, NEEDS_CHECKSUMS, ONE_EPOCH

pytestmark = pytest.mark.usefixtures("nothing_left")


@pytest.mark.long
@pytest.mark.parametrize(
    ("name", "conf"),
    [
        ("join", {}),
        ("join", JOIN_3),
        ("join-inner", ONE_EPOCH),
        ("join-inner", ONE_EPOCH | JOIN_3 | IDS),
        pytest.param("join-semi", ONE_EPOCH | CHECKSUMS, marks=NEEDS_CHECKSUMS),
    ],
)
def test_a_join_has_the_numbers_and_values_of_the_keys_that_are_touched_while_no_bin_comes(
    history, tmp_path, name, conf
):
    h = history(name, **conf)
    with Fault(*BLOCKED):
        migration = h.switched(*INPUTS.values())
        assert all(h.metrics(epoch)["binshiftBinsShipped"] == 0 for epoch in INPUTS)
        assert all(h.metrics(epoch)["binshiftBinsAwaited"] >= 64 for epoch in INPUTS)
        keys = {row["k"] for row in rows(3, keys=120)}
        assert h.metrics(3)["binshiftRowsFetched"] >= len(keys)
    h.finish(migration)
    h.run.stop()
    h.run.start()
    h.feed({})
    h.assert_never_migrated(tmp_path, **conf)


@pytest.mark.long
@pytest.mark.parametrize(
    "name", ["join-left", "join-full", "valid-until", "same-seconds", "within-a-day", "windows-in-order"]
)
def test_a_join_waits_for_its_bins_if_later_rows_or_its_outputs_need_what_it_removes(history, tmp_path, name):
    h = history(name, **ONE_EPOCH)
    migration = h.switched({})
    assert [h.metrics(epoch)["binshiftRowsFetched"] for epoch in (2, 3)] == [0, 0]
    h.finish(migration)
    h.assert_never_migrated(tmp_path, **ONE_EPOCH)


@pytest.mark.long
@pytest.mark.parametrize("name", ["near-times", "same-windows"])
def test_a_join_forgets_nothing_whose_values_have_not_come_though_it_counts_them(history, tmp_path, name):
    h = history(name, **ONE_EPOCH)
    h.take(*map(on_the_edges, range(6)))
    with ExitStack() as held:
        for side in ("left", "right"):
            held.enter_context(Fault(f"fetch.chunk.{side}-keyWithIndexToValue", "block"))
        counts = held.enter_context(Fault("fetch.chunk.left-keyToNumValues", "count"))
        migration = h.submitted("shuffled")
        h.take(*map(on_the_edges, range(6, 10)))
        assert until(lambda: counts.count > 0)
        # Counts are adopted, and the rows that they count expire.
        h.take(*map(on_the_edges, range(10, 16)))
        assert all(h.metrics(epoch)["binshiftBinsShipped"] == 0 for epoch in range(6, h.epoch))
        assert h.metrics(h.epoch - 1)["binshiftBinsAwaited"] > 0
        # In any epoch, as another attempt of the task may have other rows and bins.
        fetching = [e for e in range(h.epoch) if h.metrics(e)["binshiftRowsFetched"]]
        last = [h.run.progress(e).stateOperators[0] for e in range(fetching[0], h.epoch)]
        assert not any(op.numRowsRemoved for op in last)
    minutes = count(16)
    h.take_until_over(migration, map(on_the_edges, minutes))
    h.run.stop()
    h.run.start()
    h.take(on_the_edges(next(minutes)))
    h.assert_never_migrated(tmp_path, **ONE_EPOCH)


def on_the_edges(minute):
    """Rows of a minute, and late ones, of which not each key has the same.

    With a watermark two minutes behind, an epoch forgets what is three minutes old, and drops what is four.
    """
    edges = [(0, 0), (3, 1), (3, 0), (3, -1), (4, 1), (4, 0), (4, -1), (5, 0)]
    start = datetime(2026, 1, 1, 1) + timedelta(minutes=minute)
    return [
        {"k": f"key{k}", "v": k, "t": str(start - timedelta(minutes=minutes) + timedelta(seconds=seconds))}
        for k in range(12 + minute % 3)
        for minutes, seconds in edges
        if seconds == minutes == 0 or (k + minute) % 2
    ]


def dropped_rows(run, epochs):
    """The number of late rows that each operator has dropped, by epoch."""
    return [[op.numRowsDroppedByWatermark for op in run.progress(e).stateOperators] for e in epochs]


@pytest.mark.long
@pytest.mark.parametrize(
    ("name", "target", "conf"),
    [
        ("windows", 3, ONE_EPOCH),
        ("windows", "shuffled", ONE_EPOCH),
        ("windows", "shuffled", ONE_EPOCH | ONE_WATERMARK),
        ("dedup-times", 3, ONE_EPOCH),
        ("dedup-times", "shuffled", ONE_EPOCH | ONE_WATERMARK),
        ("dedup-times", "shuffled", ONE_EPOCH | FORGETTING_BY_THE_ROW),
        # An epoch without rows forgets state, too.
        ("dedup-times", "shuffled", {}),
        ("count-distinct-times", "shuffled", ONE_EPOCH),
        ("distinct-times-twice", "shuffled", ONE_EPOCH),
        ("near-times", 3, ONE_EPOCH),
        ("near-times", "shuffled", ONE_EPOCH | JOIN_3),
        ("near-times", "shuffled", ONE_EPOCH | ONE_WATERMARK),
        ("near-times-semi", "shuffled", {}),
        ("same-windows", "shuffled", ONE_EPOCH),
        ("same-windows", 3, JOIN_3),
    ],
)
def test_what_is_forgotten_late_is_met_by_no_row(history, tmp_path, name, target, conf):
    h = history(name, **conf)
    h.take(*map(on_the_edges, range(6)))
    minutes = count(6)
    with Fault(*BLOCKED):
        begun = h.epoch
        migration = h.submitted(target)
        while not any(h.metrics(epoch)["binshiftRowsFetched"] for epoch in range(begun, h.epoch)):
            assert h.epoch < MAX_EPOCHS
            h.take(on_the_edges(next(minutes)))
        # Until everything that the old owner had is older than the watermark, and longer.
        for _ in range(6):
            h.take(on_the_edges(next(minutes)))
        blocked = range(begun, h.epoch)
        assert all(h.metrics(epoch)["binshiftBinsShipped"] == 0 for epoch in blocked)
        # Known rows are forgotten at once. A join that has two stores a side leaves out all bins that move.
        last = [op for epoch in blocked[-2:] for op in h.run.progress(epoch).stateOperators]
        has_two_stores = name.startswith(("near", "same")) and not conf.items() >= JOIN_3.items()
        assert any(op.numRowsRemoved for op in last) == (target == 3 or not has_two_stores)
    h.take_until_over(migration, map(on_the_edges, minutes))
    epochs = range(h.epoch)
    dropped = dropped_rows(h.run, epochs)
    h.run.stop()
    h.run.start()
    h.take(on_the_edges(next(minutes)))
    assert dropped == dropped_rows(h.assert_never_migrated(tmp_path, **conf), epochs)
    assert any(map(any, dropped))


@pytest.mark.long
@pytest.mark.parametrize("name", ["windows", "dedup-times", "near-times"])
def test_what_is_forgotten_while_no_bin_comes_stays_so_when_the_driver_dies(history, tmp_path, name):
    h = history(name, **ONE_EPOCH)
    h.take(*map(on_the_edges, range(6)))
    with Fault(*BLOCKED):
        h.submitted("shuffled")
        h.take(*map(on_the_edges, range(6, 12)))
        last = h.run.progress(h.epoch - 1).stateOperators[0]
        assert (last.numRowsRemoved > 0) == (name != "near-times")
        assert last.customMetrics["binshiftBinsShipped"] == 0
        assert last.customMetrics["binshiftBinsAwaited"] > 0
        h.run.stop()
    # As if the driver had died after the last epoch's tasks.
    h.run.forget(h.epoch - 1)
    h.run.start()
    h.take(*map(on_the_edges, range(12, 15)))
    h.assert_never_migrated(tmp_path, **ONE_EPOCH)
