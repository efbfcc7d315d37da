"""Routing tables: every bin has one owner, and no bin moves without need."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from binshift import Move, PlanError, RoutingTable


@st.composite
def tables(draw: st.DrawFn, bins: int | None = None) -> RoutingTable:
    n_bins = bins if bins is not None else draw(st.integers(1, 60))
    partitions = draw(st.integers(1, n_bins))
    owners = draw(st.lists(st.integers(0, partitions - 1), min_size=n_bins, max_size=n_bins))
    return RoutingTable(partitions, tuple(owners))


@given(tables(), st.data())
def test_a_balanced_table_differs_by_at_most_one_bin_between_partitions(table, data):
    n = data.draw(st.integers(1, table.bins))
    balanced = table.balanced(n)
    assert balanced.partitions == n
    assert max(balanced.sizes()) - min(balanced.sizes()) <= 1


@given(tables(), st.data())
def test_balancing_moves_only_what_exceeds_the_quota_of_its_owner(table, data):
    n = data.draw(st.integers(1, table.bins))
    balanced = table.balanced(n)
    quota, larger = divmod(table.bins, n)
    sizes = sorted((table.sizes() + (0,) * n)[:n], reverse=True)
    stay = sum(min(size, quota + (rank < larger)) for rank, size in enumerate(sizes))
    assert len(table.moves_to(balanced)) == table.bins - stay


@given(tables())
def test_balancing_a_balanced_table_moves_nothing(table):
    balanced = table.balanced(table.partitions)
    assert balanced.moves_to(balanced.balanced(table.partitions)) == ()


def test_scaling_to_a_multiple_and_back_needs_the_fewest_moves():
    # The example of Meces (ATC 2022), 128 key groups from 25 to 30 tasks, needs few moves.
    table = RoutingTable(25, tuple(b % 25 for b in range(128)))
    assert len(table.moves_to(table.balanced(30))) == 20


def test_few_pairs_of_partitions_exchange_bins_and_what_leaves_one_lies_together():
    table = RoutingTable(4, tuple(b % 4 for b in range(64)))
    moves = table.moves_to(table.balanced(8))
    assert {(m.source, m.target) for m in moves} == {(0, 4), (1, 5), (2, 6), (3, 7)}
    for source in range(4):
        owned = table.bins_of(source)
        assert [b for b in owned if b in {m.bin for m in moves}] == list(owned[-8:])


@given(tables(), st.data())
def test_partitions_that_are_left_out_own_nothing_and_the_others_equally_many(table, data):
    left_out = data.draw(st.sets(st.integers(0, table.partitions - 1), max_size=table.partitions - 1))
    sizes = table.without(left_out).sizes()
    others = [s for p, s in enumerate(sizes) if p not in left_out]
    assert all(sizes[p] == 0 for p in left_out)
    assert max(others) - min(others) <= 1


def test_leaving_out_all_partitions_is_refused():
    with pytest.raises(PlanError, match="all 2 partitions"):
        RoutingTable(2, (0, 1)).without([0, 1])


@pytest.mark.parametrize("partitions", [0, -1, 65, 2.5, "4", None, True])
def test_an_impossible_number_of_partitions_is_refused_with_its_value(partitions):
    table = RoutingTable(2, tuple(b % 2 for b in range(64)))
    with pytest.raises(PlanError, match=str(partitions)):
        table.balanced(partitions)


@pytest.mark.parametrize("owner", [3, -1, 1.0, None])
def test_an_owner_that_is_no_partition_is_refused(owner):
    with pytest.raises(PlanError, match="bin 1 "):
        RoutingTable(3, (0, owner, 2))


def test_a_move_from_another_partition_than_the_owner_is_refused():
    with pytest.raises(PlanError, match="bin 1 belongs to partition 1, not to 0"):
        RoutingTable(2, (0, 1)).moved((Move(1, 0, 1),), partitions=2)


def test_a_move_to_itself_cannot_be_built():
    with pytest.raises(PlanError, match="bin 7"):
        Move(7, 2, 2)


def test_a_target_with_another_number_of_bins_is_refused():
    with pytest.raises(PlanError, match="3 bins"):
        RoutingTable(2, (0, 1)).moves_to(RoutingTable(2, (0, 1, 0)))


def test_tables_that_route_alike_are_equal_whatever_their_epochs():
    assert RoutingTable(2, (0, 1), epoch=3) == RoutingTable(2, (0, 1), epoch=9)
