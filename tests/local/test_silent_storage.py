"""A checkpoint that doesn't answer holds up the query that it belongs to, and no other one of the driver."""

import re
import threading

import pytest

from binshift import AllAtOnce
from harness import until
from local.queries import count_by_key

OTHERS = 10
ROW = {"k": "key1", "v": 1, "t": "2026-01-01 00:00:00"}

#: Locks of one query alone: of its stream and its logs, its router, its routing and its stores.
OWN = re.compile(
    r"\.(QueryRouter|EpochRouting|OncePerRun\$Entry|ShipmentCoordinator|RoutingEntries|MicroBatchExecution"
    r"|StreamExecution|SourceFiles|RetainedVersions|SourceFollower|QuickReplay|BinnedRocksDB\S*|RocksDB"
    r"|RocksDBFileManager|OffsetSeqLog|CommitLog)(\$\S*)?:"
    r"|ReentrantLock|ThreadPoolExecutor\$Worker|java\.lang\.Object:|UncaughtExceptionHandler"
)


@pytest.fixture
def files(spark):
    spark.sparkContext._jsc.hadoopConfiguration().set("fs.silent.impl", "binshift.tests.TestSilentFiles")
    silent = spark._jvm.binshift.tests.TestSilentFiles
    silent.arm()
    yield silent
    silent.disarm()


def two_runs(run, ended, failures):
    """With a migration in the first one."""
    try:
        for first in (0, 2):
            run.start()
            run.run(first)
            if first == 0:
                run.attach().rescale(4, strategy=AllAtOnce(), prepare=False)
            run.run(first + 1)
            run.query.stop()
    except Exception as e:
        failures.append(e)
    finally:
        ended.set()


def go_on(runs):
    """Whether each of them commits an epoch within a time that no epoch takes here."""
    before = [committed(run) for run in runs]
    for run in runs:
        run.feed([ROW])
    return until(lambda: all(committed(run) > b for run, b in zip(runs, before, strict=True)), 60)


def committed(run):
    return max(int(f.name) for f in (run.checkpoint / "commits").iterdir() if f.name.isdigit())


@pytest.mark.long
@pytest.mark.timeout(600)
def test_each_request_of_a_query_may_hang_and_ten_others_go_on(stream, files):
    others = [stream(count_by_key, f"other{i}").start() for i in range(OTHERS)]
    for other in others:
        other.feed([ROW])
    for other in others:
        other.query.processAllAvailable()
    silent = stream(count_by_key, "silent")
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
    assert len(places) > 10, places
    # A lock that is shared holds up whoever needs it, if none of these did.
    assert [held for held in files.held() if not OWN.search(held)] == []


def test_a_recovery_does_not_wait_for_threads_that_read_for_others(spark):
    ahead = spark._jvm.org.apache.spark.sql.execution.streaming.state.binshift.recovery.TestAhead
    found = ahead.besideOthersThatHang()
    read, released = (found.apply(i).mkString(",") for i in range(2))
    assert read == ",".join(map(str, range(10)))
    assert released == ",".join("1" * 8)
