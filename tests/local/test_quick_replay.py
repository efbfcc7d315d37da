"""A load applies the records of changelogs without looking up each row, and counts the rows afterwards."""

import pytest

from binshift.session import STOCK_PROVIDER
from harness import Fault, assert_same_results, end_maintenance
from local.migrations import snapshots, version_of
from local.queries import QUERIES
from local.settings import CHECKSUMS, IDS, MIN_DELTAS, NEEDS_CHECKSUMS, ONE_EPOCH

#: More records in each partition than Spark itself applies.
MANY = {"n": 1200, "keys": 3000}


def number(run):
    return [op.numRowsTotal for op in run.query.lastProgress.stateOperators]


@pytest.mark.parametrize(
    ("name", "conf"),
    [
        ("count", {}),
        pytest.param("dedup-watermark", CHECKSUMS, marks=[NEEDS_CHECKSUMS, pytest.mark.long]),
        pytest.param("dedup-watermark", IDS, marks=pytest.mark.long),
        pytest.param("join-inner", {}, marks=pytest.mark.long),
        pytest.param("tws-jvm", IDS, marks=pytest.mark.long),
    ],
    ids=["count", "checksums", "dedup", "join", "tws"],
)
def test_rows_are_those_of_a_query_that_never_stopped_and_so_is_their_number(stream, name, conf):
    query = QUERIES[name]
    conf = conf | ONE_EPOCH | {MIN_DELTAS: "10"}
    run = stream(query.build, mode=query.mode, conf=conf).start()
    run.run(*range(6), **MANY)
    for epochs in ([6, 7], [8, 9, 10]):
        run.stop()
        end_maintenance(run.spark)
        with Fault("replay.quick", "count") as quick:
            run.start().run(epochs[0], **MANY)
            # With checksums, Spark verifies each record.
            assert (quick.count > 0) == (conf.keys().isdisjoint(CHECKSUMS))
        run.run(*epochs[1:], **MANY)
    oracle = stream(query.build, "oracle", mode=query.mode, provider=STOCK_PROVIDER, conf=conf).start()
    oracle.run(*range(11), **MANY)
    assert_same_results(run, oracle, query.state)
    # Snapshots contain the number, too.
    epoch = 11
    while not all(version_of(files[-1]) > 7 for files in snapshots(run).values()):
        run.run(epoch)
        oracle.run(epoch)
        epoch += 1
        assert epoch < 40, "there is no snapshot"
    run.stop()
    end_maintenance(run.spark)
    run.start()
    for later in range(epoch, epoch + 20):
        run.run(later)
        oracle.run(later)
        if number(run) == number(oracle):
            break
    assert_same_results(run, oracle, query.state)
