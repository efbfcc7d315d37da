"""Grouping keys of all types, with all uses of a batch: Spark shows, analyses and compares a routed plan."""

import json
from urllib.request import urlopen

import pytest
from pyspark.sql import Observation
from pyspark.sql import functions as F

from binshift import AllAtOnce
from binshift.session import PROVIDER
from harness import STOCK, assert_same_results

#: Keys of all types, from a text `s` and a number `v`.
KEYS = {
    "map": "map(s, v % 2, 'n', 1L)",
    "map in a struct": "named_struct('m', map(s, named_struct('a', array(v % 2))), 'v', v % 3)",
    "map in an array": "array(map(s, date '2026-01-01'))",
    "map of maps": "map('a', map(s, v % 2))",
    "collated text": "collate(if(v % 2 = 0, upper(s), s), 'UTF8_BINARY')",
    "calendar interval": "make_interval(v % 2, v % 3, 0, length(s))",
    "day-time interval": "make_dt_interval(0, 0, v % 3, length(s))",
    "year-month interval": "if(v % 5 = 0, null, make_ym_interval(v % 3, length(s)))",
    "floats": "if(v % 4 = 0, double('NaN'), if(v % 4 = 1, -0D, 0D))",
    "rest": "named_struct('b', cast(s as binary), 'd', cast(v % 3 as decimal(30, 2)), "
    "'n', if(v % 2 = 0, null, true), 't', timestamp_ntz '2026-01-01 00:00:00')",
}


def by(*names):
    def build(df):
        keyed = df.withColumn("s", F.expr("concat('s', v % 7)"))
        counted = keyed.groupBy(*(F.expr(KEYS[n]).alias(n) for n in names)).agg(F.count("*").alias("n"))
        # Python has no such intervals, and NaN never equals NaN there.
        as_text = [n for n in names if n in ("calendar interval", "year-month interval", "floats")]
        return counted.withColumns({n: F.col(n).cast("string") for n in as_text})

    return build


def distinct_intervals(df):
    intervals = df.withColumn("i", F.expr("make_interval(v % 2, v % 3, 0, length(k), v % 5)"))
    return intervals.dropDuplicates(["i"]).select(F.col("i").cast("string"))


def moved(stream, build, **kwargs):
    """A run whose bins move, and a run on Spark's provider."""
    run, oracle = stream(build, **kwargs), stream(build, "oracle", provider=STOCK, **kwargs)
    for query in (run, oracle):
        query.start()
    for epoch in range(5):
        for query in (run, oracle):
            query.run(epoch)
        if epoch in (0, 2):
            run.attach().rescale({0: 5, 2: 3}[epoch], strategy=AllAtOnce(), prepare=False)
    assert run.attach().history().num_rows == 2
    return run, oracle


def test_a_key_may_hold_whatever_spark_groups_by(stream):
    run, oracle = moved(stream, by(*KEYS))
    # Python can't read such intervals from the state.
    assert_same_results(run, oracle, state=())
    assert any(run.outputs.values())


def test_duplicates_may_be_calendar_intervals(stream):
    run, oracle = moved(stream, distinct_intervals, mode="append")
    assert_same_results(run, oracle, state=())
    assert any(run.outputs.values())


def used_in_all_ways(batch, epoch):
    """Uses a batch as users do, in all ways in which Spark treats a plan; returns the results."""
    names = [c for c in batch.columns if c != "n"]
    assert "pmod" not in batch._jdf.queryExecution().toString()
    cached = batch.cache()
    observed = Observation(f"of {epoch}")
    found = [
        # Adaptive execution plans above the cached batch, and above the stateful stage itself.
        cached.observe(observed, F.count("*").alias("rows")).collect(),
        batch.join(cached.select(names[0], F.col("n").alias("m")), names[0]).collect(),
        batch.groupBy(*names).agg(F.sum("n").alias("n")).collect(),
        batch.select(F.xxhash64(F.to_json(F.struct(*names))).alias("h"), "n").orderBy("h").collect(),
        batch.union(cached).groupBy(*names).count().collect(),
        batch.repartition(3, names[0]).collect(),
    ]
    cached.unpersist()
    return [sorted(repr(r) for r in rows) for rows in found] + [observed.get]


@pytest.mark.long
def test_a_batch_may_be_used_in_all_ways(stream):
    kept = {}

    def used(run, name):
        def keep(batch, epoch):
            kept.setdefault(name, {})[epoch] = used_in_all_ways(batch, epoch)

        run._keep = keep
        return run

    def build(df):
        return by("rest", "map in a struct")(df)

    runs = []
    for name, provider in (("run", PROVIDER), ("oracle", STOCK)):
        run = used(stream(build, name, provider=provider), name).start()
        for epoch in range(3):
            run.run(epoch)
            if provider == PROVIDER and epoch == 0:
                run.attach().rescale(5, strategy=AllAtOnce(), prepare=False)
        runs.append(run)
    assert runs[0].attach().history().num_rows == 1
    assert kept["run"] == kept["oracle"]


@pytest.mark.long
@pytest.mark.parametrize("sink", ["memory", "console", "noop", "foreach"])
def test_each_sink_takes_such_rows(stream, sink):
    kept = []
    for provider in (PROVIDER, STOCK):
        run = stream(by("map", "map in an array"), provider.rsplit(".")[-1], provider=provider)
        writer = run.build(run.source).writeStream.outputMode("update")
        if sink == "memory":
            writer = writer.format(sink).queryName("sunk")
        else:
            writer = writer.foreach(str) if sink == "foreach" else writer.format(sink)
            writer = writer.option("checkpointLocation", str(run.checkpoint))
        run.query = writer.start()
        run.run(0)
        if provider == PROVIDER:
            run.attach().rescale(4, strategy=AllAtOnce(), prepare=False)
        run.run(1, 2)
        assert "pmod" not in run.query._jsq.explainInternal(True)
        if provider == PROVIDER:
            assert run.attach().history().num_rows == 1
        kept.append(run.spark.table("sunk").collect() if sink == "memory" else run.state())
        run.stop()
    mine, expected = (sorted(map(repr, rows)) for rows in kept)
    assert mine == expected
    assert mine


def test_what_watches_queries_sees_a_routed_plan_like_any_other(stream, spark):
    """Spark's page of SQL, its REST API, and a listener of executions."""
    name = "watched"
    run = stream(by("map", "map in a struct"))
    heard = spark._jvm.binshift.tests.TestExecutions()
    run.spark._jsparkSession.listenerManager().register(heard)
    run.start(name)
    run.run(0)
    run.attach().rescale(4, strategy=AllAtOnce(), prepare=False)
    run.run(1, 2)
    assert run.attach().history().num_rows == 1
    run.stop()
    base, app = spark.sparkContext.uiWebUrl, spark.sparkContext.applicationId
    with urlopen(f"{base}/api/v1/applications/{app}/sql?details=true&planDescription=true&length=100000") as f:
        shown = [e for e in json.load(f) if str(run.query.runId) in e["description"]]
    plans = [e for e in shown if "StateStoreSave" in e["planDescription"]]
    assert len(plans) >= 3
    for execution in plans:
        assert (execution["status"], execution["failedJobIds"]) == ("COMPLETED", [])
        assert "pmod" not in execution["planDescription"]
        with urlopen(f"{base}/SQL/execution/?id={execution['id']}") as f:
            assert "StateStoreSave" in f.read().decode()
    with urlopen(f"{base}/SQL/") as f:
        assert f.status == 200
    assert list(heard.failures()) == []
    # It hears of the sink's executions, whose input has the partitioning of the routed plan.
    assert len(heard.plans()) >= 3


#: Types that Spark itself refuses as keys of a streaming aggregation, with binshift as without.
REFUSED = {
    "variant": "parse_json(concat('[', v % 3, ']'))",
    "variant in a struct": "named_struct('j', parse_json('1'))",
    "variant in an array": "array(parse_json('1'))",
    "variant in a map": "map(s, parse_json('1'))",
    "text of another collation": "collate(if(v % 2 = 0, upper(s), s), 'UNICODE_CI')",
    "such text in a struct": "named_struct('s', collate(s, 'UTF8_LCASE'))",
}


@pytest.mark.parametrize("kind", REFUSED)
def test_what_is_no_key_here_is_none_for_spark(stream, kind):
    def build(df):
        keyed = df.withColumn("s", F.expr("concat('s', v % 7)"))
        return keyed.groupBy(F.expr(REFUSED[kind]).alias("key")).agg(F.count("*").alias("n"))

    condition = "STATE_STORE_UNSUPPORTED_OPERATION_BINARY_INEQUALITY" if "text" in kind else "NOT_ORDERABLE"
    for provider in (PROVIDER, STOCK):
        run = stream(build, provider.rsplit(".")[-1], provider=provider)
        with pytest.raises(Exception, match=condition):
            run.start().run(0)
