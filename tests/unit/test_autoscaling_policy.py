"""The autoscaler's decisions converge, stay within bounds, and never oscillate under a constant input."""

import itertools
import math
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import settings as checked
from hypothesis import strategies as st

from binshift import ConfigurationError
from binshift.autoscaling import Action, Autoscaler, Change, Cluster, Observation, ScalingSettings, decide

EPOCH = 10.0


def settings(least=1, most=64, **kwargs):
    return ScalingSettings(
        min_partitions=least,
        max_partitions=most,
        **{"target_utilization": 0.7, "epoch_s": EPOCH, "cooldown_s": 60.0, **kwargs},
    )


def epochs(n, partitions, busy_s=7.0, rows=1000, start=0.0):
    return [
        Observation(start + i * max(EPOCH, busy_s), busy_s=busy_s, rows=rows, partitions=partitions)
        for i in range(n)
    ]


class Query:
    """A query whose epochs take as long as `seconds` says and read a limited amount of the backlog."""

    def __init__(self, input_rate, partitions, seconds):
        self.input_rate, self.partitions, self.seconds = input_rate, partitions, seconds
        self.now = 0.0
        self.read = 0
        self.observed = []
        self.last = None

    @property
    def is_behind(self):
        return self.read < int(self.input_rate * (self.now - EPOCH))

    def run(self, n):
        for _ in range(n):
            waiting = int(self.input_rate * (self.now + EPOCH)) - self.read
            rows = min(waiting, int(3 * EPOCH * self.input_rate))
            self.read += rows
            busy = self.seconds(rows, self.partitions)
            self.observed.append(Observation(self.now, busy_s=busy, rows=rows, partitions=self.partitions))
            self.now += max(EPOCH, busy)

    def scale(self, s, rounds=30):
        """Applies the autoscaler's decisions, and returns the changes."""
        changes = []
        for _ in range(rounds):
            self.run(s.window)
            d = decide(self.observed, settings=s, now_s=self.now, last=self.last)
            assert d.action is Action.HOLD or s.min_partitions <= d.desired <= s.max_partitions
            if d.action is Action.RESCALE:
                self.last = Change.of(d, last=self.last)
                changes.append((d.current, d.desired))
                self.partitions, self.observed = d.desired, []
        return changes


RATES = st.floats(1, 5000)


def turns(changes):
    """How often the number of partitions changes direction."""
    ups = [b > a for a, b in changes]
    return sum(x != y for x, y in itertools.pairwise(ups))


# No deadline: hundreds of simulated epochs are slow on a busy machine.
@checked(deadline=None)
@given(RATES, st.integers(1, 64), st.floats(1, 500), st.floats(0, 3))
def test_under_a_constant_input_the_partitions_go_one_way_and_settle(rate, first, each, overhead):
    query = Query(rate, first, lambda rows, p: overhead + rows / (each * p))
    keeps_up = overhead + rate * EPOCH / (each * first) <= EPOCH
    # With a backlog, extra partitions first catch up and are then removed.
    changes = query.scale(settings(), rounds=60)
    assert turns(changes) <= (0 if keeps_up else 1)
    assert query.scale(settings(), rounds=5) == [] or not keeps_up


# No deadline: hundreds of simulated epochs are slow on a busy machine.
@checked(deadline=None)
@given(RATES, st.integers(1, 16), st.lists(st.floats(1, 5000), min_size=16, max_size=16))
def test_they_settle_also_where_more_partitions_are_slower(rate, first, capacities):
    query = Query(rate, first, lambda rows, p: rows / capacities[p - 1])
    # The second turn is a correction: against the expectation, fewer partitions don't keep up.
    assert turns(query.scale(settings(most=16), rounds=60)) <= 2


# No deadline: hundreds of simulated epochs are slow on a busy machine.
@checked(deadline=None)
@given(RATES, st.integers(1, 64), st.floats(5, 500))
def test_where_partitions_add_up_they_settle_near_the_fewest_that_are_enough(rate, first, each):
    s = settings()
    query = Query(rate, first, lambda rows, p: rows / (each * p))
    query.scale(s)
    # Working off the backlog takes time, and never ends if even the maximum is too few.
    query.run(1000)
    query.scale(s)
    needed = rate / (each * s.target_utilization)
    fewest = min(max(math.ceil(needed), s.min_partitions), s.max_partitions)
    # Within the dead band on either side of the target nothing changes; one partition is the minimum.
    assert min(needed / (1 + s.dead_band) * 0.98, s.max_partitions) <= query.partitions
    most = max(fewest * (1 + s.dead_band) / (1 - s.dead_band), fewest + 1)
    assert query.partitions <= (s.max_partitions if query.is_behind else most)


@given(
    st.lists(
        st.builds(
            Observation,
            st.floats(0, 1e4),
            busy_s=st.floats(0, 100),
            rows=st.integers(0, 10**6),
            partitions=st.integers(1, 100),
        ),
        max_size=20,
    ).map(lambda o: sorted(o, key=lambda x: x.started_s)),
    st.integers(1, 20),
    st.integers(20, 60),
    st.builds(Cluster, st.none() | st.integers(1, 100)),
)
def test_a_decision_is_always_within_its_bounds_and_has_a_reason(observed, least, most, cluster):
    d = decide(observed, settings=settings(least, most), now_s=1e5, cluster=cluster, is_running=True)
    assert d.reason
    assert d.action is Action.HOLD or least <= d.desired <= most
    assert (d.action is Action.HOLD) == (d.desired == d.current)


@given(
    st.integers(1, 20),
    st.floats(0, 30),
    st.builds(
        Cluster,
        st.none() | st.integers(1, 40),
        idle=st.sampled_from([(), ("7",)]),
        to_move=st.integers(0, 2),
        executors=st.integers(0, 12),
        is_refused=st.booleans(),
    ),
    st.integers(1, 4),
    st.integers(4, 8),
)
def test_executors_are_asked_for_and_given_back_within_their_bounds_only(n, busy, cluster, least, most):
    s = settings(1, 20, min_executors=least, max_executors=most)
    d = decide(epochs(6, n, busy_s=busy), settings=s, now_s=1e5, cluster=cluster, is_running=True)
    if d.action is Action.REQUEST:
        assert cluster.executors < d.executors <= most
        assert d.desired >= d.current
        assert not cluster.is_refused
    elif d.action is Action.RELEASE:
        assert least <= d.executors < cluster.executors
        assert d.desired == d.current
    else:
        assert d.executors is None
    if cluster.slots is None:
        assert d.action not in (Action.REQUEST, Action.RELEASE)


def test_a_query_that_is_busy_all_the_time_gets_as_many_as_the_target_asks_for():
    d = decide(epochs(6, 4, busy_s=10.0), settings=settings(), now_s=60.0)
    assert (d.action, d.current, d.desired) == (Action.RESCALE, 4, 6)
    assert d.utilization == pytest.approx(1)
    assert d.input_rate == pytest.approx(100)
    assert d.true_rate == pytest.approx(100)
    assert str(d) == "rescale from 4 to 6 partitions: busy 100% of the time, 70% wanted"


def test_a_query_that_is_half_idle_gets_fewer():
    d = decide(epochs(6, 8, busy_s=2.0), settings=settings(), now_s=60.0)
    assert (d.action, d.desired) == (Action.RESCALE, 3)


def test_a_single_slow_epoch_changes_nothing():
    slow = epochs(6, 4, busy_s=6.5)
    slow[4] = Observation(slow[4].started_s, busy_s=9.9, rows=1000, partitions=4)
    assert decide(slow, settings=settings(), now_s=60.0).action is Action.HOLD
    spike = [*epochs(5, 4, busy_s=6.5), Observation(50.0, busy_s=60.0, rows=1000, partitions=4)]
    assert decide(spike, settings=settings(), now_s=110.0).action is Action.HOLD


def test_nothing_changes_while_it_cools_down_or_too_few_epochs_were_seen():
    busy = epochs(6, 4, busy_s=10.0)
    last = Change(30.0, source=2, target=4, input_rate=100.0)
    assert "cooling down for 30 s more" in decide(busy, settings=settings(), now_s=60.0, last=last).reason
    assert decide(busy, settings=settings(), now_s=91.0, last=last, is_running=True).desired == 6
    assert "5 of 6 epochs" in decide(busy[:5], settings=settings(), now_s=60.0).reason
    other = [*epochs(4, 2, busy_s=10.0), *epochs(2, 4, busy_s=10.0, start=40)]
    assert "2 of 6 epochs" in decide(other, settings=settings(), now_s=60.0).reason
    assert decide([], settings=settings(), now_s=60.0).action is Action.HOLD


def test_a_change_is_taken_back_only_when_the_input_has_changed():
    idle = epochs(6, 8, busy_s=2.0, rows=1000)
    same, more = (
        Change(-100.0, source=4, target=8, input_rate=105.0),
        Change(-100.0, source=4, target=8, input_rate=200.0),
    )
    held = decide(idle, settings=settings(), now_s=60.0, last=same)
    assert held.action is Action.HOLD
    assert "take back the last change" in held.reason
    assert decide(idle, settings=settings(), now_s=60.0, last=more).desired == 3


def test_no_more_partitions_than_there_are_cores():
    busy = epochs(6, 4, busy_s=10.0)
    assert decide(busy, settings=settings(), now_s=60.0, cluster=Cluster(slots=5)).desired == 5
    held = decide(busy, settings=settings(), now_s=60.0, cluster=Cluster(slots=4))
    assert held.action is Action.HOLD
    assert "6 partitions would do, but the limit is 4 cores" in held.reason
    # Existing partitions stay, as fewer would not help.
    assert decide(busy, settings=settings(), now_s=60.0, cluster=Cluster(slots=2)).desired == 4


def test_executors_that_join_get_partitions_and_their_number_stays():
    calm = epochs(6, 4, busy_s=7.0)
    d = decide(calm, settings=settings(), now_s=60.0, cluster=Cluster(slots=8, idle=("3",), to_move=1))
    assert (d.action, d.desired, d.place_on) == (Action.REBALANCE, 4, ("3",))
    assert str(d) == "rebalance 4 partitions: executors 3 run no partition, and 1 move there"
    # There are fewer partitions than executors, so one executor is idle.
    assert decide(calm, settings=settings(), now_s=60.0, cluster=Cluster(8, idle=("3",))).action is Action.HOLD


def test_partitions_out_of_bounds_are_brought_back_at_once():
    assert decide(epochs(1, 9), settings=settings(2, 8), now_s=10.0).desired == 8
    assert decide(epochs(1, 1), settings=settings(2, 8), now_s=10.0).desired == 2


def test_an_idle_query_gets_the_fewest_partitions():
    d = decide(epochs(6, 8, busy_s=0.1, rows=0), settings=settings(2), now_s=60.0)
    assert (d.desired, d.input_rate, d.true_rate) == (2, 0, 0)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("min_partitions", 0),
        ("min_partitions", 1.5),
        ("max_partitions", 1),
        ("max_partitions", 3.5),
        ("target_utilization", 0),
        ("target_utilization", 1.5),
        ("epoch_s", 0),
        ("cooldown_s", -1),
        ("window", 1),
        ("window", 2.5),
        ("dead_band", 1),
    ],
)
def test_settings_that_make_no_sense_are_refused(name, value):
    with pytest.raises(ConfigurationError, match="is impossible; give ") as refused:
        ScalingSettings(**{"min_partitions": 2, "max_partitions": 4, name: value})
    assert refused.value.condition == "INVALID_VALUE"
    assert refused.value.parameters == {"name": name, "value": value}


def test_an_autoscaler_says_of_which_query_it_is_and_what_it_does():
    class Named:
        _link = SimpleNamespace(is_real_time=lambda: False, reports_kept=lambda: 100)

        def __repr__(self):
            return "<Controller of query q>"

    controller: Any = Named()
    autoscaler = Autoscaler(controller, min_partitions=1, max_partitions=2, epoch_s=1)
    assert repr(autoscaler) == "<Autoscaler of <Controller of query q>, advise>"


def test_executors_are_asked_for_before_partitions_that_have_no_cores():
    own = settings(max_executors=3)
    short = epochs(6, 1, busy_s=30.0)
    one = Cluster(1, executors=1)
    asked = decide(short, settings=own, now_s=100.0, cluster=one)
    assert (asked.action, asked.executors, asked.desired) == (Action.REQUEST, 2, 2)
    assert str(asked) == "ask for 2 executors, for 2 partitions: busy 100% of the time, 70% wanted"
    # It decides once the executors are there, or once it is known that they won't come.
    there = Cluster(2, idle=("2",), executors=2)
    assert decide(short, settings=own, now_s=100.0, cluster=there).action is Action.RESCALE
    refused = Cluster(1, executors=1, is_refused=True)
    held = decide(short, settings=own, now_s=100.0, cluster=refused)
    assert held.action is Action.HOLD
    assert "the limit is 1 cores" in held.reason
    # Asking for executors isn't allowed, or the number of tasks per executor is unknown.
    assert decide(short, settings=settings(), now_s=100.0, cluster=one).action is Action.HOLD
    unknown = decide(short, settings=own, now_s=100.0, cluster=Cluster(None, executors=1))
    assert unknown.action is Action.RESCALE


def test_partitions_that_take_turns_get_executors_of_their_own():
    own = settings(most=4, max_executors=4)
    d = decide(epochs(6, 4, busy_s=30.0), settings=own, now_s=100.0, cluster=Cluster(2, executors=2))
    assert (d.action, d.executors, d.desired) == (Action.REQUEST, 4, 4)


def test_no_more_executors_are_asked_for_than_are_allowed_nor_given_back_than_are_spare():
    own = settings(max_executors=3)
    cluster = Cluster(4, executors=2)
    d = decide(epochs(6, 4, busy_s=30.0), settings=own, now_s=100.0, cluster=cluster)
    assert (d.action, d.executors, d.desired) == (Action.REQUEST, 3, 6)
    spare = Cluster(6, idle=("3",), to_move=1, executors=3)
    calm = epochs(6, 3, busy_s=6.5)
    d = decide(calm, settings=own, now_s=60.0, cluster=spare)
    assert (d.action, d.executors) == (Action.RELEASE, 2)
    assert str(d) == "give executors back until 2 are left: 2 are enough for 3 partitions"
    kept = settings(max_executors=3, min_executors=3)
    assert decide(calm, settings=kept, now_s=60.0, cluster=spare).action is Action.REBALANCE
    # No executor is given back while the query is overloaded.
    busy = decide(epochs(6, 3, busy_s=30.0), settings=own, now_s=100.0, cluster=spare)
    assert busy.action is Action.REBALANCE


@pytest.mark.parametrize("bounds", [{"min_executors": 0}, {"min_executors": 3, "max_executors": 2}])
def test_impossible_bounds_of_executors_are_refused(bounds):
    with pytest.raises(ConfigurationError, match="executors") as refused:
        settings(**bounds)
    assert refused.value.condition == "INVALID_VALUE"


def test_too_few_partitions_get_more_though_that_takes_back_the_last_change():
    # The input is nearly unchanged, since an overloaded query reads no more than it can.
    last = Change(-1e6, source=8, target=4, input_rate=100.0)
    behind = epochs(6, 4, busy_s=60.0, rows=6600)
    d = decide(behind, settings=settings(), now_s=360.0, last=last)
    assert (d.action, d.desired) == (Action.RESCALE, 6)
    in_time = epochs(6, 4, busy_s=9.0, rows=1100)
    held = decide(in_time, settings=settings(), now_s=60.0, last=last)
    assert "take back the last change" in held.reason
    # Fewer partitions are not tried again while the input is unchanged, either.
    change = Change.of(d, last=last)
    assert change.is_correction
    assert change.input_rate == pytest.approx(110)
    more = Change.of(decide(epochs(6, 6, busy_s=60.0), settings=settings(), now_s=360.0), last=change)
    assert more.is_correction
    at_once = replace(change, at_s=-1e6)
    calm = epochs(6, 6, busy_s=2.0, rows=1100)
    assert "take back" in decide(calm, settings=settings(), now_s=60.0, last=at_once).reason
    calmer = epochs(6, 6, busy_s=2.0, rows=900)
    assert decide(calmer, settings=settings(), now_s=60.0, last=at_once).desired == 2
    # A query that started with a backlog gives back the partitions that it no longer needs.
    first = Change.of(d, last=Change(-1e6, source=2, target=4, input_rate=None))
    assert (first.is_correction, first.input_rate) == (False, None)


def test_epochs_of_long_ago_ask_for_nothing():
    own = settings(max_executors=3, cooldown_s=0)
    one = Cluster(1, executors=1)
    busy = epochs(6, 1, busy_s=10.0)
    assert decide(busy, settings=own, now_s=60.0, cluster=one).action is Action.REQUEST
    # The silence is longer than an epoch takes, but these are the newest epochs until the running one ends.
    assert decide(busy, settings=own, now_s=400.0, cluster=one, is_running=True).action is Action.REQUEST
    overdue = decide(busy, settings=own, now_s=85.0, cluster=one)
    assert overdue.action is Action.HOLD
    assert overdue.utilization == pytest.approx(60 / 75)
    later = decide(busy, settings=own, now_s=36000.0, cluster=one)
    assert (later.action, later.reason) == (Action.HOLD, "no epoch has run for 35940 s")
    # It doesn't reduce partitions either, since that too only takes effect with an epoch.
    assert decide(epochs(6, 8, busy_s=1.0), settings=own, now_s=36000.0).action is Action.HOLD
    # A trigger interval longer than an epoch may take doesn't count as silence.
    rare = [Observation(i * 60.0, busy_s=15.0, rows=1, partitions=1) for i in range(6)]
    assert "no epoch" not in decide(rare, settings=own, now_s=350.0, cluster=one).reason


def test_executors_without_partitions_are_given_back_also_while_no_epoch_runs():
    own = settings(max_executors=3)
    came = Cluster(3, idle=("2", "3"), executors=3, empty=("2", "3"))
    busy = epochs(2, 1, busy_s=30.0)
    assert decide(busy, settings=own, now_s=60.0, cluster=came).action is Action.HOLD
    later = decide(busy, settings=own, now_s=36000.0, cluster=came)
    assert (later.action, later.executors) == (Action.RELEASE, 1)
    # If all executors have partitions, only epochs could empty one, and none comes.
    full = Cluster(3, executors=3)
    assert decide(busy, settings=own, now_s=36000.0, cluster=full).action is Action.HOLD


def test_executors_that_other_queries_use_are_not_spare():
    own = settings(max_executors=4)
    calm = epochs(6, 2, busy_s=6.5)
    d = decide(calm, settings=own, now_s=60.0, cluster=Cluster(4, executors=4, shared=1))
    assert (d.action, d.executors) == (Action.RELEASE, 2)
    # The query keeps two executors of its own, and everything else goes on as usual.
    held = decide(calm, settings=own, now_s=60.0, cluster=Cluster(4, executors=4, shared=2))
    assert "within the dead band" in held.reason
    idle = epochs(6, 4, busy_s=1.0)
    fewer = decide(idle, settings=own, now_s=60.0, cluster=Cluster(4, executors=4, shared=4))
    assert (fewer.action, fewer.desired) == (Action.RESCALE, 1)


def test_executors_that_somebody_has_drained_are_no_capacity():
    own = settings(max_executors=4)
    busy = epochs(6, 3, busy_s=30.0)
    d = decide(busy, settings=own, now_s=180.0, cluster=Cluster(2, executors=2, drained=1))
    assert (d.action, d.executors, d.desired) == (Action.REQUEST, 3, 3)
    full = decide(busy, settings=own, now_s=180.0, cluster=Cluster(3, executors=3, drained=1))
    assert "the limit is 3 cores" in full.reason
    # Drained executors are the first to be given back.
    calm = epochs(6, 3, busy_s=6.5)
    d = decide(calm, settings=own, now_s=60.0, cluster=Cluster(3, executors=3, drained=1, empty=("4",)))
    assert (d.action, d.executors) == (Action.RELEASE, 3)


def test_executors_that_were_drained_and_run_nothing_make_room_for_others():
    own = settings(max_executors=2)
    busy = epochs(6, 1, busy_s=30.0)
    cluster = Cluster(1, executors=1, drained=1, empty=("2",), emptied=1)
    d = decide(busy, settings=own, now_s=180.0, cluster=cluster)
    assert (d.action, d.executors) == (Action.RELEASE, 1)
    assert "and 1 executors that were drained run nothing" in d.reason
    d = decide(busy, settings=own, now_s=180.0, cluster=Cluster(1, executors=1))
    assert (d.action, d.executors) == (Action.REQUEST, 2)
    # The number of executors stays, as the settings don't let the autoscaler change it.
    fixed = decide(busy, settings=settings(), now_s=180.0, cluster=cluster)
    assert fixed.action is Action.HOLD
