"""The public API over both ways to the driver: py4j in a classic session, and SQL in Spark Connect."""

import ast
import inspect
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from threading import Event
from typing import Any

import pytest
from pyspark.sql.connect import session as connect_session

import binshift
from binshift import (
    AllAtOnce,
    Autoscaler,
    Batched,
    Bounded,
    ConfigurationError,
    MigrationError,
    MigrationState,
    Optimized,
    PlanError,
)
from binshift.autoscaling import Action
from devtools.servers.connect import connect_server
from harness import until
from jvms import SPARK_HOME, quick
from local.counting import Counting

#: Has its own type for type checkers, which `SparkSession.builder.remote` hides from users.
ConnectSession: Any = connect_session.SparkSession
LEAVER = Path(__file__).with_name("leaver.py")


@pytest.fixture(scope="module")
def server(jvm_jar, tmp_path_factory):
    settings = quick() | {"spark.sql.shuffle.partitions": "2"}
    with connect_server(tmp_path_factory.mktemp("server"), SPARK_HOME, settings) as address:
        yield address


@pytest.fixture(scope="module")
def client(server):
    """A client's session, created as users do it."""
    session = binshift.configure(ConnectSession.builder.remote(server), bins=64).create()
    yield session
    session.stop()


@pytest.fixture(params=["py4j", "connect"])
def session(request):
    if request.param == "connect":
        return request.getfixturevalue("client")
    return request.getfixturevalue("spark").newSession()


@pytest.fixture
def counting(session, tmp_path):
    query = Counting(session, tmp_path).start()
    query.run()
    yield query
    query.query.stop()


@pytest.mark.long
@pytest.mark.few
def test_a_query_is_looked_at_planned_for_and_rescaled(counting, session):
    controller = binshift.attach(counting.query)
    assert controller.query.id == counting.query.id
    assert repr(controller) == f"<Controller of query {counting.name} ({counting.query.id})>"
    table = controller.routing()
    assert (table.bins, table.partitions, table.epoch) == (64, 2, 0)
    stats = controller.stats()
    assert stats.schema.metadata[b"epoch"] == b"0"
    assert sum(stats["keys"].to_pylist()) == len(counting.expected)
    assert controller.skew().ratio >= 1
    plan = controller.plan(5, strategy=Batched(20))
    assert plan == Batched(20).plan(table, table.balanced(5))
    assert plan.bytes_to_move > 0
    assert controller.migration() is None
    migration = controller.submit(plan, prepare=False)
    assert (controller.migration().id, controller.migration().plan) == (migration.id, plan)
    assert until(lambda: migration.status.state is MigrationState.WAITING)
    log = binshift.EpochLog(counting.query)
    session.streams.addListener(log)
    counting.run(4)
    report = migration.wait(timeout=60)
    assert (report.steps, report.bins_moved, report.cancelled) == (len(plan.steps), len(plan.moves), False)
    assert report.rows_adopted > 0
    assert [t.duration_s is not None for t in report.timings] == [True] * len(plan.steps)
    assert migration.status.state is MigrationState.FINISHED
    assert controller.routing() == plan.target
    assert [r["bins_moved"] for r in controller.history().to_pylist()] == [len(s.moves) for s in plan.steps]
    epochs = binshift.epochs(counting.query)
    assert [e.epoch for e in epochs] == [0, 1, 2, 3, 4]
    assert [e.partitions for e in epochs] == [2, 2, 5, 5, 5]
    assert [e.input_rows for e in epochs] == [40] * 5
    assert until(lambda: log.epochs[-1:] == tuple(epochs[-1:]))
    assert (
        log.table()["epoch"].to_pylist() == [e.epoch for e in log.epochs] == log.to_pandas()["epoch"].tolist()
    )
    session.streams.removeListener(log)
    assert log.table() == binshift.epoch_table(log.epochs)
    assert controller.plot("bins").axes
    saved = controller.savepoint("rescaled")
    assert (saved.name, saved.epoch, saved.is_finished) == ("rescaled", 4, True)
    migration.rollback()
    assert until(lambda: counting.run() or migration.status.state is MigrationState.ROLLED_BACK)
    undone = migration.wait(60).rollback
    assert (undone.id, undone.bins_moved) == (f"{migration.id}-rollback", len(plan.moves))
    assert controller.routing() == table
    assert counting.counted() == counting.expected


def test_what_a_controller_does_beside_rescaling(counting, session):
    controller = binshift.attach(counting.name, spark=session)
    assert controller.query.runId == counting.query.runId
    assert controller.rebalance("bins", prepare=False).wait(60).steps == 0
    # The load is that of the operators, over both ways.
    target = controller.target("bytes", partitions=4)
    assert target == controller.target("bytes", partitions=4)
    assert (target.table.partitions, controller.routing().partitions) == (4, 2)
    bounded = controller.plan(4, strategy=Bounded(Optimized(8), max_bytes_per_step=1 << 20))
    assert bounded.target.partitions == 4
    limits: dict[str, Any] = {"deadline": "30 epochs", "on_timeout": "rollback", "guard": binshift.Guard(600)}
    migration = controller.submit(bounded, start_epoch=9, **limits)
    over = Event()
    migration.add_done_callback(lambda _: over.set())
    migration.cancel()
    assert migration.wait(60).cancelled
    assert over.wait(60)
    assert controller._link.planned_epoch()[0] == controller.query.lastProgress["batchId"]
    advisor = Autoscaler(controller, min_partitions=2, max_partitions=2, epoch_s=10)
    assert advisor.step().action is Action.HOLD
    with pytest.raises(ConfigurationError, match="number of executors") as refused:
        Autoscaler(controller, min_partitions=2, max_partitions=2, epoch_s=10, max_executors=2)
    assert refused.value.condition == "EXECUTORS_NOT_OURS"
    with ThreadPoolExecutor(1) as pool:
        asked = pool.submit(controller.hot_keys, 3)
        while not asked.done():
            counting.run()
    hot = asked.result().to_pylist()
    assert len(hot) == 3
    assert {r["key"] for r in hot} <= set(counting.expected)


def test_refusals_are_the_same_errors(counting, session):
    controller = binshift.attach(counting.query)
    with pytest.raises(PlanError) as no_plan:
        controller.drain("driver")
    assert (no_plan.value.condition, no_plan.value.parameters) == ("NO_OTHER_EXECUTOR", {"executor": "driver"})
    with pytest.raises(PlanError, match="has passed") as no_plan:
        controller.rescale(4, start_epoch=0)
    assert (no_plan.value.condition, no_plan.value.parameters) == ("EPOCH_PASSED", {"epoch": 0, "earliest": 1})
    stale = controller.plan(3)
    first = controller.rescale(4, strategy=AllAtOnce(), prepare=False)
    with pytest.raises(MigrationError) as refused:
        controller.submit(stale)
    assert (refused.value.condition, refused.value.migration_id) == ("MIGRATION_UNDER_WAY", first.id)
    counting.run(2)
    first.wait(60)
    with pytest.raises(PlanError, match="not the one in force since epoch 2") as no_plan:
        controller.submit(stale)
    assert (no_plan.value.condition, no_plan.value.parameters) == ("PLAN_OUTDATED", {"epoch": 2})
    with pytest.raises(ConfigurationError, match="'nobody'") as not_found:
        binshift.attach("nobody", spark=session)
    assert not_found.value.condition == "QUERY_NOT_FOUND"
    waiting = controller.rescale(2, prepare=False)
    counting.query.stop()
    assert waiting.status.state is MigrationState.STOPPED
    for refused_call in (
        lambda: controller.rescale(3),
        lambda: waiting.wait(60),
        lambda: binshift.attach(counting.query),
    ):
        with pytest.raises(MigrationError, match="has ended") as refused:
            refused_call()
        assert refused.value.condition == "QUERY_ENDED"


def test_all_that_a_query_can_be_asked_runs_over_both_ways():
    """The tests of this module that run over both ways use each public method and property."""
    tests = [t for t in ast.parse(Path(__file__).read_text()).body if isinstance(t, ast.FunctionDef)]
    both = [t for t in tests if {"session", "counting"} & {a.arg for a in t.args.args}]
    used = {node.attr for t in both for node in ast.walk(t) if isinstance(node, ast.Attribute)}
    kinds = (binshift.Controller, binshift.Migration)
    public = {name for kind in kinds for name, _ in inspect.getmembers(kind) if not name.startswith("_")}
    assert public - used == set()
    # Other parts of the package that take a running query; `submit` returns a `Migration`.
    used |= {node.id for t in both for node in ast.walk(t) if isinstance(node, ast.Name)} | {"Migration"}
    assert {n for n in binshift.__all__ if takes_a_query(getattr(binshift, n))} - used == set()


def takes_a_query(thing):
    """True if a function or a constructor has a parameter for a query or a controller."""
    function = thing.__init__ if inspect.isclass(thing) else thing
    return inspect.isfunction(function) and bool(
        {"query", "controller"} & {*inspect.signature(function).parameters}
    )


def has_committed(migration, epoch):
    return migration.status.committed_epoch >= epoch


def test_a_migration_goes_on_without_its_client_and_another_client_finds_it(client, server, tmp_path):
    done = subprocess.run(
        [sys.executable, str(LEAVER), server, str(tmp_path)],
        capture_output=True,
        text=True,
        timeout=180,
        check=False,
        cwd=tmp_path,
        env={"PYTHONPATH": ":".join(p for p in sys.path if p), "HOME": str(tmp_path), "PATH": "/usr/bin:/bin"},
    )
    assert done.returncode == 7, done.stderr[-4000:]
    name, id_ = done.stdout.split()[-2:]
    controller = binshift.attach(name, spark=client)
    with pytest.raises(ConfigurationError, match="another session") as refused:
        _ = controller.query
    assert refused.value.condition == "QUERY_OF_ANOTHER_SESSION"
    migration = controller.migration()
    assert migration.id == id_
    counting = Counting(client, tmp_path, name)
    committed = migration.status.committed_epoch
    for more in range(1, 8):
        counting.feed()
        assert until(partial(has_committed, migration, committed + more))
        if migration.status.is_over:
            break
    assert migration.wait(60).steps == len(migration.plan.steps)
    assert controller.routing().partitions == 4
    rows = controller.stats()["keys"].to_pylist()
    assert sum(rows) == len(set(counting.expected)) == 30
    facts = client.sql(f"SELECT partitions FROM binshift.system.queries WHERE query = '{name}'").collect()
    assert [r.partitions for r in facts] == [4]


def test_a_server_without_binshift_is_refused_by_name(server):
    session = ConnectSession.builder.remote(server).create()
    session.sql("SELECT 1").collect()
    # As on a server without the jar, whose sessions don't know the catalog.
    session.conf.unset("spark.sql.catalog.binshift")
    with pytest.raises(ConfigurationError, match="start the server with --jars") as refused:
        binshift.attach("orders", spark=session)
    assert refused.value.condition == "SERVER_WITHOUT_BINSHIFT"
    session.stop()
