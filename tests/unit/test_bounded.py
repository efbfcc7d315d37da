"""Bounded strategies: they reach their target, and no step costs more than allowed unless one bin does."""

import logging

import pytest
from hypothesis import given
from hypothesis import strategies as st

from binshift import AllAtOnce, Batched, Bounded, Fluid, OnDemand, Optimized, PlanError, RoutingTable
from binshift.planning.bounded import DEFAULT_BYTES_PER_S
from unit.test_strategies import table_pairs

INNER = st.one_of(
    st.builds(AllAtOnce),
    st.builds(Fluid, gap=st.integers(0, 2)),
    st.builds(Batched, st.integers(1, 40)),
    st.builds(Optimized, st.integers(1, 3)),
)


@st.composite
def bounded_plans(draw):
    source, target = draw(table_pairs())
    sizes = draw(st.lists(st.integers(0, 1000), min_size=source.bins, max_size=source.bins))
    bounds = draw(
        st.fixed_dictionaries(
            {},
            optional={
                "max_bytes_per_step": st.integers(1, 3000),
                "pause_budget_s": st.floats(0.5, 300, allow_nan=False),
            },
        ).filter(bool)
    )
    strategy = Bounded(
        draw(INNER),
        bin_bytes=sizes,
        bytes_per_s=draw(st.integers(1, 50)),
        cores=draw(st.integers(1, 8)),
        **bounds,
    )
    return strategy, strategy.plan(source, target), target


def fits(strategy, moves):
    moved = sum(strategy.bin_bytes[m.bin] for m in moves)
    return (strategy.max_bytes_per_step is None or moved <= strategy.max_bytes_per_step) and (
        strategy.pause_budget_s is None or strategy.pause_s(moves) <= strategy.pause_budget_s
    )


@given(bounded_plans())
def test_a_bounded_plan_reaches_its_target_and_moves_no_bin_twice(made):
    _, plan, target = made
    assert plan.target == target
    assert len({m.bin for m in plan.moves}) == len(plan.moves) == len(plan.source.moves_to(target))


@given(bounded_plans())
def test_a_step_is_within_the_bounds_or_has_a_single_bin(made):
    strategy, plan, _ = made
    assert all(fits(strategy, step.moves) or len(step.moves) == 1 for step in plan.steps)


@given(bounded_plans())
def test_no_step_is_cut_that_need_not_be(made):
    strategy, plan, target = made
    inner = strategy.strategy.plan(plan.source, target)
    cuts = len(plan.steps) - len(inner.steps)
    assert cuts >= 0
    if all(fits(strategy, step.moves) for step in inner.steps):
        assert [s.moves for s in plan.steps] == [s.moves for s in inner.steps]
    ends = {len([m for s in inner.steps[: i + 1] for m in s.moves]) for i in range(len(inner.steps))}
    done = 0
    for step, following in zip(plan.steps, plan.steps[1:], strict=False):
        done += len(step.moves)
        assert done in ends or not fits(strategy, (*step.moves, following.moves[0]))


def test_partitions_that_adopt_at_the_same_time_share_the_pause():
    source = RoutingTable(4, tuple(b % 4 for b in range(16)))
    target = source.balanced(8)
    plans = [
        Bounded(AllAtOnce(), pause_budget_s=20, bin_bytes=[100] * 16, bytes_per_s=10, cores=cores).plan(
            source, target
        )
        for cores in (1, 4)
    ]
    assert [len(p.steps) for p in plans] == [4, 2]


def test_a_rate_that_nobody_measured_is_the_stated_default():
    source = RoutingTable(1, (0,) * 10)
    size = int(DEFAULT_BYTES_PER_S * 10)
    plan = Bounded(AllAtOnce(), pause_budget_s=20, bin_bytes=[size] * 10).plan(source, source.balanced(10))
    assert [len(s.moves) for s in plan.steps] == [2, 2, 2, 2, 1]


def test_what_was_measured_does_not_replace_what_the_user_said():
    said = Bounded(Fluid(), pause_budget_s=1, bytes_per_s=7).with_costs([1, 2], bytes_per_s=99, cores=4)
    assert (said.bin_bytes, said.bytes_per_s, said.cores) == ((1, 2), 7, 4)


def test_a_bin_beyond_the_bound_moves_alone_and_is_logged(caplog):
    source = RoutingTable(1, (0, 0, 0, 0))
    strategy = Bounded(AllAtOnce(), max_bytes_per_step=10, bin_bytes=[1, 1, 50, 1])
    with caplog.at_level(logging.WARNING, "binshift"):
        plan = strategy.plan(source, RoutingTable(2, (1, 1, 1, 0)))
    assert [[m.bin for m in s.moves] for s in plan.steps] == [[0, 1], [2]]
    assert "bin 2 alone" in caplog.text


def test_a_plan_of_known_bytes_prints_them():
    source = RoutingTable(1, (0, 0))
    plan = Bounded(Fluid(), max_bytes_per_step=5_000_000, bin_bytes=[2_500_000, 1]).plan(
        source, RoutingTable(2, (1, 0))
    )
    assert "bins to move: 1 of 2 (50%), 2.5 MB" in str(plan)
    assert plan.bytes_to_move == 2_500_000


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({}, "without a bound"),
        ({"max_bytes_per_step": 0}, "max bytes per step 0"),
        ({"max_bytes_per_step": True}, "max bytes per step True"),
        ({"pause_budget_s": -1}, "pause budget -1"),
        ({"pause_budget_s": 1, "bytes_per_s": 0}, "bytes per s 0"),
        ({"pause_budget_s": 1, "cores": 0}, "cores 0"),
        ({"pause_budget_s": 1, "bin_bytes": [1, -4]}, "bin bytes -4"),
    ],
)
def test_bounds_that_make_no_sense_are_refused(arguments, message):
    with pytest.raises(PlanError, match=message):
        Bounded(Fluid(), **arguments)


def test_what_is_bounded_has_one_line_without_the_bytes_of_all_bins():
    strategy = Bounded(Batched(8), max_bytes_per_step=3000, bin_bytes=range(1024))
    assert repr(strategy) == "Bounded(strategy=Batched(bins_per_step=8, gap=0), max_bytes_per_step=3000)"


def test_on_demand_cannot_be_bounded():
    with pytest.raises(PlanError, match="on demand"):
        Bounded(OnDemand(), max_bytes_per_step=1)


def test_unknown_bytes_are_asked_for():
    source = RoutingTable(1, (0, 0))
    with pytest.raises(PlanError, match="bytes of the bins are not known"):
        Bounded(Fluid(), max_bytes_per_step=1).plan(source, source.balanced(2))
    with pytest.raises(PlanError, match="bin_bytes has 3 bins, but the table 2"):
        Bounded(Fluid(), max_bytes_per_step=1, bin_bytes=[1, 2, 3]).plan(source, source.balanced(2))
