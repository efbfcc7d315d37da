"""Executors that join get partitions."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from binshift import PlanError
from binshift.planning.placement import Placement


def test_an_executor_that_has_just_joined_gets_as_many_partitions_as_the_others_have():
    placement = Placement(("1", "2", "3"), (("1",), ("1",), ("2",), ("2",)))
    assert placement.idle == ("3",)
    assert placement.partitions_with_idle(64) == 6
    assert placement.partitions_with_idle(5) == 5


def test_an_executor_that_is_gone_does_not_count():
    placement = Placement(("2",), (("1",), ("2",)))
    assert placement.idle == ()
    assert placement.partitions_with_idle(64) == 2


def test_while_nothing_has_run_no_executor_is_idle():
    assert Placement(("1", "2"), ((), ())).idle == ()


@given(st.lists(st.sampled_from("123"), min_size=1, max_size=12), st.integers(1, 20))
def test_partitions_never_become_fewer_but_for_the_limit(owners, most):
    placement = Placement(("1", "2", "3", "4"), tuple((o,) for o in owners))
    wanted = placement.partitions_with_idle(most)
    assert min(len(owners), most) <= wanted <= most


def test_an_executor_that_is_not_alive_is_refused():
    with pytest.raises(PlanError, match="'9' is not alive; alive are: 1, 2"):
        Placement(("1", "2"), ()).require_live(["1", "9"])
