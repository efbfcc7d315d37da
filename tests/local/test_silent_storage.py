"""A checkpoint that doesn't answer holds up the query that it belongs to, and no other one of the driver."""

import re
import threading
from concurrent.futures import ThreadPoolExecutor
from urllib.request import urlopen

import pytest

from binshift import AllAtOnce
from harness import until
from local.queries import count_by_key

OTHERS = 10
ROW = {"k": "key1", "v": 1, "t": "2026-01-01 00:00:00"}

#: Locks that queries share: Spark's of all stores, Scala's objects, and maps but those of a run's routing.
SHARED = re.compile(
    r"scala\.collection\.mutable|\S+\$: |(?!.*EpochRouting)java\.util\.concurrent\.ConcurrentHashMap"
)


@pytest.fixture
def files(spark):
    spark.sparkContext._jsc.hadoopConfiguration().set("fs.silent.impl", "binshift.tests.TestSilentFiles")
    silent = spark._jvm.binshift.tests.TestSilentFiles
    silent.arm()
    yield silent
    silent.disarm()


def two_runs(run, ended, failures):
    """Runs the query twice; the first run accepts a migration, and the second one finds it."""
    try:
        for first in (0, 2):
            run.start()
            run.run(first)
            if first == 0:
                run.attach().rescale(2, strategy=AllAtOnce(), start_epoch=1000, prepare=False)
            run.run(first + 1)
            run.query.stop()
    except Exception as e:
        failures.append(e)
    finally:
        ended.set()


def go_on(runs):
    """True if each of them commits an epoch within a time that no epoch takes here."""
    before = [committed(run) for run in runs]
    for run in runs:
        run.feed([ROW])
    return until(lambda: all(committed(run) > b for run, b in zip(runs, before, strict=True)), 60)


def committed(run):
    return max(int(f.name) for f in (run.checkpoint / "commits").iterdir() if f.name.isdigit())


def rows_of_all(table, spark):
    """The rows of a system table by the names of their queries, whose reading waits for nobody."""
    asked = spark.newSession().sql(f"SELECT * FROM binshift.system.{table}")
    with ThreadPoolExecutor(1) as thread:
        rows = thread.submit(asked.collect).result(timeout=60)
    return {name: [row for row in rows if row.query == name] for name in ("silent", "other")}


def test_what_shows_all_queries_does_not_wait_for_one_that_is_silent(stream, spark, files):
    files.disarm()
    other = stream(count_by_key, "other").start(name="other")
    other.run(0, 1)
    silent = stream(count_by_key, "silent", conf={"spark.sql.shuffle.partitions": "1"})
    silent.checkpoint = f"silent://{silent.checkpoint}"
    silent.start(name="silent").run(0)
    assert all(len(rows) == 1 for rows in rows_of_all("queries", spark).values())
    silent.query.stop()
    silent.feed([ROW])
    files.arm()
    # The start waits as well.
    thread = threading.Thread(target=silent.start, args=("silent",))
    thread.start()
    try:
        # The driver holds the lock of the query's routing there.
        while until(lambda: files.place() is not None) and "QueryRouter.enter" not in files.place():
            files.goOn()
        for table in ("queries", "routing", "stats", "history", "migrations"):
            rows = rows_of_all(table, spark)
            assert bool(rows["other"]) == (table in ("queries", "routing", "stats"))
            if table == "queries":
                (row,) = rows["silent"]
                assert (row.epoch, row.bins) == (None, None)
                assert "has not answered for 3 s" in row.unanswered
                assert rows["other"][0].unanswered is None
            else:
                assert rows["silent"] == []
        page = urlopen(f"{spark.sparkContext.uiWebUrl}/bins/", timeout=60).read().decode()
        assert "64 bins in 2 partitions" in page
    finally:
        files.disarm()
        thread.join(60)
    silent.query.processAllAvailable()
    assert until(lambda: rows_of_all("queries", spark)["silent"][0].unanswered is None)


@pytest.mark.long
@pytest.mark.timeout(600)
def test_each_request_of_a_query_may_hang_and_ten_others_go_on(stream, files):
    others = [stream(count_by_key, f"other{i}").start() for i in range(OTHERS)]
    for other in others:
        other.feed([ROW])
    for other in others:
        other.query.processAllAvailable()
    # Its tasks take one core at most, as they hang where Spark's provider would hang as well.
    silent = stream(count_by_key, "silent", conf={"spark.sql.shuffle.partitions": "1"})
    silent.checkpoint = f"silent://{silent.checkpoint}"
    ended, failures, places = threading.Event(), [], []
    thread = threading.Thread(target=two_runs, args=(silent, ended, failures))
    thread.start()
    try:
        while until(lambda: ended.is_set() or files.place() is not None, 120) and not ended.is_set():
            places.append(files.place())
            assert go_on(others), places[-1]
            files.goOn()
    finally:
        files.disarm()
        thread.join(120)
    assert not failures
    assert len(places) > 8, places
    # A lock that is shared holds up whoever needs it, if none of these did.
    assert [held for held in files.held() if SHARED.match(held)] == []


def test_a_recovery_does_not_wait_for_threads_that_read_for_others(spark):
    ahead = spark._jvm.org.apache.spark.sql.execution.streaming.state.binshift.recovery.TestAhead
    found = ahead.besideOthersThatHang()
    read, released = (found.apply(i).mkString(",") for i in range(2))
    assert read == ",".join(map(str, range(10)))
    assert released == ",".join("1" * 8)
