"""The order in which an operator takes an epoch's rows: by bin, and arriving bins come last."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.sql import functions as F

from binshift import OnDemand
from harness import StreamRun
from local.migrations import finish
from local.queries import QUERIES

BINS = 64


class InOrder(StreamRun):
    """Keeps the bin of each output row instead of the output, in the order in which the tasks return them."""

    def _keep(self, batch, epoch):
        bin = F.expr(f"pmod(hash({batch.columns[0]}), {BINS})")
        rows = batch.select(F.spark_partition_id(), bin).collect()
        self.outputs[epoch] = [tuple(r) for r in rows]


@pytest.mark.parametrize("name", ["count", "dedup", "join-unbounded"])
def test_rows_come_in_the_order_of_their_bins(stream, name):
    query = QUERIES[name]
    run = stream(query.build, kind=InOrder, mode=query.mode).start()
    run.run(0)
    assert len(set(run.outputs[0])) > 5
    assert run.outputs[0] == sorted(run.outputs[0])


def test_rows_of_bins_that_arrive_come_last_so_that_the_bins_can_travel_meanwhile(stream):
    query = QUERIES["count"]
    run = stream(query.build, kind=InOrder, mode=query.mode).start()
    run.run(0, 1)
    controller = run.attach()
    before = controller.routing().assignment
    # The lower half of the first partition's bins leaves.
    owners = [1 if bin < BINS // 2 else owner for bin, owner in enumerate(before)]
    moved = {bin for bin, owner in enumerate(before) if owner != owners[bin]}
    migration = controller.submit(controller.plan(owners, strategy=OnDemand()))
    run.run(2, 3, 4)
    (switch,) = controller.history().column("epoch").to_pylist()
    rows = run.outputs[switch]
    assert {bin for _, bin in rows} & moved
    assert rows == sorted(rows, key=lambda r: (r[0], r[1] in moved, r[1])) != sorted(rows)
    # Epochs run until all of them have come.
    epoch = finish(run, migration, 5)
    run.run(epoch, epoch + 1)
    assert run.outputs[epoch + 1] == sorted(run.outputs[epoch + 1])


@given(
    rows=st.lists(st.tuples(st.integers(0, 9), st.integers(0, 300)), max_size=600),
    run_bytes=st.sampled_from([1, 100, 4_000, 1 << 20]),
)
@settings(max_examples=40, deadline=None)
def test_rows_are_in_order_within_runs_of_a_size_and_nothing_is_lost(spark, rows, run_bytes):
    places, lengths = ([r[i] for r in rows] for i in (0, 1))
    expected = [i for run in runs(lengths, run_bytes) for i in sorted(run, key=places.__getitem__)]
    ordered = spark._jvm.org.apache.spark.sql.execution.streaming.state.binshift.TestRuns.ordered
    came = ordered(" ".join(f"{place}:{length}" for place, length in rows), run_bytes)
    assert came == " ".join(f"{i}:{lengths[i]}" for i in expected)


def runs(lengths, run_bytes):
    """The rows of each run, by number; Spark's rows have a word of bits, one for each field, and the text."""
    made, used = [], run_bytes
    for i, length in enumerate(lengths):
        size = 8 + 3 * 8 + (length + 7) // 8 * 8
        if used + size > run_bytes:
            made.append([])
            used = 0
        made[-1].append(i)
        used += size
    return made
