"""From one topic of a real broker to another one: rescaled under load, killed, started again; and the demo."""

from __future__ import annotations

import contextlib
import subprocess
import sys
from pathlib import Path

import pytest

from cluster.commands import Driver
from devtools.servers.jars import jars

pytestmark = [pytest.mark.field, pytest.mark.timeout(1800)]

SCRIPT = Path(__file__).parent / "kafka_commanded.py"
DEMO = Path(__file__).parents[1] / "small_demo.py"


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
    # Kafka's sink writes an epoch that is run again twice: no count goes back, and the last one is right.
    written = values_of(kafka.servers, "counts")
    assert all(values == sorted(values) for values in written.values())
    assert {key: values[-1] for key, values in written.items()} == dict(load.counts)


def test_the_demo_is_right_with_few_flights_that_come_through_a_broker(tmp_path):
    picture = tmp_path / "demo.png"
    command = [sys.executable, str(DEMO), "--source", "kafka", "--picture", str(picture)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, check=False)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    assert "CORRECT: the live query's state equals that of the same query in batch." in done.stdout
    assert picture.read_bytes().startswith(b"\x89PNG")
