"""A newcomer's first problems: a query that has not begun, keeps no state or has died; a misspelt setting."""

import threading

import pytest
from pyspark.errors import StreamingQueryException

import binshift
from binshift import ConfigurationError, MigrationError, MigrationTimeout
from binshift.session import BINS_KEY
from harness import until
from local.queries import count_by_key

PREFIX = BINS_KEY.removesuffix("bins")


def test_attach_waits_for_the_first_epoch_and_says_what_a_query_died_of(stream):
    run = stream(count_by_key).start()
    with pytest.raises(MigrationTimeout, match=r"no epoch in 0.3 s; feed it data") as refused:
        binshift.attach(run.query, timeout=0.3)
    assert (refused.value.condition, refused.value.timeout) == ("NO_EPOCH_COMMITTED", 0.3)
    with pytest.raises(MigrationError, match=r"not planned its first epoch.*attach\(query, timeout=60\) waits"):
        run.attach().rescale(4)
    feeding = threading.Timer(0.3, run.run, [0])
    feeding.start()
    controller = binshift.attach(run.query, timeout=120)
    assert controller.stats().num_rows == 64
    feeding.join()
    run.stop()

    failing = stream(count_by_key, "failing")
    failing.feed([{"k": "a", "v": 1, "t": "2026-01-01"}])
    failing._keep = lambda batch, epoch: 1 / 0
    failing.start()
    with pytest.raises(MigrationError, match=r"has ended with an error: .*; start it again") as ended:
        binshift.attach(failing.query, timeout=120)
    assert ended.value.condition == "QUERY_ENDED"
    assert isinstance(ended.value.__cause__, StreamingQueryException)
    assert "ZeroDivisionError" in str(ended.value.__cause__)


def test_a_query_is_found_by_its_name_from_a_thread_without_a_session_of_its_own(stream, spark):
    run = stream(count_by_key)
    run.spark = spark
    with_name = run.start(name="orders")
    found = []
    thread = threading.Thread(target=lambda: found.append(binshift.attach("orders")))
    thread.start()
    thread.join()
    assert [c.query.runId for c in found] == [with_name.query.runId]


@pytest.mark.parametrize("is_inside", [False, True])
def test_a_query_without_state_is_told_so_instead_of_to_wait(stream, is_inside):
    run = stream(lambda rows: rows.select("k", "v"), mode="append")
    if is_inside:
        run._keep = lambda batch, epoch: batch.groupBy("k").count().collect()
    else:
        run.start = lambda: setattr(
            run, "query", run.build(run.source).writeStream.format("noop")
            .option("checkpointLocation", str(run.checkpoint)).start()
        )  # fmt: skip
    run.start()
    controller = run.attach()
    run.run(0)
    assert until(lambda: run.query.lastProgress is not None)
    advice = "aggregate the stream before writeStream" if is_inside else "give it an aggregation"
    acts = (
        lambda: binshift.attach(run.query, timeout=120),
        controller.routing, controller.stats, controller.skew, controller.hot_keys,
        lambda: controller.plan(4), lambda: controller.rescale(4), controller.rebalance,
        lambda: controller.drain("1"),
        lambda: run.spark.sql(f"CALL binshift.system.rescale('{run.query.id}', 4)"),
    )  # fmt: skip
    for act in acts:
        with pytest.raises(Exception, match=f"no stateful operator.*{advice}") as refused:
            act()
        if isinstance(refused.value, binshift.BinshiftError):
            assert refused.value.condition == "NO_STATEFUL_OPERATOR"


MISSPELT = [
    (PREFIX + "bin", BINS_KEY),
    (PREFIX + "Bins", BINS_KEY),
    (PREFIX + "maxBytesPerSecond", PREFIX + "ship.maxBytesPerSecond"),
    (PREFIX + "standby.intervall", PREFIX + "standbys.interval"),
    (PREFIX + "ship.maxEpochToWait", PREFIX + "ship.maxEpochsToWait"),
    (PREFIX.replace("stateStore", "statestore") + "bins", BINS_KEY),
    ("spark.binshift.requests.Enabled", PREFIX + "requests.enabled"),
]


def test_a_trace_that_executors_have_not_heard_of_ends_the_start(stream, tmp_path):
    run = stream(count_by_key)
    run.spark.conf.set(PREFIX + "trace", str(tmp_path))
    run.feed([{"k": "a", "v": 1, "t": "2026-01-01"}])
    run.start()
    with pytest.raises(StreamingQueryException, match=r"INVALID_VALUE.*before the session is made"):
        run.query.awaitTermination(120)
    assert not (run.checkpoint / "binshift").exists()


def test_a_misspelt_setting_ends_the_start_and_names_the_nearest_before_anything_is_written(stream):
    run = stream(count_by_key)
    for key, nearest in MISSPELT:
        run.spark.conf.set(key, "12")
        run.feed([{"k": "a", "v": 1, "t": "2026-01-01"}])
        run.start()
        with pytest.raises(StreamingQueryException, match="UNKNOWN_SETTING"):
            run.query.awaitTermination(120)
        with pytest.raises(ConfigurationError) as refused:
            binshift.attach(run.query)
        assert refused.value.parameters == {"name": key, "nearest": nearest}
        assert f"{key} is unknown to binshift" in str(refused.value)
        assert not (run.checkpoint / "binshift").exists()
        assert not list(run.checkpoint.glob("state/0/[0-9]*/*.delta"))
        run.spark.conf.unset(key)
    run.spark.conf.set(BINS_KEY, "12")
    run.start().query.processAllAvailable()
    assert run.attach().routing().bins == 12


def test_a_misspelt_setting_of_the_builder_is_refused_before_there_is_a_session(spark):
    from pyspark.sql import SparkSession

    builder = binshift.configure(SparkSession.Builder().config(PREFIX + "bin", "12"))
    with pytest.raises(ConfigurationError, match=f"the nearest is {BINS_KEY}") as refused:
        builder.getOrCreate()
    assert refused.value.condition == "UNKNOWN_SETTING"
    assert spark.conf.get(PREFIX + "bin", None) is None


def test_attach_before_configure_advises_what_is_enough_in_a_session_that_lives(stream, monkeypatch):
    run = stream(count_by_key).start()
    monkeypatch.setattr("binshift.driver._gateway", lambda: None)
    with pytest.raises(
        ConfigurationError, match=r"configure\(SparkSession.builder\).getOrCreate\(\)"
    ) as refused:
        run.attach()
    assert refused.value.condition == "SESSION_WITHOUT_BINSHIFT"
    assert "anew" not in str(refused.value)
