"""Whatever a query is composed of, it gives what Spark's own provider gives, while its bins move."""

import os
import random

import pytest

from binshift import AllAtOnce, RoutingTable
from binshift.session import PROVIDER
from harness import STOCK
from local.compositions import (
    SOURCE,
    ComposedRun,
    Composition,
    build,
    epoch_rows,
    make_tables,
    random_query,
)
from local.settings import ONE_EPOCH

HASHED = ("repartitioned", SOURCE, 2, "k")
OTHER = ("repartitioned", ("projected", SOURCE), 2, "k")

#: Compositions by what is special about them, with their output mode and sink.
CORPUS: dict[str, tuple[Composition, str, str]] = {
    "state above branches that are partitioned alike": (
        ("counted", ("united", HASHED, OTHER)),
        "update",
        "collected",
    ),
    "join above such branches, one of them with state": (
        ("joined", ("united", ("unique", SOURCE), HASHED), "plain", "inner", "merge"),
        "append",
        "collected",
    ),
    "outer join above such branches": (
        ("joined", ("united", ("unique", SOURCE), HASHED), "plain", "left", "merge"),
        "append",
        "collected",
    ),
    "broadcast join between two operators with state": (
        ("in_sessions", ("joined", ("unique", SOURCE), "plain", "inner", "broadcast")),
        "append",
        "collected",
    ),
    "bucketed table": (("joined", ("unique", SOURCE), "bucketed", "left", "merge"), "append", "collected"),
    "bucketed table between two operators with state": (
        ("in_sessions", ("joined", ("unique", SOURCE), "bucketed", "inner", "shuffle_hash")),
        "append",
        "collected",
    ),
    "cached table, sorted": (
        ("joined", ("counted", SOURCE), "sorted", "left", "merge"),
        "complete",
        "collected",
    ),
    "cached table between two operators with state": (
        ("in_sessions", ("joined", ("unique", SOURCE), "hashed", "inner", "merge")),
        "append",
        "processed",
    ),
}

#: How many partitions there are to be, by the epoch after which bins move; always another table.
TARGETS = {0: 2, 2: 3, 5: 2}


@pytest.fixture(scope="module")
def tables(spark):
    make_tables(spark)


def move_bins(run: ComposedRun, rng: random.Random, partitions: int) -> None:
    controller = run.attach()
    if controller.migration() is None:
        table = controller.routing()
        owners = [rng.randrange(partitions) for _ in range(table.bins)]
        plan = controller.plan(RoutingTable(partitions, tuple(owners)), strategy=AllAtOnce())
        controller.submit(plan, prepare=False)


def assert_moving_bins_changes_nothing(
    stream, composition: Composition, mode: str, sink: str, seed: int = 0, epochs: int = 8, **conf: str
) -> bool:
    """Compares the output of each epoch; False if Spark does not run such a query."""

    def made(name: str, provider: str) -> ComposedRun:
        run = stream(
            build(composition),
            f"{name}-{seed}",
            ComposedRun,
            mode=mode,
            provider=provider,
            conf=ONE_EPOCH | conf,
        )
        run.sink = sink
        return run

    oracle, run = made("oracle", STOCK), made("run", PROVIDER)
    for epoch in range(epochs):
        oracle.feed(epoch_rows(epoch))
    try:
        oracle.start()
        run.start()
        move_while_running(run, epochs, random.Random(seed))
        oracle.query.processAllAvailable()
        moved = run.attach().history().num_rows
    except Exception:
        if spark_fails(oracle):
            return False
        raise
    finally:
        run.stop()
        oracle.stop()
    assert run.outputs == oracle.outputs
    assert moved >= 2
    return True


def move_while_running(run: ComposedRun, epochs: int, rng: random.Random) -> None:
    for epoch in range(epochs):
        run.feed(epoch_rows(epoch))
        run.query.processAllAvailable()
        if epoch in TARGETS:
            move_bins(run, rng, TARGETS[epoch])


def spark_fails(oracle: ComposedRun) -> bool:
    if oracle.query is None:
        return True
    try:
        oracle.query.processAllAvailable()
    except Exception:
        return True
    return False


#: Those that others stand for in the default test run.
MATRIX = (
    "outer join above such branches",
    "bucketed table",
    "cached table, sorted",
    "cached table between two operators with state",
)


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.matrix] * (name in MATRIX)) for name in CORPUS]
)
def test_a_plan_is_routed_as_a_whole(stream, tables, name):
    composition, mode, sink = CORPUS[name]
    assert assert_moving_bins_changes_nothing(stream, composition, mode, sink)


def random_plans(stream, seeds, epochs: int = 8) -> int:
    """How many of the queries of these seeds Spark runs; fails at the end, and names those that differ."""
    ran, wrong = 0, {}
    for seed in seeds:
        composition, mode, sink = random_query(seed)
        codegen = {"spark.sql.codegen.wholeStage": str(seed % 2 == 0).lower()}
        try:
            done = assert_moving_bins_changes_nothing(stream, composition, mode, sink, seed, epochs, **codegen)
            outcome = "as Spark" if done else "refused by Spark"
            ran += done
        except Exception as error:
            outcome = wrong[seed] = f"WRONG, {type(error).__name__}: {error}"
        print(f"seed {seed}: {mode}, {sink}, {composition}: {outcome}", flush=True)  # noqa: T201
    assert not wrong
    return ran


@pytest.mark.matrix
def test_random_plans(stream, tables):
    assert random_plans(stream, range(10), epochs=6) >= 5


@pytest.mark.matrix
@pytest.mark.timeout(0)
def test_many_random_plans(stream, tables):
    # To go on after the plans of an earlier run, or to repeat one: BINSHIFT_PLANS_SEED.
    first = int(os.environ.get("BINSHIFT_PLANS_SEED", "1000"))
    count = int(os.environ.get("BINSHIFT_PLANS", "200"))
    assert random_plans(stream, range(first, first + count)) > 0
