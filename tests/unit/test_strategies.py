"""Any plan between any two tables ends at its target, keeps one owner per bin, and moves no bin twice."""

import json
from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from binshift import (
    AllAtOnce,
    Batched,
    Fluid,
    MigrationPlan,
    Move,
    OnDemand,
    Optimized,
    PlanError,
    RoutingTable,
    Step,
)
from binshift.planning.load import skew_of
from binshift.planning.strategies import parse_strategy
from binshift.planning.targets import balanced
from unit.test_routing import tables

STRATEGIES = st.one_of(
    st.builds(AllAtOnce, gap=st.integers(0, 3)),
    st.builds(OnDemand, gap=st.integers(0, 3)),
    st.builds(Fluid, gap=st.integers(0, 3)),
    st.builds(Batched, st.integers(1, 70), gap=st.integers(0, 3)),
    st.builds(Optimized, st.integers(1, 5), gap=st.integers(0, 3)),
)


@st.composite
def table_pairs(draw):
    bins = draw(st.integers(1, 40))
    return draw(tables(bins)), draw(tables(bins))


@given(table_pairs(), STRATEGIES)
def test_a_plan_reaches_its_target(pair, strategy):
    source, target = pair
    assert strategy.plan(source, target).target == target


@given(table_pairs(), STRATEGIES)
def test_each_bin_has_one_owner_after_each_step(pair, strategy):
    source, target = pair
    for table in strategy.plan(source, target).tables():
        assert len(table.assignment) == source.bins
        assert all(0 <= owner < table.partitions for owner in table.assignment)


@given(table_pairs(), STRATEGIES)
def test_no_bin_moves_that_need_not_and_none_moves_twice(pair, strategy):
    source, target = pair
    moved = [m.bin for m in strategy.plan(source, target).moves]
    changed = [b for b in range(source.bins) if source.assignment[b] != target.assignment[b]]
    assert sorted(moved) == changed


@given(table_pairs(), st.integers(1, 70))
def test_a_batched_plan_has_as_many_steps_as_its_size_asks_for(pair, size):
    source, target = pair
    moves = len(source.moves_to(target))
    steps = Batched(size).plan(source, target).steps
    assert len(steps) == max(-(-moves // size), int(source.partitions != target.partitions))
    assert all(len(s.moves) <= size for s in steps)


@given(table_pairs(), st.integers(1, 5))
def test_an_optimized_plan_loads_no_partition_beyond_its_share_in_the_fewest_steps(pair, share):
    source, target = pair
    moves = source.moves_to(target)
    sent, received = Counter(m.source for m in moves), Counter(m.target for m in moves)
    busiest = max((*sent.values(), *received.values()), default=0)
    steps = Optimized(share).plan(source, target).steps
    # No plan has fewer steps, as the busiest partition alone needs so many.
    assert len(steps) == max(-(-busiest // share), int(source.partitions != target.partitions))
    for step in steps:
        assert max(Counter(m.source for m in step.moves).values(), default=0) <= share
        assert max(Counter(m.target for m in step.moves).values(), default=0) <= share


@given(table_pairs())
def test_fluid_moves_one_bin_a_step_and_all_at_once_all_in_one(pair):
    source, target = pair
    moves = len(source.moves_to(target))
    assert all(len(s.moves) <= 1 for s in Fluid().plan(source, target).steps)
    assert len(AllAtOnce().plan(source, target).steps) == int(source != target or moves > 0)


@given(table_pairs(), STRATEGIES)
def test_a_plan_survives_json(pair, strategy):
    plan = strategy.plan(*pair)
    assert MigrationPlan.from_json(plan.to_json()) == plan


def test_a_step_takes_from_all_pairs_in_turn():
    source = RoutingTable(2, tuple(b % 2 for b in range(32)))
    first = Batched(4).plan(source, source.balanced(4)).steps[0]
    assert {(m.source, m.target) for m in first.moves} == {(0, 2), (1, 3)}


def test_partitions_that_go_stay_until_the_last_step():
    source = RoutingTable(4, tuple(b % 4 for b in range(16)))
    plan = Batched(3).plan(source, source.balanced(2))
    assert [s.partitions for s in plan.steps] == [4, 4, 2]


@pytest.mark.parametrize("size", [0, -3, 1.5, True, "2"])
def test_a_batch_size_that_is_no_number_of_bins_is_refused(size):
    with pytest.raises(PlanError, match="bins per step"):
        Batched(size)


@pytest.mark.parametrize("share", [0, -3, 1.5, True, "2"])
def test_a_share_that_is_no_number_of_bins_is_refused(share):
    with pytest.raises(PlanError, match="bins per pair"):
        Optimized(share)


@pytest.mark.parametrize("gap", [-1, 0.5, True])
def test_a_gap_that_is_no_number_of_epochs_is_refused(gap):
    source = RoutingTable(2, (0, 1))
    with pytest.raises(PlanError, match="gap"):
        Fluid(gap=gap).plan(source, source.balanced(1))


def test_a_step_that_moves_a_bin_twice_cannot_be_built():
    with pytest.raises(PlanError, match="bin 5 moves twice"):
        Step((Move(5, 0, 1), Move(5, 1, 2)), partitions=3)


def test_a_plan_whose_steps_do_not_fit_together_cannot_be_built():
    source = RoutingTable(2, (0, 1))
    with pytest.raises(PlanError, match="bin 0 belongs to partition 1"):
        MigrationPlan(
            source,
            steps=(Step((Move(0, 0, 1),), partitions=2), Step((Move(0, 0, 1),), partitions=2)),
            strategy="by hand",
        )


def test_a_step_that_leaves_bins_in_a_partition_that_goes_cannot_be_built():
    source = RoutingTable(3, (0, 1, 2))
    with pytest.raises(PlanError, match="step 1 leaves bins in partition 2, but has 2 partitions"):
        MigrationPlan(source, steps=(Step((), partitions=2),), strategy="by hand")


def test_the_largest_fluid_plan_is_made_in_seconds():
    source = RoutingTable(2, tuple(b % 2 for b in range(1 << 16)))
    assert len(Fluid().plan(source, source.balanced(64)).steps) == (1 << 16) * 62 // 64


def test_the_largest_optimized_plan_is_made_in_seconds():
    source = RoutingTable(1000, tuple(b % 1000 for b in range(1 << 16)))
    target = RoutingTable(1000, tuple((b * 7 + b // 1000) % 1000 for b in range(1 << 16)))
    plan = Optimized().plan(source, target)
    assert plan.target == target
    assert len(plan.steps) <= 80


@pytest.mark.parametrize("text", ["", "{}", "[1]", '{"format": 99}', '{"format": 1, "source": 3}'])
def test_text_that_is_no_plan_is_refused(text):
    with pytest.raises(PlanError):
        MigrationPlan.from_json(text)


@pytest.mark.parametrize("strategy", [OnDemand(), Fluid()])
def test_whether_bins_are_fetched_on_demand_does_not_hang_on_the_name_of_the_strategy(strategy):
    source = RoutingTable(2, tuple(b % 2 for b in range(8)))
    plan = strategy.plan(source, source.balanced(4))
    for name in ("on-demand", "fluid", "mine"):
        renamed = replace(plan, strategy=name)
        again = MigrationPlan.from_json(renamed.to_json())
        assert again == renamed
        assert again.on_demand is (strategy == OnDemand())
    data = json.loads(plan.to_json())
    del data["on_demand"]
    with pytest.raises(PlanError, match="it has no on_demand"):
        MigrationPlan.from_json(json.dumps(data))


def test_what_is_large_has_one_line_and_prints_more():
    source = RoutingTable(2, tuple(b % 2 for b in range(1024)))
    plan = Batched(128).plan(source, source.balanced(4))
    assert repr(source) == "<RoutingTable: 1024 bins in 2 partitions of 512 to 512 bins, from epoch 0 on>"
    assert repr(plan) == "<MigrationPlan: 2 -> 4 partitions, batched(128), 512 bins in 4 steps>"
    target = balanced(source, None, partitions=4)
    for value in (plan.steps[0], target, skew_of(source, None, "bins")):
        assert len(repr(value)) < 112
        assert "\n" not in repr(value)


def test_a_plan_prints_what_it_moves():
    source = RoutingTable(2, tuple(b % 2 for b in range(8)))
    plan = Fluid().plan(source, source.balanced(4))
    assert "2 -> 4 partitions, fluid" in str(plan)
    assert "bins to move: 4 of 8 (50%)" in str(plan)
    assert str(len(plan.steps)) in plan._repr_html_()


@pytest.mark.parametrize(
    ("text", "strategy"),
    [
        ("all-at-once", AllAtOnce(gap=2)),
        ("fluid", Fluid(gap=2)),
        ("batched:16", Batched(16, gap=2)),
        ("optimized:3", Optimized(3, gap=2)),
        ("on-demand", OnDemand(gap=2)),
    ],
)
def test_strategies_have_names(text, strategy):
    assert parse_strategy(text, gap=2) == strategy


@pytest.mark.parametrize("text", ["", "sudden", "batched", "batched:", "batched:x", "fluid:3", "batched:-1"])
def test_a_name_that_is_no_strategy_is_refused_with_those_there_are(text):
    with pytest.raises(PlanError, match="optimized:BINS"):
        parse_strategy(text)


def test_a_plan_says_at_which_epochs_its_steps_can_take_effect():
    source = RoutingTable(1, (0,) * 4)
    plan = Fluid(gap=2).plan(source, source.balanced(2))
    assert "takes effect" not in str(plan)
    known = replace(plan, earliest_epoch=7)
    assert known == plan
    assert known.to_json() == plan.to_json()
    assert str(known).endswith("\n  takes effect: epochs 7 to 10 at the earliest, if submitted now")
