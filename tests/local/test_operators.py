"""Every supported operator survives every change of routing, with exact results.

The oracle is the same query over the same input on Spark's own RocksDB provider, which never migrates:
the output of each epoch and the final state must be equal.
"""

import pytest

from binshift import AllAtOnce, Batched, Fluid
from harness import STOCK, assert_same_results
from local.queries import QUERIES

EPOCHS = range(11)

#: Routing changes by the epoch after which they are submitted: rescales, or a shuffle among the same.
SCENARIOS = {
    "grow-at-once": {1: (6, AllAtOnce())},
    "shrink-at-once": {1: (1, AllAtOnce())},
    "grow-and-shrink-batched": {1: (5, Batched(16)), 5: (3, Batched(20))},
    "grow-fluid": {1: (3, Fluid())},
    "shuffle-among-the-same": {1: ("shuffle", Batched(24))},
}


def migrate(run, target, strategy):
    controller = run.attach()
    if target == "shuffle":
        table = controller.routing()
        turned = [(owner + 1) % table.partitions for owner in table.assignment]
        return controller.submit(controller.plan(assignment=turned, strategy=strategy))
    return controller.rescale(target, strategy)


@pytest.fixture(scope="module")
def oracles(spark, tmp_path_factory):
    """Runs of the stock provider, one per query, made when first asked for."""
    from harness import StreamRun

    made = {}

    def oracle(name):
        if name not in made:
            build, mode = QUERIES[name]
            root = tmp_path_factory.mktemp(name)
            run = StreamRun(spark, root, build, mode=mode, provider=STOCK).start()
            run.run(*EPOCHS)
            run.stop()
            made[name] = run
        return made[name]

    return oracle


#: Three operators go through all scenarios; the others differ from them in what they compute only.
THOROUGH = {"count", "tumbling-append", "dedup-within-watermark"}
CASES = [
    (name, scenario)
    for name in QUERIES
    for scenario in SCENARIOS
    if name in THOROUGH or scenario in ("grow-and-shrink-batched", "shuffle-among-the-same")
]


@pytest.mark.parametrize(("name", "scenario"), CASES)
def test_results_equal_those_of_a_query_that_never_migrated(stream, oracles, name, scenario):
    build, mode = QUERIES[name]
    run = stream(build, mode=mode).start()
    for epoch in EPOCHS:
        run.run(epoch)
        if epoch in SCENARIOS[scenario]:
            target, strategy = SCENARIOS[scenario][epoch]
            migrate(run, target, strategy)
    assert run.attach().history().num_rows >= len(SCENARIOS[scenario])
    assert_same_results(run, oracles(name))


def test_partitions_that_leave_and_come_back_hold_what_they_should(stream):
    run = stream(QUERIES["count"][0]).start()
    for epoch in EPOCHS:
        run.run(epoch)
        if epoch < 8:
            run.attach().rescale([4, 1, 4, 2, 6, 1, 3, 2][epoch], AllAtOnce())
            # A migration that is still on its way refuses the next; an epoch finishes it.
            run.feed([])
            run.feed([])
            run.query.processAllAvailable()
    batch = {(r.k, r.n, r.total) for r in QUERIES["count"][0](run.batch()).collect()}
    assert {(*key, *value) for key, value in run.state()} == batch
    assert run.attach().history().num_rows == 8


def test_without_a_migration_the_query_behaves_as_on_the_stock_provider(stream, oracles):
    run = stream(QUERIES["tumbling-update"][0], mode="update").start()
    run.run(*EPOCHS[:7])
    run.stop()
    run.start()
    run.run(*EPOCHS[7:])
    assert_same_results(run, oracles("tumbling-update"))
    assert run.query.lastProgress.stateOperators[0].numRowsTotal == len(run.state())
