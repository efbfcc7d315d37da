"""Keys that change on the way to the state: the query runs as on Spark's provider, and its bins can't move."""

import json
from functools import partial

import pytest

from binshift import AllAtOnce, MigrationState, UnsupportedOperatorError, convert
from binshift.session import PROVIDER, PROVIDER_KEY
from harness import STOCK, assert_same_results, until
from local.processors import counting_by_number
from local.queries import QUERIES, in_jvm

STATE = ({"stateVarName": "n"}, {"stateVarName": "seen"})


def batch(epoch, has_null, n=30):
    """Numbers from zero on; a negative number changes the other keys of its batch in pandas."""
    minute = f"2026-01-01 00:{2 * epoch:02}:00"
    values = [*range(n), *([-1, -2] if has_null else [])]
    return [{"k": f"k{v}", "v": v, "t": minute} for v in values]


def feed(epoch, has_null, *runs):
    for run in runs:
        run.feed(batch(epoch, has_null))
        run.query.processAllAvailable()


def pair(stream, build, **kwargs):
    return stream(build, **kwargs).start(), stream(build, "oracle", provider=STOCK, **kwargs).start()


def goes_on_with_sparks_provider(stream, run, oracle):
    """A converted checkpoint has its state in the partitions where the rows arrive."""
    run.stop()
    with pytest.raises(UnsupportedOperatorError, match="cannot change its 2 partitions"):
        convert(str(run.checkpoint), to="rocksdb", output=str(run.root / "no"), partitions=3, spark=run.spark)
    convert(str(run.checkpoint), to="rocksdb", output=str(run.root / "given-back"), spark=run.spark)
    run.checkpoint = run.root / "given-back"
    run.spark.conf.set(PROVIDER_KEY, STOCK)
    run.start()
    feed(5, True, run, oracle)
    assert_same_results(run, oracle, STATE)


def counted(run):
    """The number of rows that the state has counted, under any keys."""
    return sum(value[0] for _, value in run.state(stateVarName="n"))


@pytest.mark.parametrize("has_timers", [False, pytest.param(True, marks=pytest.mark.long)])
def test_numbers_that_become_null_in_pandas_count_as_on_sparks_provider(stream, has_timers):
    run, oracle = pair(stream, partial(counting_by_number, has_timers=has_timers))
    feed(0, False, run, oracle)
    assert not (run.checkpoint / "binshift" / "changed_keys").exists()
    log = run.spark._jvm.org.apache.spark.sql.binshift.TestLog
    log.listen()
    try:
        feed(1, True, run, oracle)
        (warning,) = [line for line in log.heard() if "keeps state under other keys" in line]
    finally:
        log.end()
    assert warning.startswith("WARN operator 0 (transformWithState")
    assert "the value of column number has changed" in warning
    assert "its partitions cannot change any more" in warning
    told = json.loads((run.checkpoint / "binshift" / "changed_keys" / "0").read_text())
    assert told["columns"] == ["number"]
    with pytest.raises(UnsupportedOperatorError, match="column number has changed") as refused:
        run.attach().rescale(4, strategy=AllAtOnce(), prepare=False)
    assert refused.value.condition == "KEYS_CHANGE"
    feed(2, True, run, oracle)
    # The same after loading from the checkpoint.
    run.stop()
    run.start()
    feed(3, False, run, oracle)
    feed(4, True, run, oracle)
    with pytest.raises(UnsupportedOperatorError, match="column number"):
        run.attach().rescale(4, strategy=AllAtOnce(), prepare=False)
    assert_same_results(run, oracle, STATE)
    if not has_timers:
        goes_on_with_sparks_provider(stream, run, oracle)
    assert {what for rows in run.outputs.values() for _, what, _ in rows} == {"seen", *["fired"] * has_timers}


def test_a_migration_ends_when_the_first_key_changes(stream):
    run, oracle = pair(stream, counting_by_number)
    feed(0, False, run, oracle)
    migration = run.attach().rescale(4, strategy=AllAtOnce(), start_epoch=6, prepare=False)
    feed(1, True, run, oracle)
    for epoch in range(2, 8):
        feed(epoch, epoch % 2 == 0, run, oracle)
    assert until(lambda: run.attach().migration() is None)
    assert migration.status.state is MigrationState.CANCELLED
    assert run.attach().routing().partitions == 2
    assert_same_results(run, oracle, STATE)


def test_a_rollback_ends_when_the_first_key_changes(stream):
    """The key changes in the epoch of the step that would be undone; the next epochs have no such key."""
    run = stream(counting_by_number).start()
    feed(0, False, run)
    migration = run.attach().rescale(4, strategy=AllAtOnce(), prepare=False)
    feed(1, False, run)
    assert migration.status.next_epoch == 2
    migration.rollback()
    feed(2, True, run)
    for epoch in range(3, 7):
        feed(epoch, False, run)
    assert until(lambda: run.attach().migration() is None)
    assert migration.status.state is MigrationState.CANCELLED
    # Under other owners, the state of changed keys would not be found.
    assert run.attach().routing().partitions == 4
    assert counted(run) == run.batch().count()


@pytest.mark.long
def test_the_epoch_before_a_step_fails_and_is_run_again_without_it(stream):
    run, oracle = pair(stream, counting_by_number)
    feed(0, False, run, oracle)
    run.attach().rescale(4, strategy=AllAtOnce(), prepare=False)
    oracle.feed(batch(1, True))
    oracle.query.processAllAvailable()
    run.feed(batch(1, True))
    with pytest.raises(Exception, match="a step was about to take effect with epoch 2"):
        run.query.processAllAvailable()
    run.start()
    for epoch in range(2, 5):
        feed(epoch, True, run, oracle)
    assert run.attach().routing().partitions == 2
    assert_same_results(run, oracle, STATE)


@pytest.mark.long
def test_keys_that_change_after_a_rescale_lose_nothing(stream):
    # Which keys become equal in a partition depends on its rows, so no other query can be compared with.
    run = stream(counting_by_number).start()
    feed(0, False, run)
    run.attach().rescale(4, strategy=AllAtOnce(), prepare=False)
    feed(1, False, run)
    feed(2, False, run)
    assert run.attach().routing().partitions == 4
    for epoch in range(3, 6):
        feed(epoch, True, run)
    run.stop()
    run.start()
    feed(6, True, run)
    assert counted(run) == run.batch().count()
    assert run.attach().routing().partitions == 4


def test_state_of_changed_keys_is_taken_over_from_sparks_provider(stream):
    oracle = stream(counting_by_number, "oracle", provider=STOCK).start()
    taken = stream(counting_by_number, "taken", provider=STOCK).start()
    for epoch in range(2):
        feed(epoch, True, taken, oracle)
    taken.stop()
    taken.spark.conf.set(PROVIDER_KEY, PROVIDER)
    taken.start()
    for epoch in range(2, 5):
        feed(epoch, epoch % 2 == 0, taken, oracle)
    assert_same_results(taken, oracle, STATE)
    with pytest.raises(UnsupportedOperatorError, match="has changed"):
        taken.attach().rescale(4, strategy=AllAtOnce(), prepare=False)


@pytest.mark.parametrize(
    ("build", "inputs"),
    [
        pytest.param(counting_by_number, 1, id="python"),
        pytest.param(in_jvm("brokenText"), 1, id="columns that were never objects"),
        pytest.param(in_jvm("keyOfBytes"), 1, id="an array"),
        pytest.param(in_jvm("transformed"), 0, id="text"),
        pytest.param(in_jvm("transformedWithInitialState"), 0, id="text and a flag, with an initial state"),
    ],
)
def test_keys_are_noted_only_where_they_may_change(stream, build, inputs):
    run = stream(build).start()
    run.feed(batch(0, False))
    run.query.processAllAvailable()
    plan = run.query._jsq.streamingQuery().lastExecution().executedPlan().toString()
    assert plan.count("NoteKeys") == inputs
    assert "routed_partition" in plan


@pytest.mark.long
def test_text_that_is_not_utf_8_is_another_key_in_the_jvm(stream):
    run, oracle = pair(stream, in_jvm("brokenText"))
    for query in (run, oracle):
        query.run(0, 1, 2)
    assert_same_results(run, oracle, ({"stateVarName": "n"},))


@pytest.mark.long
def test_state_of_changed_keys_is_found_though_the_keys_are_made_in_another_way_since(stream):
    run, oracle = pair(stream, in_jvm("brokenTransformed"))
    feed(0, False, run, oracle)
    assert (run.checkpoint / "binshift" / "changed_keys" / "0").exists()
    for query in (run, oracle):
        query.stop()
        query.build = in_jvm("transformed")
        query.start()
    # Timers of the changed keys come due, and their keys aren't noted any more.
    for epoch in range(1, 5):
        feed(epoch, False, run, oracle)
    assert_same_results(run, oracle, QUERIES["tws-jvm"].state)
    assert "fired" in {what for rows in run.outputs.values() for _, what, _ in rows}
