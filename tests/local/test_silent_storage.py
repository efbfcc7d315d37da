"""A checkpoint that doesn't answer holds up the query that it belongs to, and no other one of the driver."""

import itertools
import re
import threading
import time
import traceback
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace
from urllib.request import urlopen

import pytest

from binshift import Batched, OnDemand
from harness import StreamRun, lose, until
from local.mailbox import Mailbox
from local.queries import count_by_key
from local.settings import IDS, MIN_DELTAS, STORE

OTHERS = 10
#: Far longer than anything takes while each request hangs for some seconds.
LONG_S = 600
KEPT_ENTRIES = STORE + "binshift.routing.minEntriesToRetain"
#: What the silent query's life has to come to, so that its requests from there are seen to hang.
REACHED = (
    # The start of a run, and that of one whose first epoch runs again.
    "QueryObserver.onQueryStarted",
    "OfflineRepartition$.undo",
    "QueryRouters$.of",
    "FirstEpoch.look",
    "LostState.delete",
    # A migration with copies, and one on demand.
    "StepScheduler.submit",
    "SourceCheck.look",
    "SourceFollower.run",
    "StepScheduler.finishIfDone",
    # Stores: loading, with bins that moved after the snapshot, and maintenance.
    "BinReplay",
    "BinnedStateStoreProvider.getReadStore",
    "doSnapshotMaintenance",
    "OldVersions.deleteOldVersions",
    # What the driver does beside the stream's thread.
    "RemoteRequests.serve",
    "RetiredPartitions.clean",
    "RoutingPruning.prune",
)
#: Under format 2, names of files have ids, so commits need not read which files there are.
REACHED_IN_FORMAT_1 = ("OrderPart.onCommit", "BinnedStateStore.commit")
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


def life(run, local, ended, failures):
    """Three runs with all that asks the checkpoint: copies, bins on demand, recovery, requests, and cleanup.

    At most one task waits for bins, because the other queries need the second core.
    """
    feeds = itertools.count()
    commits, state, routing = (local.checkpoint / d for d in ("commits", "state/0", "binshift/routing"))

    def epochs_until(condition):
        """Runs an epoch per second, as work in the background may hang meanwhile."""
        deadline = time.monotonic() + LONG_S
        while not until(condition, 1):
            assert time.monotonic() < deadline, run.query.lastProgress
            run.run(next(feeds))

    try:
        run.start()
        run.run(next(feeds), next(feeds))
        growing = run.attach().rescale(2, strategy=Batched(8))
        epochs_until(lambda: growing.status.is_over)
        run.query.stop()
        # The first epoch runs again, and bins have moved since the newest snapshots.
        lose(commits / str(committed(local)))
        run.start()
        run.query.processAllAvailable()
        mailbox = Mailbox(local)
        asked = mailbox.ask("status")
        # The request goes after the answer is there, and what deletes it may hang as well.
        assert until((mailbox.answers / f"{asked}.json").exists, LONG_S)
        assert until(lambda: not (mailbox.requests / f"{asked}.json").exists(), LONG_S)
        assert mailbox.result(asked)["routing"]["partitions"] == 2
        shrinking = run.attach().rescale(1, strategy=OnDemand(), prepare=False)
        epochs_until(lambda: shrinking.status.is_over)
        # The files of the retired partition, and entries that no epoch needs any more, are deleted.
        epochs_until(lambda: not (state / "1").exists() and min(map(epoch_of, routing.glob("[0-9]*"))) > 0)
        run.query.stop()
        run.start()
        run.run(next(feeds))
        run.query.stop()
    except Exception:
        failures.append(traceback.format_exc())
    finally:
        ended.set()


def epoch_of(entry):
    return int(entry.name.split("-")[0])


class Unkept(StreamRun):
    """A query whose results nobody keeps, which makes its epochs short."""

    def start(self, name=None, **trigger):
        assert not name
        assert not trigger
        writer = self.build(self.source).writeStream.outputMode(self.mode).format("noop")
        self.query = writer.option("checkpointLocation", str(self.checkpoint)).start()
        return self


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


@pytest.mark.long
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
            elif table == "routing":
                # The driver has the routing table in memory, and gives it without that lock.
                assert [row.epoch for row in rows["silent"]] == [0] * 64
            else:
                assert rows["silent"] == []
        page = urlopen(f"{spark.sparkContext.uiWebUrl}/bins/", timeout=60).read().decode()
        assert "64 bins in 2 partitions" in page
    finally:
        files.disarm()
        thread.join(60)
    silent.query.processAllAvailable()
    assert until(lambda: rows_of_all("queries", spark)["silent"][0].unanswered is None)


@pytest.mark.matrix
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("conf", [{}, IDS], ids=["format-1", "format-2"])
def test_each_request_of_a_query_may_hang_and_ten_others_go_on(stream, files, conf):
    one = {"spark.sql.shuffle.partitions": "1"}
    others = [stream(count_by_key, f"other{i}", Unkept, conf=one).start() for i in range(OTHERS)]
    for other in others:
        other.feed([ROW])
    for other in others:
        other.query.processAllAvailable()
    few = {MIN_DELTAS: "3", "spark.sql.streaming.minBatchesToRetain": "2", KEPT_ENTRIES: "1"}
    silent = stream(count_by_key, "silent", conf=one | few | conf)
    local = SimpleNamespace(checkpoint=silent.checkpoint)
    silent.checkpoint = f"silent://{silent.checkpoint}"
    ended, failures, places = threading.Event(), [], []
    thread = threading.Thread(target=life, args=(silent, local, ended, failures))
    thread.start()
    try:
        while until(lambda: ended.is_set() or files.place() is not None, 120) and not ended.is_set():
            places.append(files.place())
            # One of them starts meanwhile, as a router is made while a query starts.
            again = others[len(places) % OTHERS]
            again.query.stop()
            again.start()
            assert go_on(others), places[-1]
            files.goOn()
    finally:
        files.disarm()
        thread.join(120)
    assert failures == []
    met = "\n".join([*places, *files.held()])
    reached = REACHED if conf else REACHED + REACHED_IN_FORMAT_1
    assert [name for name in reached if name not in met] == []
    # A lock that is shared holds up whoever needs it, if none of these did.
    assert [held for held in files.held() if SHARED.match(held)] == []


def test_a_recovery_does_not_wait_for_threads_that_read_for_others(spark):
    ahead = spark._jvm.org.apache.spark.sql.execution.streaming.state.binshift.recovery.TestAhead
    found = ahead.besideOthersThatHang()
    read, released = (found.apply(i).mkString(",") for i in range(2))
    assert read == ",".join(map(str, range(10)))
    assert released == ",".join("1" * 8)
