"""The end of a run, store or session ends all of its parts, whatever happens to one of them."""

import os
from pathlib import Path

from binshift import AllAtOnce
from harness import Fault, end_maintenance, until
from local.migrations import begun, finish


def databases() -> set[Path]:
    """Local directories of stores; each is deleted when its database is closed."""
    # Directories that are deleted meanwhile are left out.
    folders = os.walk(os.environ["BINSHIFT_TESTS_TMP"])
    return {
        Path(root, name) for root, names, _ in folders for name in names if name.startswith("StateStoreId(")
    }


def test_a_run_that_cannot_be_ended_as_a_whole_keeps_no_other_from_beginning(stream, tmp_path):
    _, run = begun(stream, "count")
    with Fault("stage.file", "block"):
        migration = run.attach().rescale(4, strategy=AllAtOnce())
        run.run(2, 3, 4)
        assert not migration.status.is_over
        with Fault("broadcast.destroy", "throw") as fails:
            run.stop()
            assert until(lambda: fails.happened)
    assert until(lambda: str(run.query.runId) in (run.checkpoint / "binshift/ended.json").read_text())
    _, other = begun(lambda *a, **k: stream(*a, name="other", **k), "count")
    assert other.attach().routing().partitions == 2
    run.start()
    finish(run, run.attach().migration(), 5)
    assert run.attach().routing().partitions == 4


def test_what_cannot_be_closed_keeps_no_database_open(stream, spark):
    before = databases()
    _, run = begun(stream, "count")
    with Fault("stage.file", "block"):
        run.attach().rescale(4, strategy=AllAtOnce())
        run.run(2, 3, 4)
        run.stop()
        assert databases() - before
        with Fault("marker.close", "count") as closed, Fault("marker.close", "throw", always=True):
            end_maintenance(spark)
            assert closed.count > 0
    assert not databases() - before


def test_sessions_without_a_stream_are_known_to_nobody_when_they_are_gone(spark):
    listeners = spark._jvm.org.apache.spark.sql.binshift.TestListeners
    before = listeners.count(spark.sparkContext._jsc.sc())
    for _ in range(5):
        assert spark.newSession().range(3).count() == 3
    assert listeners.count(spark.sparkContext._jsc.sc()) == before
    session = spark.newSession()
    assert session.readStream.format("rate").load().isStreaming
    assert listeners.count(spark.sparkContext._jsc.sc()) == before + 1
