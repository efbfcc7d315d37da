"""Moved bins are compared with what their old owners had committed; a row that differs ends the query."""

import contextlib

import pytest

from binshift import AllAtOnce, Batched, MigrationError, OnDemand
from harness import Fault, entries, rows, until
from local.migrations import SHIP, assert_never_migrated, finish, submit_shift
from local.queries import QUERIES
from local.settings import CHECKSUMS, IDS, JOIN_4, NEEDS_CHECKSUMS, NEEDS_JOIN_4, NO_CHANGELOG

pytestmark = pytest.mark.usefixtures("nothing_left")
AUDIT = "spark.sql.streaming.stateStore.binshift.audit"
ALL = {AUDIT: "all"}
SPLIT = {SHIP + "minBytesToSplit": "1b"}


def new(stream, name="count", conf=ALL):
    """The query of that name, and a run of it after two epochs."""
    query = QUERIES[name]
    run = stream(query.build, mode=query.mode, conf=conf).start()
    run.run(0, 1)
    return query, run


def audited(migration):
    """The results of the audits when they are over."""
    found = []

    def is_over():
        found[:] = [migration.wait(0).audit]
        return not found[0].under_way

    assert until(is_over)
    return found[0]


@pytest.mark.parametrize(
    ("name", "conf", "strategy", "prepare"),
    [
        ("count", {}, AllAtOnce(), True),
        ("count", IDS, AllAtOnce(), False),
        ("tws-jvm", IDS, OnDemand(), False),
        pytest.param("count", {}, OnDemand(), False, marks=pytest.mark.long),
        pytest.param("count", NO_CHANGELOG, Batched(16), True, marks=pytest.mark.long),
        pytest.param("session-fixed", CHECKSUMS, Batched(16), True, marks=[pytest.mark.long, NEEDS_CHECKSUMS]),
        pytest.param(
            "join-full", JOIN_4 | IDS | CHECKSUMS, AllAtOnce(), False, marks=[pytest.mark.long, NEEDS_JOIN_4]
        ),
        pytest.param("join-full", {}, OnDemand(), False, marks=pytest.mark.long),
    ],
)
def test_bins_are_what_their_old_owners_had_committed(stream, tmp_path, name, conf, strategy, prepare):
    query, run = new(stream, name, conf | ALL)
    migration = submit_shift(run, strategy, prepare=prepare)
    epoch = finish(run, migration, 2)
    run.run(epoch)
    found = audited(migration)
    assert (found.drawn, found.equal, found.dropped) == (64, 64, {})
    assert "audited 64 of 64 bins, equal" in str(migration.wait(0))
    assert_never_migrated(run, query, epoch + 1, tmp_path, **conf)


def test_bins_of_new_partitions_are_audited_and_a_sample_of_them_is_enough(stream):
    _, run = new(stream, conf={**SPLIT, AUDIT: "16"})
    migration = run.attach().rescale(4, strategy=AllAtOnce(), prepare=False)
    finish(run, migration, 2)
    found = audited(migration)
    assert (found.drawn, found.equal, found.dropped) == (16, 16, {})


@pytest.mark.parametrize(
    ("point", "strategy", "prepare"),
    [
        ("export.row", AllAtOnce(), True),
        ("export.row", OnDemand(), False),
        pytest.param("recovery.row", AllAtOnce(), True, marks=pytest.mark.long),
    ],
    ids=["copied", "on-demand", "from-checkpoint"],
)
def test_a_wrong_row_ends_the_query_before_its_next_commit(stream, point, strategy, prepare):
    query = QUERIES["count"]
    run = stream(query.build, mode=query.mode, conf=ALL).start()
    # Of so many keys, hardly one is written again, which would put its row right.
    run.run(0, 1, n=3000, keys=3000)
    migration = submit_shift(run, strategy, prepare=prepare)
    with Fault("audit.read", "block"), contextlib.ExitStack() as faults:
        if point == "recovery.row":
            faults.enter_context(Fault("switch.changes", "throw", always=True))
        with Fault(point, "damage") as fault:
            epoch = finish(run, migration, 2)
            assert fault.happened
        # Bins that come on demand are audited when all of them are there.
        run.run(epoch)
    audited(migration)
    run.feed(rows(epoch + 1))
    assert until(lambda: not run.query.isActive)
    assert not (run.checkpoint / f"commits/{epoch + 1}").exists()
    with pytest.raises(MigrationError) as raised:
        run.attach()
    assert raised.value.condition == "AUDIT_FAILED"
    assert raised.value.parameters["operator"] == 0
    assert raised.value.parameters["epoch"] == max(entries(run.checkpoint)) - 1


def test_an_audit_is_dropped_if_what_it_reads_is_gone(stream):
    _, run = new(stream)
    migration = submit_shift(run)
    with Fault("audit.read", "throw", always=True):
        epoch = finish(run, migration, 2)
        found = audited(migration)
    assert found.equal == found.under_way == 0
    assert sum(found.dropped.values()) == 64
    assert "64 not audited: what the old owner had committed cannot be read" in str(migration.wait(0))
    run.run(epoch)


@pytest.mark.parametrize(
    ("noted", "committed", "first"),
    [
        ("", "", ""),
        ("a/1=1 a/2=2 b/1=1", "a/1=1 a/2=2 b/1=1", ""),
        ("a/1=1 a/2=9 b/1=1", "a/1=1 a/2=2 b/1=1", "a/2"),
        ("a/1=1 b/1=1", "a/1=1 a/2=2 b/1=1", "a/2"),
        ("a/1=1 a/2=2 b/1=1", "a/1=1 b/1=1", "a/2"),
        ("a/1=1 a/2=2", "a/1=1", "a/2"),
        ("", "b/1=1", "b/1"),
    ],
)
def test_the_first_row_that_is_not_the_same_on_both_sides_is_named(spark, noted, committed, first):
    audits = spark._jvm.org.apache.spark.sql.execution.streaming.state.binshift.migration.TestAudits
    assert audits.firstDifference(noted, committed) == first


def test_a_sample_is_of_bins_that_moved_and_another_one_at_each_step(spark):
    audits = spark._jvm.org.apache.spark.sql.execution.streaming.state.binshift.migration.TestAudits

    def sample(epoch, n, moved=1000):
        return list(audits.sample(32768, moved, epoch, n))

    assert len(set(sample(7, 16))) == 16
    assert all(0 <= b < 1000 for b in sample(7, 16))
    assert sample(7, 16) == sample(7, 16) != sample(8, 16)
    assert set(sample(7, 16)) < set(sample(7, 32))
    assert sample(7, 16, moved=10) == sample(7, 2**31 - 1, moved=10) == list(range(10))
