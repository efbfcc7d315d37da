"""A session with binshift's provider goes on with a checkpoint that Spark's own provider started."""

import pytest

from binshift import AllAtOnce
from harness import STOCK, assert_same_results
from local.queries import QUERIES

EPOCHS = range(8)
PREFIX = "spark.sql.streaming.stateStore."
ONE_EPOCH = {"spark.sql.streaming.noDataMicroBatches.enabled": "false"}
IDS = {PREFIX + "checkpointFormatVersion": "2"}


def start_with(run, provider):
    """Starts the query anew, in a session that names `provider`."""
    run.stop()
    run.spark.conf.set(PREFIX + "providerClass", provider)
    run.start()


def started_by_stock(stream, name, conf=None, epochs=(0, 1, 2)):
    query = QUERIES[name]
    run = stream(query.build, mode=query.mode, provider=STOCK, conf={**ONE_EPOCH, **(conf or {})}).start()
    run.run(*epochs)
    run.stop()
    return run


def oracle_of(stream, name, conf=None, epochs=EPOCHS):
    query = QUERIES[name]
    oracle = stream(
        query.build, "oracle", mode=query.mode, provider=STOCK, conf={**ONE_EPOCH, **(conf or {})}
    ).start()
    oracle.run(*epochs)
    oracle.stop()
    return oracle


BINSHIFT = "binshift.StateStoreProvider"


@pytest.mark.parametrize(("name", "conf"), [("count", {}), ("count", IDS), ("tws-jvm", IDS), ("join-full", {})])
def test_a_stock_checkpoint_goes_on_with_bins(stream, name, conf):
    run = started_by_stock(stream, name, conf)
    start_with(run, BINSHIFT)
    run.run(3, 4)
    run.attach().rescale(5, AllAtOnce(), prepare=False)
    run.run(5, 6)
    assert run.attach().routing().partitions == 5
    start_with(run, STOCK)
    run.run(7)
    assert run.attach().routing().partitions == 5
    assert_same_results(run, oracle_of(stream, name, conf), QUERIES[name].state)
