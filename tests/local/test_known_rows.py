"""Rows that are fetched, read and written before their bin comes; compared with a model that has the bin."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

BINS = range(8)
#: Some keys have several rows.
SINGLE = st.builds("{}.{}".format, st.sampled_from(BINS), st.integers(0, 5))
SEVERAL = st.builds("{}.{}/{}".format, st.sampled_from(BINS), st.integers(0, 2), st.integers(0, 3))
#: The marker in front of a row's number, if there are rows with all lower numbers.
SERIES = st.builds("{}.{}#".format, st.sampled_from(BINS), st.integers(0, 2))
NUMBERED = st.builds("{}{}".format, SERIES, st.integers(0, 4))
#: By whether a database has column families, the kinds of keys that it may have.
KINDS = [(False, [SINGLE, SEVERAL]), (False, [NUMBERED]), (True, [SINGLE, SEVERAL, NUMBERED])]
VALUES = st.integers(0, 99).map(str)
ARRIVALS = st.tuples(
    st.sampled_from(["files", "checkpoint"]),
    st.sets(st.sampled_from(BINS), min_size=1).map(lambda bins: ",".join(map(str, sorted(bins)))),
)


@st.composite
def histories(draw):
    """True if there are families, what the old owner has, and what happens."""
    has_families, kinds = draw(st.sampled_from(KINDS))
    keys = st.one_of(*kinds)
    single = [kind for kind in kinds if kind is not NUMBERED]
    old = draw(st.dictionaries(st.one_of(*single), VALUES)) if single else {}
    if NUMBERED in kinds:
        series = draw(st.dictionaries(SERIES, st.lists(VALUES, min_size=1, max_size=4)))
        old |= {f"{begin}{i}": value for begin, values in series.items() for i, value in enumerate(values)}
    changes = st.one_of(
        st.tuples(st.just("fetch"), keys),
        st.tuples(st.sampled_from(["put", "merge"]), keys, VALUES),
        st.tuples(st.just("delete"), keys),
    )
    script = draw(st.lists(st.one_of(changes, changes, changes, ARRIVALS), max_size=30))
    return has_families, old, script


def expected(old, script):
    """The content of a database that adopted all bins at once; the number of its rows comes last."""
    rows = dict(old)
    for what, key, *values in script:
        if what == "put":
            rows[key] = values[0]
        elif what == "merge":
            rows[key] = rows.get(key, "") + values[0]
        elif what == "delete":
            rows.pop(key, None)
    return sorted(f"{k}={v}" for k, v in rows.items()), len(rows)


@pytest.mark.long
@given(history=histories())
@settings(max_examples=200, deadline=None)
def test_what_was_written_before_a_bin_came_wins_and_the_rest_is_the_bins(spark, tmp_path_factory, history):
    has_families, old, script = history
    script = [*script, ("files", ",".join(map(str, BINS)))]
    test = spark._jvm.org.apache.spark.sql.execution.streaming.state.binshift.migration.TestKnownRows
    stored = " ".join(f"{k}={v}" for k, v in old.items())
    steps = ";".join(" ".join(op) for op in script)
    came = test.run(str(tmp_path_factory.mktemp("known")), stored, steps, has_families)
    # Between merged values, some versions of Spark have a comma.
    *rows, count = came.replace(",", "").split(" ")
    assert (sorted(rows), int(count)) == expected(old, script)


def test_a_writer_does_not_wait_until_the_files_of_many_bins_are_merged(spark, tmp_path):
    test = spark._jvm.org.apache.spark.sql.execution.streaming.state.binshift.migration.TestKnownRows
    files, is_stopped = test.manyFiles(str(tmp_path), 60).split(" ")
    # The files as they come, and the file of the known rows.
    assert int(files) == 61
    assert is_stopped == "0"


def test_stores_of_an_executor_share_the_memory_for_known_keys(spark, tmp_path):
    test = spark._jvm.org.apache.spark.sql.execution.streaming.state.binshift.migration.TestKnownRows
    before, meanwhile, after = map(int, test.rooms(str(tmp_path)).split(" "))
    assert before == after > 1000
    assert 0 < meanwhile < before - 900


def test_a_key_whose_rows_have_numbers_takes_no_more_memory_with_many(spark, tmp_path):
    test = spark._jvm.org.apache.spark.sql.execution.streaming.state.binshift.migration.TestKnownRows
    one, many = (test.heldOfNumbered(str(tmp_path / str(rows)), rows) for rows in (1, 1000))
    assert one == many > 0
