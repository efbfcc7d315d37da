"""State read without a JVM equals what Spark's `statestore` source reads from the same checkpoint.

At every version that the checkpoint has: before, between and after changes of the routing table, from
snapshots and changelogs, of partitions that are new, retired, or back again.
"""

import pyarrow.compute as pc
import pytest

import binshift.inspect
from binshift import ConfigurationError
from binshift.control.history import history_table
from local.inspected import CASES, MATRIX, PARAMETERS, comparable, expected, query_of, read
from local.settings import NEEDS_JOIN_4


@pytest.mark.parametrize("name", PARAMETERS)
def test_state_is_what_spark_reads_at_every_version(made, name):
    run = made(name)
    case = (CASES | MATRIX)[name]
    with binshift.inspect.open(run.checkpoint) as checkpoint:
        assert checkpoint.versions == tuple(range(1, case.epochs + 1))
        # The default run only reads versions from before, between and after the changes of the table.
        few = {2, case.epochs} | ({case.epochs - 3} if case.epochs > 4 else set())
        versions = checkpoint.versions if name in MATRIX else sorted(few)
        for version in versions:
            for option in query_of(case).state:
                mine = comparable(read(checkpoint, version, option))
                assert mine
                assert mine == comparable(expected(run, version, option))


def test_all_families_are_decoded_and_agree_with_each_other(made):
    """Families that no option of Spark's source shows: indexes by time, and counts of rows."""
    run = made("tws")
    with binshift.inspect.open(run.checkpoint) as checkpoint:
        read = {s.family.name: checkpoint.scan(s).read_all().to_pylist() for s in checkpoint.sources()}
        timers = {
            (r["bin"], r["key"]["key"]["value"], r["key"]["expiryTimestampMs"])
            for r in read["$eventTimers_keyToTimestamp"]
        }
        by_time = [
            (r["bin"], r["key"]["key"]["value"], r["key"]["expiryTimestampMs"])
            for r in read["$eventTimers_timestampToKey"]
        ]
        assert timers
        assert set(by_time) == timers
        counts = {r["key"]["value"]: r["value"]["count"] for r in read["$rowCounter_values"]}
        lists = [r["key"]["value"] for r in read["values"]]
        assert counts == {k: lists.count(k) for k in set(lists)}


@NEEDS_JOIN_4
def test_rows_of_a_join_are_read_under_their_event_time(made):
    with binshift.inspect.open(made("join-4").checkpoint) as checkpoint:
        values = checkpoint.scan(family="left-keyWithTsToValues").read_all().to_pylist()
        assert all(r["key"]["__event_time"] == r["value"]["lt"].timestamp() * 1_000_000 for r in values)
        index = checkpoint.scan(family="left-tsWithKey").read_all().to_pylist()
        assert comparable([(r["bin"], r["key"]) for r in index]) == comparable(
            [(r["bin"], r["key"]) for r in values]
        )


def test_bins_partitions_and_filters_choose_the_rows_that_they_should(made):
    run = made("types")
    with binshift.inspect.open(run.checkpoint) as checkpoint:
        everything = checkpoint.scan().read_all()
        rows = everything.to_pylist()

        def same(found, wanted):
            assert comparable([tuple(r.values()) for r in found.read_all().to_pylist()]) == comparable(
                [tuple(r.values()) for r in rows if wanted(r)]
            )

        table = checkpoint.routing()
        assert {(r["bin"], r["partition"]) for r in everything.select(["bin", "partition"]).to_pylist()} <= {
            *enumerate(table.assignment)
        }
        same(checkpoint.scan(bins=[1, 5]), lambda r: r["bin"] in (1, 5))
        same(checkpoint.scan(partitions=[1]), lambda r: r["partition"] == 1)
        same(checkpoint.scan(where=pc.field("key", "i8") == 3, batch_rows=7), lambda r: r["key"]["i8"] == 3)
        same(checkpoint.scan(where=pc.field("key", "k") == "key7"), lambda r: r["key"]["k"] == "key7")
        assert repr(checkpoint.head(3).to_pylist()) == repr(rows[:3])
        assert checkpoint.head(10**6).num_rows == len(rows)
        with pytest.raises(ConfigurationError, match="bins are 0 to 11"):
            checkpoint.scan(bins=[12])
        with pytest.raises(ConfigurationError, match="version 99"):
            checkpoint.scan(version=99)


@pytest.mark.parametrize(
    "name",
    [
        "tws",
        pytest.param("count", marks=pytest.mark.matrix),
        pytest.param("count-stock", marks=pytest.mark.matrix),
    ],
)
def test_a_key_is_found_where_it_is(made, name):
    with binshift.inspect.open(made(name).checkpoint) as checkpoint:
        for source in checkpoint.sources():
            rows = checkpoint.scan(source).read_all().to_pylist()
            for row in rows[:: len(rows) // 3 or 1]:
                found = checkpoint.lookup(row["key"], source=source).to_pylist()
                assert found == [r for r in rows if r["key"] == row["key"]]
        source = checkpoint.sources(family="count")[0] if name == "tws" else checkpoint.source()
        column = source.family.key.fields[0].name
        assert checkpoint.lookup({column: "no such key"}, source=source).num_rows == 0


def test_the_history_has_the_steps_that_took_effect(made):
    with binshift.inspect.open(made("tws").checkpoint) as checkpoint:
        history = checkpoint.history()
        assert history.schema == history_table([]).schema
        assert history["partitions"].to_pylist()[-1] == 3
        assert set(history["strategy"].to_pylist()) == {"all-at-once"}
        assert checkpoint.routing(1).partitions == 2
