"""Composed queries have the same results as on Spark's own provider, while their bins move."""

import pytest

from local.compositions import SOURCE, Composition, build, make_tables
from local.moving import Case, gives_what_spark_gives

HASHED = ("repartitioned", SOURCE, 2, "k")
OTHER = ("repartitioned", ("projected", SOURCE), 2, "k")

#: Compositions by their special features, with output mode and sink.
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


@pytest.fixture(scope="module")
def tables(spark):
    make_tables(spark)


#: Compositions that the default test run leaves out, as similar ones run.
MATRIX = (
    "outer join above such branches",
    "bucketed table",
    "cached table, sorted",
    "cached table between two operators with state",
)


@pytest.mark.long
@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.matrix] * (name in MATRIX)) for name in CORPUS]
)
def test_a_plan_is_routed_as_a_whole(stream, tables, name):
    composition, mode, sink = CORPUS[name]
    assert gives_what_spark_gives(stream, Case(build(composition), mode, sink))
