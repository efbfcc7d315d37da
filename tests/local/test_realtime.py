"""Refusals in real-time mode, and the places where Spark compares class names; one reader, one partition."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import IllegalArgumentException, PySparkException
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

import binshift
from binshift.session import PROVIDER, PROVIDER_KEY, REAL_TIME_KEY
from cluster.realtime import ALLOWLIST_KEY, RealTime
from harness import until

pytestmark = pytest.mark.needs_spark("4.3", reason="real-time mode runs stateful queries")

Start = Callable[..., RealTime]


@pytest.fixture
def real_time(spark: Any, tmp_path: Path) -> Iterator[Start]:
    """Makes queries in sessions as `configure(real_time=True)` makes them, with one partition."""
    runs: list[RealTime] = []

    def make(operator: str = "count") -> RealTime:
        session = spark.newSession()
        session.conf.unset(PROVIDER_KEY)
        session.conf.set(REAL_TIME_KEY, "true")
        session.conf.set("spark.sql.shuffle.partitions", "1")
        session.conf.set(ALLOWLIST_KEY, "false" if operator in ("transform", "broken-text") else "true")
        run = RealTime(session, tmp_path / f"run{len(runs)}", operator)
        runs.append(run)
        return run

    yield make
    for run in runs:
        if run.query is not None:
            run.query.stop()


def failure(run: RealTime) -> str:
    run.start()
    assert until(lambda: not run.query.isActive)
    return str(run.query.exception())


def test_the_guards_of_spark_are_where_they_are_passed(real_time: Start) -> None:
    named = real_time()
    named.spark.conf.set(PROVIDER_KEY, PROVIDER)
    with pytest.raises(IllegalArgumentException, match="SQL_CONFIGURATION_NOT_SUPPORTED"):
        named.start()
    run = real_time("transform").start()
    run.epoch()
    assert run.look.setting(run.query._jsq, PROVIDER_KEY) == PROVIDER
    # If Spark comes to allow the operator that accepts binshift, its check need not be switched off any more.
    assert "AcceptingTransformWithState" in run.look.refusedBySpark(run.query._jsq)


def test_a_plan_for_more_slots_than_there_are_is_refused(real_time: Start) -> None:
    run = real_time().start()
    run.epoch()
    with pytest.raises(binshift.PlanError, match="2 partitions need 3 task slots, and 2 are there") as refused:
        run.attach().rescale(2)
    assert refused.value.condition == "TOO_FEW_SLOTS"
    assert refused.value.parameters == {"needed": 3, "present": 2}


def test_no_task_waits_for_an_executor_beside_a_query_in_real_time_mode(real_time: Start) -> None:
    run = real_time()
    context = run.spark._jsparkSession.sparkContext()
    waits = run.spark._jvm.org.apache.spark.sql.binshift.migration.LocalityWait
    holder = run.spark._jvm.java.util.UUID.randomUUID()

    def is_held() -> bool:
        return bool(context.conf().contains("spark.locality.wait.process"))

    # A query of a test before may be about to end.
    assert until(lambda: waits.hold(holder, holder, context) or is_held())
    run.start()
    run.epoch()
    assert not is_held()
    waits.hold(holder, holder, context)
    assert not is_held()
    run.query.stop()
    assert until(lambda: waits.hold(holder, holder, context) or is_held())
    waits.release(holder)
    assert not is_held()


def test_a_query_goes_on_though_its_session_asks_for_real_time_mode_no_more(real_time: Start) -> None:
    run = real_time().start()
    run.epoch()
    run.spark.conf.set(REAL_TIME_KEY, "false")
    run.epoch()
    assert run.query.isActive


def test_keys_that_change_stay_where_their_rows_come(real_time: Start) -> None:
    run = real_time("broken-text").start()
    run.feed_unread()
    run.end()
    told = json.loads((run.checkpoint / "binshift" / "changed_keys" / "0").read_text())
    assert told["columns"] == ["k"]
    run.feed_unread()
    run.end()


def test_an_autoscaler_is_refused(real_time: Start) -> None:
    run = real_time().start()
    run.epoch()
    with pytest.raises(binshift.ConfigurationError, match="is in real-time mode") as refused:
        binshift.Autoscaler(run.attach(), min_partitions=1, max_partitions=2, epoch_s=5)
    assert refused.value.condition == "REAL_TIME_UNSUPPORTED"
    assert refused.value.parameters == {"what": "an autoscaler"}


def test_what_cannot_be_done_in_real_time_mode_is_refused_by_name(real_time: Start) -> None:
    checked = real_time("transform")
    checked.spark.conf.set(ALLOWLIST_KEY, "true")
    assert "binshift cannot do transformWithState with" in failure(checked)
    old = real_time()
    old.spark.conf.set("spark.sql.streaming.stateStore.checkpointFormatVersion", "1")
    old.spark.conf.set("spark.sql.streaming.realTimeMode.dangerouslyAllowCheckpointV1.enabled", "true")
    assert "checkpointFormatVersion=1" in failure(old)


Query = Callable[[DataFrame, DataFrame], DataFrame]


def session_windows(rows: DataFrame, _: DataFrame) -> DataFrame:
    timed = rows.withColumn("t", F.col("v").cast("timestamp")).withWatermark("t", "1 minute")
    return timed.groupBy(F.session_window("t", "1 minute"), "k").count()


def united(rows: DataFrame, others: DataFrame) -> DataFrame:
    return rows.repartition(2, "k").union(others.repartition(2, "k")).groupBy("k").count()


def joined(rows: DataFrame, others: DataFrame) -> DataFrame:
    return rows.alias("l").join(others.alias("r"), F.expr("l.k = r.k")).select("l.k", "r.v")


@pytest.mark.parametrize(
    ("query", "mode", "says"),
    [
        (lambda rows, _: rows.groupBy("k").count(), "complete", "OUTPUT_MODE_NOT_SUPPORTED"),
        (lambda rows, _: rows.dropDuplicates(["k"]), "append", "OUTPUT_MODE_NOT_SUPPORTED"),
        (session_windows, "update", "not supported for session window"),
        (joined, "update", "StreamingSymmetricHashJoinExec"),
        (united, "update", "a union of branches that you partition by the same keys"),
    ],
    ids=["complete", "append", "session", "join", "union"],
)
def test_what_the_mode_does_not_have_is_refused_before_it_writes(
    real_time: Start, query: Query, mode: str, says: str
) -> None:
    run = real_time()
    rows, others = (DataFrame(run.jvm.rows(i), run.spark) for i in range(2))
    writer = query(rows, others).writeStream.outputMode(mode).format("console")
    assert says in refusal(run, writer)


def test_foreach_batch_is_not_of_the_mode(real_time: Start) -> None:
    run = real_time()
    rows = DataFrame(run.jvm.rows(0), run.spark).groupBy("k").count()
    writer = rows.writeStream.outputMode("update").foreachBatch(lambda batch, epoch: None)
    assert "SINK" in refusal(run, writer)


def refusal(run: RealTime, writer: Any) -> str:
    """Why a query does not run, of which the checkpoint has got nothing of binshift's."""
    writer = writer.option("checkpointLocation", str(run.checkpoint)).trigger(realTime="5 seconds")
    try:
        query = writer.start()
    except PySparkException as error:
        return str(error)
    try:
        assert until(lambda: not query.isActive), "it runs"
        assert not (run.checkpoint / "binshift").exists()
        return str(query.exception())
    finally:
        query.stop()


def test_a_checkpoint_of_the_mode_needs_the_setting_and_says_so(real_time: Start) -> None:
    run = real_time().start()
    run.epoch()
    run.query.stop()
    run.spark.conf.unset(REAL_TIME_KEY)
    run.query = None
    assert "REAL_TIME_NOT_ENABLED" in failure(run)


def test_queries_with_other_triggers_run_on_binshift_as_well(real_time: Start, tmp_path: Path) -> None:
    spark = real_time().spark
    rows = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 5).load()
    counts = rows.groupBy((F.col("value") % 3).alias("k")).count()
    writer = counts.writeStream.outputMode("update").format("noop").trigger(availableNow=True)
    query = writer.option("checkpointLocation", str(tmp_path / "other")).start()
    assert until((tmp_path / "other/binshift/layout.json").exists)
    query.stop()
