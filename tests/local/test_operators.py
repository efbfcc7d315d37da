"""Every stateful operator survives every change of routing, with exact results.

The oracle is the same query over the same input on Spark's own RocksDB provider, which never migrates:
the output of each epoch, the final state and the number of its rows must be equal.
"""

from typing import Any

import pytest

from binshift import AllAtOnce, Batched, Fluid
from harness import STOCK, assert_same_results
from local.queries import QUERIES
from local.settings import (
    AVRO,
    CHECKSUMS,
    IDS,
    JOIN_3,
    JOIN_4,
    NEEDS_CHECKSUMS,
    NEEDS_JOIN_4,
    NO_CHANGELOG,
    ONE_EPOCH,
    needs,
)

EPOCHS = range(12)

#: Routing changes by the epoch after which they are submitted: grow, shuffle bins among the same
#: partitions, shrink. With few bins, a fluid migration has few steps.
JOURNEYS: dict[str, tuple[int, dict[int, Any]]] = {
    "at-once": (64, {1: (4, AllAtOnce()), 3: ("shuffle", AllAtOnce()), 5: (2, AllAtOnce())}),
    "fluid": (6, {1: (3, Fluid()), 4: ("shuffle", Fluid()), 7: (2, Fluid())}),
}


def migrate(run, target, strategy):
    """Starts a migration; a shuffle rotates all owners or, if there are few bins, swaps two bins' owners."""
    controller = run.attach()
    if target != "shuffle":
        return controller.rescale(target, strategy=strategy, prepare=False)
    table = controller.routing()
    owners = list(table.assignment)
    if table.bins > 8:
        owners = [(owner + 1) % table.partitions for owner in owners]
    else:
        other = next(b for b, owner in enumerate(owners) if owner != owners[0])
        owners[0], owners[other] = owners[other], owners[0]
    return controller.submit(controller.plan(owners, strategy=strategy), prepare=False)


@pytest.fixture(scope="module")
def oracles(spark, tmp_path_factory):
    """Runs of the stock provider, one per query and format of joins; each is made when it is first needed."""
    from harness import StreamRun

    made = {}

    def oracle(name, join_format=2):
        if (name, join_format) not in made:
            query = QUERIES[name]
            conf = ONE_EPOCH | {"spark.sql.streaming.join.stateFormatVersion": str(join_format)}
            root = tmp_path_factory.mktemp(name)
            run = StreamRun(spark, root, query.build, mode=query.mode, provider=STOCK, conf=conf).start()
            run.run(*EPOCHS)
            run.stop()
            made[name, join_format] = run
        return made[name, join_format]

    return oracle


def travel(run, journey):
    bins, targets = JOURNEYS[journey]
    run.spark.conf.set("spark.sql.streaming.stateStore.binshift.bins", str(bins))
    run.start()
    for epoch in EPOCHS:
        run.run(epoch)
        if epoch in targets:
            migrate(run, *targets[epoch])
    steps = run.attach().history()
    assert steps.num_rows >= len(targets)
    assert steps["partitions"].to_pylist()[-1] == 2


#: Queries that the default test run leaves out, as similar ones run.
ALIKE = {"count-complete", "tumbling-update", "sliding-append", "session-dynamic", "dedup-watermark"} | {
    "join-inner",
    "join-left",
    "join-right",
    "join-semi",
    "join-unbounded",
    "join-window",
    "tws-rows",
}
#: The queries that differ most in their use of a store.
FEW = {"count", "session-fixed", "join-full", "tws-jvm"}
#: Queries whose functions in Python take most of the time.
SLOW = {"pandas-with-state", "session-fixed", "tws-initial-state", "tws-pandas"}


def journeys():
    """Each query goes on both journeys; in the default test run, the journeys alternate."""
    return [
        pytest.param(
            name,
            journey,
            marks=[pytest.mark.matrix] * (name in ALIKE or (i + j) % 2)
            + [pytest.mark.few] * (name in FEW)
            + [pytest.mark.long] * (name in SLOW),
        )
        for i, name in enumerate(QUERIES)
        for j, journey in enumerate(JOURNEYS)
    ]


@pytest.mark.parametrize(("name", "journey"), journeys())
def test_results_equal_those_of_a_query_that_never_migrated(stream, oracles, name, journey):
    query = QUERIES[name]
    run = stream(query.build, mode=query.mode, conf=ONE_EPOCH)
    travel(run, journey)
    assert_same_results(run, oracles(name), query.state)


SETTINGS = {
    "checkpoint-ids": IDS,
    "row-checksums": CHECKSUMS,
    "no-changelog": NO_CHANGELOG,
    "avro": AVRO,
    "join-3": JOIN_3,
    "join-4": JOIN_4,
}
#: Operators that differ in how they use the store, by setting. Spark 4.3 itself refuses avro for all
#: but transformWithState, and cannot write joins of format 1.
SET_QUERIES = [
    ("checkpoint-ids", "join-full"),
    pytest.param("row-checksums", "dedup", marks=NEEDS_CHECKSUMS),
    ("no-changelog", "count"),
    ("avro", "tws-jvm"),
    ("join-3", "join-full"),
    *(
        pytest.param(setting, name, marks=[pytest.mark.matrix, *needs(SETTINGS[setting])])
        for setting, names in {
            "checkpoint-ids": ("dedup", "tws-jvm"),
            "no-changelog": ("tws-jvm", "join-full"),
            "join-3": ("join-semi",),
            "join-4": ("join-semi", "join-full", "join-unbounded", "join-window"),
        }.items()
        for name in names
    ),
    *(
        pytest.param("row-checksums", name, marks=[pytest.mark.matrix, NEEDS_CHECKSUMS])
        for name in ("tws-jvm", "join-full", "session-fixed")
    ),
]


@pytest.mark.long
@pytest.mark.parametrize(("setting", "name"), SET_QUERIES)
def test_results_are_the_same_under_every_setting_of_the_store(stream, oracles, setting, name):
    query = QUERIES[name]
    run = stream(query.build, mode=query.mode, conf=ONE_EPOCH | SETTINGS[setting])
    travel(run, "at-once")
    # For joins of another format, Spark keeps and counts other rows.
    join_format = int(setting.removeprefix("join-")) if setting.startswith("join-") else 2
    assert_same_results(run, oracles(name, join_format), query.state)


@pytest.mark.long
@NEEDS_JOIN_4
def test_row_checksums_and_virtual_families_and_checkpoint_ids_together(stream, oracles):
    conf = ONE_EPOCH | CHECKSUMS | JOIN_4 | IDS
    query = QUERIES["join-full"]
    run = stream(query.build, mode=query.mode, conf=conf)
    travel(run, "at-once")
    assert_same_results(run, oracles("join-full", 4), query.state)


@pytest.mark.long
def test_partitions_that_leave_and_come_back_hold_what_they_should(stream):
    run = stream(QUERIES["count"].build).start()
    for epoch in range(11):
        run.run(epoch)
        if epoch < 8:
            run.attach().rescale([4, 1, 4, 2, 6, 1, 3, 2][epoch], strategy=AllAtOnce(), prepare=False)
            # The next migration is refused while one is under way; an epoch ends it.
            run.feed([])
            run.feed([])
            run.query.processAllAvailable()
    batch = {(r.k, r.n, r.total) for r in QUERIES["count"].build(run.batch()).collect()}
    assert {(*key, *value) for key, value in run.state()} == batch
    assert run.attach().history().num_rows == 8


@pytest.mark.long
@pytest.mark.parametrize("name", ["tumbling-update", "join-full", "tws-jvm"])
def test_without_a_migration_the_query_behaves_as_on_the_stock_provider(stream, oracles, name):
    query = QUERIES[name]
    run = stream(query.build, mode=query.mode, conf=ONE_EPOCH).start()
    run.run(*EPOCHS[:7])
    run.stop()
    run.start()
    run.run(*EPOCHS[7:])
    assert_same_results(run, oracles(name), query.state)


@pytest.mark.long
@pytest.mark.parametrize(
    "name", [*(pytest.param(n, marks=pytest.mark.matrix) for n in ("session-fixed", "join-left")), "tws-jvm"]
)
def test_a_restart_in_the_middle_of_a_migration_changes_nothing(stream, oracles, name):
    query = QUERIES[name]
    run = stream(query.build, mode=query.mode, conf=ONE_EPOCH).start()
    run.run(0, 1)
    run.attach().rescale(5, strategy=Batched(16), prepare=False)
    run.run(2, 3)
    run.stop()
    run.start()
    run.run(*EPOCHS[4:])
    assert run.attach().routing().partitions == 5
    assert run.attach().history().num_rows == 3
    assert_same_results(run, oracles(name), query.state)
