"""From one topic of a real broker to another one: rescaled under load, killed, started again; and the demo."""

from __future__ import annotations

import contextlib
from pathlib import Path

import pytest

from cluster.commands import Driver
from devtools.servers.jars import jars
from small_demo import assert_right, run

pytestmark = [pytest.mark.field, pytest.mark.timeout(1800)]

SCRIPT = Path(__file__).parent / "kafka_commanded.py"
REAL_TIME_SCRIPT = Path(__file__).parent / "kafka_realtime.py"


def test_a_query_between_topics_is_rescaled_under_load_and_killed_and_counts_what_was_committed(
    kafka, tmp_path, jvm_jar
):
    from field.load import Load, values_of

    kafka.create("events", 4)
    kafka.create("counts", 2)
    settings = {
        "spark.jars": ",".join(map(str, [jvm_jar, *jars("spark-kafka", for_spark=True)])),
        "spark.binshift.tests.kafka": kafka.servers,
    }

    def start() -> Driver:
        return Driver(tmp_path / "run", "local[2,3]", settings, script=SCRIPT)

    with contextlib.ExitStack() as drivers:
        with Load(kafka.servers, "events") as load:
            query = drivers.enter_context(start())
            query("epochs", 2)
            query("rescale", 5, 16, True)
            query("finish")
            query("rescale", 3, 32, False)
            query("finish")
            query("rescale", 6, 8, True)
            query("epochs", 2)
            query.kill()
            query = drivers.enter_context(start())
            query("finish")
            query("epochs", 2)
        report = query("report")
        query.end()
    assert dict(report["state"]) == dict(load.counts)
    assert report["partitions"] == 6
    # Kafka's sink writes a repeated epoch twice, so counts may repeat; none decreases, and the last is right.
    written = values_of(kafka.servers, "counts")
    assert all(values == sorted(values) for values in written.values())
    assert {key: values[-1] for key, values in written.items()} == dict(load.counts)


@pytest.mark.needs_spark("4.3", reason="real-time mode runs stateful queries")
def test_a_query_in_real_time_mode_is_rescaled_while_rows_flow_and_killed_and_counts_what_was_committed(
    kafka, tmp_path, jvm_jar
):
    """The connector is that of Spark 4.2, the newest on Maven."""
    from field.load import Load, values_of

    kafka.create("flow", 2)
    kafka.create("flow-counts", 2)
    settings = {
        "spark.jars": ",".join(map(str, [jvm_jar, *jars("spark-kafka", for_spark=True)])),
        "spark.binshift.tests.kafka": kafka.servers,
        "spark.binshift.tests.topics": "flow flow-counts",
    }

    def start() -> Driver:
        # Two reading tasks and up to six state tasks run at the same time.
        return Driver(tmp_path / "run", "local[8,1]", settings, script=REAL_TIME_SCRIPT)

    with contextlib.ExitStack() as drivers:
        with Load(kafka.servers, "flow") as load:
            query = drivers.enter_context(start())
            query("epochs", 1)
            query("rescale", 5, 32, True)
            query("finish")
            query("rescale", 3, 64, False)
            query("finish")
            query("rescale", 6, 64, False)
            query("epochs", 1)
            query.kill()
            query = drivers.enter_context(start())
            query("finish")
            query("epochs", 1)
        assert query("partitions") == 6
        report = query("report")
        query.end()
    assert dict(report["state"]) == dict(load.counts)
    # A repeated batch writes to Kafka again, with the counts of its attempt.
    written = values_of(kafka.servers, "flow-counts")
    assert {key: values[-1] for key, values in written.items()} == dict(load.counts)


def test_the_demo_is_right_with_few_flights_that_come_through_a_broker(tmp_path, jvm_jar):
    assert_right(run("--source", "kafka", folder=tmp_path))
