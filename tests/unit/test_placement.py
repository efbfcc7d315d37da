"""The placement of partitions: executors that join get their share, and those that leave give theirs up."""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from binshift import PlanError
from binshift.planning.placement import Placement


def test_an_executor_that_has_just_joined_gets_as_many_new_partitions_as_the_others_have():
    placement = Placement(("1", "2", "3"), (("1",), ("1",), ("2",), ("2",)))
    assert placement.idle == ("3",)
    assert placement.partitions_with_idle(64) == 6
    assert placement.partitions_with_idle(5) == 5


def test_an_executor_that_is_gone_does_not_count():
    placement = Placement(("2",), (("1",), ("2",)))
    assert placement.idle == ()
    assert placement.partitions_with_idle(64) == 2


def test_while_nothing_has_run_no_executor_is_idle_and_nothing_moves():
    placement = Placement(("1", "2"), ((), ()))
    assert placement.idle == ()
    assert placement.spread() == {}


def test_an_executor_that_was_drained_is_not_idle_until_somebody_asks_for_it():
    placement = Placement(("1", "2"), (("1",), ("1",)), leaving=("2",))
    assert placement.idle == ()
    assert placement.spread() == {}
    assert placement.rejoined.idle == ("2",)
    assert len(placement.rejoined.spread()) == 1


def test_an_executor_that_joined_gets_whole_partitions_of_the_others():
    placement = Placement(("1", "2", "3"), (("1",), ("1",), ("1",), ("2",), ("2",), ("2",)))
    assert sorted(placement.spread().values()) == ["3", "3"]


def test_the_partitions_that_move_level_the_load():
    placement = Placement(("1", "2"), (("1",), ("1",), ("1",), ("1",)))
    moved = placement.spread([1.0, 1.0, 10.0, 8.0])
    loads = {"1": 20.0, "2": 0.0}
    for p in moved:
        loads["1"] -= [1.0, 1.0, 10.0, 8.0][p]
    assert len(moved) == 2
    assert 9 <= loads["1"] <= 11


def test_partitions_on_executors_that_are_gone_or_decommissioned_go_to_those_that_stay():
    placement = Placement(("1", "2"), (("1",), ("4",), ("4",), ("9",)), decommissioned=("4",))
    assert placement.spread().keys() == {1, 2, 3}
    assert Counter(placement.spread().values()) == {"2": 2, "1": 1}


def test_partitions_go_only_where_they_are_wanted():
    placement = Placement(("1", "2", "3"), (("1",), ("1",), ("1",), ("1",)))
    assert set(placement.spread(place_on=["3"]).values()) == {"3"}
    assert placement.drained("1", ["2"]) == dict.fromkeys(range(4), "2")


@given(
    st.lists(st.sampled_from(["1", "2", "3", "4", "gone"]), min_size=1, max_size=16),
    st.lists(st.floats(0, 100), min_size=16, max_size=16),
)
def test_each_executor_ends_with_as_many_partitions_as_any_other_and_few_move(owners, loads):
    placement = Placement(("1", "2", "3", "4"), tuple((o,) for o in owners))
    moved = placement.spread(loads[: len(owners)])
    after = Counter(dict.fromkeys(placement.executors, 0))
    after.update(moved.get(p, o) for p, o in enumerate(owners))
    assert "gone" not in after
    assert max(after.values()) - min(after.values()) <= 1
    # The number of moves is minimal: executors give away what is above their share, and lost ones everything.
    before = Counter(owners)
    floor, extra = divmod(len(owners), 4)
    kept = sorted((before[e] for e in placement.executors), reverse=True)
    assert len(owners) - len(moved) == sum(min(n, floor + (i < extra)) for i, n in enumerate(kept))


@given(st.lists(st.sampled_from("123"), min_size=1, max_size=16))
def test_a_drained_executor_keeps_nothing_and_nobody_else_loses_anything(owners):
    placement = Placement(("1", "2", "3"), tuple((o,) for o in owners))
    moved = placement.drained("1")
    assert moved.keys() == {p for p, o in enumerate(owners) if o == "1"}
    assert "1" not in moved.values()


def test_a_partition_whose_operators_are_on_several_executors_leaves_the_one_that_is_drained():
    assert Placement(("1", "2"), (("1", "2"), ("2",))).drained("1") == {0: "2"}


def test_an_executor_that_spark_decommissions_can_be_drained_and_gets_nothing():
    placement = Placement(("1", "2"), (("1",), ("3",)), decommissioned=("3",))
    assert placement.drained("3") == {1: "2"}
    with pytest.raises(
        PlanError, match="'3' gets no tasks, because Spark decommissions it; those that do are: 1, 2"
    ):
        placement.drained("1", ["3"])


def test_an_executor_that_spark_excludes_is_refused_with_the_reason():
    placement = Placement(("1", "2"), (), decommissioned=("3",), excluded=("3",))
    with pytest.raises(PlanError, match="'3' gets no tasks, because Spark excludes it after failures"):
        placement.require_live(["3"])


def test_an_executor_that_was_drained_before_gets_nothing_of_the_next_one():
    assert Placement(("1", "2", "3"), (("1",), ("3",)), leaving=("2",)).drained("1") == {0: "3"}


def test_the_only_executor_cannot_be_drained():
    with pytest.raises(PlanError, match="no other executor than 1") as error:
        Placement(("1",), (("1",), ("1",))).drained("1")
    assert error.value.condition == "NO_OTHER_EXECUTOR"


@given(st.lists(st.sampled_from("123"), min_size=1, max_size=12), st.integers(1, 20))
def test_partitions_never_become_fewer_but_for_the_limit(owners, most):
    placement = Placement(("1", "2", "3", "4"), tuple((o,) for o in owners))
    wanted = placement.partitions_with_idle(most)
    assert min(len(owners), most) <= wanted <= most


def test_an_executor_that_is_not_alive_is_refused():
    with pytest.raises(PlanError, match="'9' is not alive; alive are: 1, 2"):
        Placement(("1", "2"), ()).require_live(["1", "9"])
