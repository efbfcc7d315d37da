"""binshift's requests to the checkpoint's file system, in addition to those of Spark's own provider."""

from collections import Counter

import pytest

import binshift
from binshift import Fluid
from binshift.session import PROVIDER, STOCK_PROVIDER
from devtools.counted import CountedQuery, by_caller
from harness import Fault
from local.settings import MIN_DELTAS

# Epochs in the steady state.
FIRST, LAST = 4, 13
INTERVAL = "spark.sql.streaming.stateStore.binshift.requests.interval"


@pytest.fixture
def counted(spark, tmp_path):
    queries = []

    def make(provider, **conf):
        query = CountedQuery(spark, tmp_path / f"run{len(queries)}", provider, 2, conf={INTERVAL: "1s"} | conf)
        queries.append(query)
        return query

    yield make
    for query in queries:
        query.stop()


def steady(query):
    query.reach(LAST + 1)
    query.stop()
    return [r for r in query.counted() if FIRST <= r.epoch <= LAST]


def by_epoch(requests, thread):
    return Counter((r.epoch, r.kind) for r in requests if r.thread == thread)


@pytest.fixture
def stock(counted):
    query = counted(STOCK_PROVIDER)
    query.count()
    query.start()
    return steady(query)


def test_a_steady_epoch_makes_no_request_of_binshift_though_somebody_waits(counted, stock):
    query = counted(PROVIDER)
    query.count()
    controller = binshift.attach(query.start())
    query.reach(0)
    # Waits for copies that are made, and then for an epoch that does not come.
    migration = controller.submit(controller.plan(4), start_epoch=10_000, prepare=False)
    query.reach(FIRST - 2)
    while query.epoch <= LAST:
        assert migration.status.committed_epoch >= FIRST - 2
        assert controller.migration() is not None
    ours = steady(query)
    assert by_caller(r for r in ours if r.ours and r.thread in ("stream", "task")) == []
    for thread in ("stream", "task"):
        assert by_epoch(ours, thread) == by_epoch(stock, thread)
    # A client's threads make no requests, either.
    assert by_caller(r for r in ours if r.ours and r.thread == "other") == []
    looks = [r for r in ours if r.thread == "background"]
    assert {r.path.rsplit("/", 1)[-1] for r in looks} <= {"requests"}
    assert len(looks) <= (looks[-1].at_ms - looks[0].at_ms) / 1000 + 1 if looks else True


def test_a_restart_looks_at_no_store_of_its_own_accord(counted):
    query = counted(PROVIDER)
    query.start()
    query.reach(5)
    query.stop()
    query.count()
    committed = query.epoch
    query.start()
    query.reach(committed + 1)
    ours = [r for r in query.counted() if r.ours and r.epoch <= committed + 1]
    # The last run left word of its end: one partition of each operator is looked at to be sure, and no other.
    looks = [r for r in ours if r.kind == "LIST" and "/state/0/" in r.path]
    stores = Counter(r.path.split("/state/")[1] for r in looks)
    assert stores == {"0/0": 1}
    # An executor reads everything that its tasks need for this once, whatever they replay.
    tasks = Counter((r.kind, r.path.split("/binshift/")[1].split("-")[0]) for r in ours if r.thread == "task")
    assert tasks <= Counter([("GET", "layout.json"), ("GET", "routing/0")])


def test_a_recovery_reads_each_routing_entry_once_in_an_executor(counted):
    steps = 20
    query = counted(PROVIDER, **{MIN_DELTAS: "1000"})
    with Fault("snapshot.upload", "throw", always=True):
        controller = binshift.attach(query.start())
        query.reach(1)
        owners = controller.routing().assignment
        swapped = [1 - owner if bin < steps else owner for bin, owner in enumerate(owners)]
        controller.submit(controller.plan(swapped, strategy=Fluid()), prepare=False).wait(timeout=120)
        query.stop()
        query.count()
        committed = query.epoch
        query.start()
        query.reach(committed + 1)
        requests = [r for r in query.counted() if r.thread != "stream" and r.epoch <= committed + 1]
    entries = Counter(
        r.path.split("/routing/")[1] for r in requests if r.kind == "GET" and "/routing/" in r.path
    )
    assert len(entries) == steps + 1
    assert set(entries.values()) == {1}
