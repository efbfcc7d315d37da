"""Plans around stateful operators: everything that has to follow the routing table does, and nothing else."""

import pytest
from pyspark.sql import functions as F

from binshift import AllAtOnce, MigrationError
from harness import STOCK, assert_same_results
from local.processors import OUTPUT, Remembering, Stamping
from local.queries import count_by_key, interval_join
from local.settings import NO_CHANGELOG, ROW_CHECKSUMS, SNAPSHOTS

EPOCHS = range(8)


def joined_with_a_batch_table(df):
    # No broadcast: Spark plans a sort-merge join, whose batch side is hash-partitioned like the stream.
    spark = df.sparkSession
    names = spark.range(60).select(F.concat(F.lit("key"), F.col("id")).alias("k"), (F.col("id") % 7).alias("g"))
    return count_by_key(df).join(names.hint("merge"), "k", "left").select("k", "n", "g")


def joined_with_an_aggregated_batch_table(df):
    spark = df.sparkSession
    base = spark.range(600).select(F.concat(F.lit("key"), F.col("id") % 60).alias("k"))
    return count_by_key(df).join(base.groupBy("k").count().hint("shuffle_hash"), "k")


def deduplicated_then_counted_by_the_same_key(df):
    unique = df.withWatermark("t", "1 minute").dropDuplicates(["k", "t"])
    return unique.groupBy("k", "t").agg(F.count("*").alias("n"))


def deduplicated_then_counted_by_another_key(df):
    unique = df.withWatermark("t", "1 minute").dropDuplicates(["k", "t"])
    return unique.groupBy(F.window("t", "1 minute"), (F.col("v") % 5).alias("m")).agg(F.count("*").alias("n"))


def counted_twice(df):
    late = df.withWatermark("t", "1 minute")
    by_key = late.groupBy(F.window("t", "1 minute"), "k").agg(F.count("*").alias("n"))
    return by_key.groupBy(F.window(F.window_time("window"), "2 minutes")).agg(F.sum("n").alias("n"))


def joined_then_counted(df):
    joined = interval_join("leftOuter")(df)
    return joined.groupBy(F.window("lt", "1 minute"), "k").agg(F.count("rk").alias("n"))


def deduplicated_then_transformed(df):
    unique = df.withWatermark("t", "1 minute").dropDuplicates(["k", "t"])
    return unique.groupBy("k").transformWithState(Remembering(), OUTPUT, "Append", "None")


def transformed_then_counted(df):
    counted = df.withWatermark("t", "1 minute").groupBy("k")
    stamped = counted.transformWithState(
        Stamping(), "k string, t timestamp, n long", "Append", "EventTime", None, "t"
    )
    return stamped.groupBy(F.window("t", "1 minute")).agg(F.count("*").alias("keys"), F.sum("n").alias("n"))


def united(df):
    other = df.select(F.concat(F.lit("other-"), "k").alias("k"), "v", "t")
    return count_by_key(df.union(other))


def repartitioned_by_the_user(df):
    return count_by_key(df.repartition("k"))


def repartitioned_by_the_user_in_number(df):
    return count_by_key(df.repartition(3))


PLANS = {
    "batch table, sort-merge join": (joined_with_a_batch_table, "update"),
    "aggregated batch table, hash join": (joined_with_an_aggregated_batch_table, "update"),
    "two operators, one exchange": (deduplicated_then_counted_by_the_same_key, "append"),
    "two operators, two exchanges": (deduplicated_then_counted_by_another_key, "append"),
    "two aggregations": (counted_twice, "append"),
    "join, then aggregation": (joined_then_counted, "append"),
    "deduplication, then transformWithState": (deduplicated_then_transformed, "append"),
    "transformWithState, then aggregation": (transformed_then_counted, "append"),
    "union": (united, "update"),
    "repartition by key": (repartitioned_by_the_user, "update"),
    "repartition by number": (repartitioned_by_the_user_in_number, "update"),
}


#: Options to read the state of queries with several operators or stores.
STATE = {
    "two operators, one exchange": ({"operatorId": "0"}, {"operatorId": "1"}),
    "two operators, two exchanges": ({"operatorId": "0"}, {"operatorId": "1"}),
    "two aggregations": ({"operatorId": "0"}, {"operatorId": "1"}),
    "join, then aggregation": ({"operatorId": "0"}, {"operatorId": "1", "joinSide": "left"}),
    "deduplication, then transformWithState": (
        {"operatorId": "0", "stateVarName": "total"},
        {"operatorId": "0", "stateVarName": "values"},
        {"operatorId": "1"},
    ),
    "transformWithState, then aggregation": ({"operatorId": "0"}, {"operatorId": "1", "stateVarName": "count"}),
}


def outputs_with_migrations(run, targets):
    run.start()
    for epoch in EPOCHS:
        run.run(epoch)
        if epoch in targets:
            run.attach().rescale(targets[epoch], strategy=AllAtOnce(), prepare=False)
    assert run.attach().history().num_rows == len(targets)
    return run.outputs


#: Plans that the default test run leaves out, as similar ones run.
MATRIX = (
    "two aggregations",
    "two operators, two exchanges",
    "transformWithState, then aggregation",
    "deduplication, then transformWithState",
)


@pytest.mark.long
@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.matrix] * (name in MATRIX)) for name in PLANS]
)
def test_a_plan_gives_the_same_results_whatever_the_routing(stream, name):
    build, mode = PLANS[name]
    run, oracle = stream(build, mode=mode), stream(build, "oracle", mode=mode, provider=STOCK)
    oracle.start()
    oracle.run(*EPOCHS)
    assert any(oracle.outputs.values())
    outputs_with_migrations(run, {1: 5, 4: 3})
    assert_same_results(run, oracle, STATE.get(name, ({},)))


@pytest.mark.parametrize("one_file_read_at_once", [pytest.param(False, marks=pytest.mark.matrix), True])
def test_a_query_that_starts_with_one_partition_grows_and_comes_back_to_one(stream, one_file_read_at_once):
    # With one partition Spark plans no hash exchange, and none at all if the input has one partition.
    def build(df):
        return count_by_key(df.coalesce(1) if one_file_read_at_once else df)

    conf = {"spark.sql.shuffle.partitions": "1"}
    run, oracle = stream(build, conf=conf), stream(build, "oracle", provider=STOCK, conf=conf)
    oracle.start()
    oracle.run(*EPOCHS)
    outputs_with_migrations(run, {0: 3, 3: 1})
    assert_same_results(run, oracle)


def test_an_aggregation_without_keys_stays_where_it_is(stream):
    def total(df):
        return df.agg(F.count("*").alias("n"), F.sum("v").alias("total"))

    run, oracle = stream(total, mode="complete"), stream(total, "oracle", mode="complete", provider=STOCK)
    oracle.start()
    oracle.run(*EPOCHS)
    outputs_with_migrations(run, {1: 5, 4: 1})
    assert_same_results(run, oracle)


@pytest.mark.long
def test_a_batch_that_is_used_twice_switches_twice_alike(stream):
    # Each action of a foreachBatch runs the stateful stage again, at the same version.
    run = stream(count_by_key)
    counts = {}

    def twice(batch, epoch):
        first, second = batch.count(), batch.collect()
        counts[epoch] = (first, len(second))
        run.outputs[epoch] = sorted((tuple(r) for r in second), key=repr)

    run._keep = twice
    oracle = stream(count_by_key, "oracle", provider=STOCK).start()
    oracle.run(*EPOCHS)
    outputs_with_migrations(run, {1: 5, 4: 1})
    assert all(first == second for first, second in counts.values())
    # Spark adds the counts of all actions of a batch.
    assert_same_results(run, oracle, rows=False)


@pytest.mark.long
@pytest.mark.parametrize(
    "conf",
    [
        pytest.param(ROW_CHECKSUMS, marks=pytest.mark.matrix),
        NO_CHANGELOG,
        {"spark.sql.streaming.stateStore.rocksdb.trackTotalNumberOfRows": "false"},
        SNAPSHOTS,
        {"spark.sql.streaming.minBatchesToRetain": "2"},
    ],
    ids=lambda conf: next(iter(conf)).rsplit(".", 2)[-2] + "." + next(iter(conf)).rsplit(".", 1)[-1],
)
def test_settings_of_the_state_store_keep_their_meaning(stream, conf):
    run, oracle = stream(count_by_key, conf=conf), stream(count_by_key, "oracle", provider=STOCK, conf=conf)
    oracle.start()
    oracle.run(*EPOCHS)
    outputs_with_migrations(run, {1: 5, 4: 2})
    # The same after loading from the checkpoint.
    run.stop()
    run.start()
    run.run(8)
    oracle.run(8)
    assert_same_results(run, oracle)


def test_a_new_table_compiles_nothing(stream, spark):
    compilations = spark._jvm.org.apache.spark.metrics.source.CodegenMetrics.METRIC_COMPILATION_TIME()
    run = stream(count_by_key).start()
    run.run(0, 1, 2)
    controller = run.attach()
    turned = [1 - owner for owner in controller.routing().assignment]
    controller.submit(controller.plan(turned, strategy=AllAtOnce()), prepare=False)
    run.run(3)
    before = compilations.getCount()
    run.run(4)
    assert controller.history().column("epoch").to_pylist() == [4]
    assert compilations.getCount() == before


def operators(plan):
    children = plan.children()
    return [plan, *(o for i in range(children.size()) for o in operators(children.apply(i)))]


def task_bytes(run):
    """The bytes that Spark broadcasts for the tasks of a batch's stages: shuffle, and stateful stage."""
    jvm = run.spark._jvm
    conf = run.spark.sparkContext._jsc.sc().conf()
    serializer = jvm.org.apache.spark.serializer.JavaSerializer(conf).newInstance()
    anything = jvm.scala.reflect.ClassTag.AnyRef()
    plan = run.query._jsq.streamingQuery().lastExecution().executedPlan()
    (exchange,) = (o for o in operators(plan) if o.getClass().getSimpleName() == "ShuffleExchangeExec")
    shuffle = exchange.shuffleDependency()
    binaries = jvm.scala.Tuple2(shuffle.rdd(), shuffle), plan.execute()
    return [serializer.serialize(b, anything).limit() for b in binaries]


def test_a_table_takes_four_bytes_a_bin_in_the_binary_of_a_task(stream):
    sizes = {}
    for bins in (64, 32768):
        conf = {"spark.sql.streaming.stateStore.binshift.bins": str(bins)}
        run = stream(count_by_key, f"run-{bins}", conf=conf).start()
        run.run(0, 1)
        sizes[bins] = task_bytes(run)
        run.stop()
    growth = [(large - small) / (32768 - 64) for small, large in zip(*sizes.values(), strict=True)]
    # A further bit tells whether an owner is null.
    assert max(growth) < 4.2


def test_a_row_that_is_routed_wrongly_fails_the_batch_and_changes_no_state(stream, spark):
    run = stream(count_by_key).start()
    run.run(0, 1)
    state = run.state()
    # Corrupt the table from which the driver routes; executors have read theirs from the checkpoint.
    router = spark._jvm.org.apache.spark.sql.binshift.query.QueryRouters.of(run.query._jsq.streamingQuery())
    owners = router.snapshot().tables().current().get().table().assignment().unsafeArray()
    for b in range(64):
        owners[b] = 1 - owners[b]
    run.feed([{"k": "key1", "v": 1, "t": "2026-01-01 00:00:00"}])
    with pytest.raises(Exception, match="reached partition"):
        run.query.processAllAvailable()
    with pytest.raises(
        MigrationError, match=r"^a row of bin \d+ reached partition [01] of operator 0"
    ) as failed:
        run.attach()
    # The error came as the text of a task's failure.
    assert failed.value.condition == "BIN_NOT_OWNED"
    assert run.state() == state
    run.start()
    run.run(3)
    batch = {(r.k, r.n, r.total) for r in count_by_key(run.batch()).collect()}
    assert {(*key, *value) for key, value in run.state()} == batch
