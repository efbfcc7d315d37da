"""Decides how many partitions a query should have, from the durations of its epochs. Pure functions.

The idea comes from DS2 (Kalavri et al., OSDI 2018, section 3). The true rate of a query, which is what it could
process if it were never idle, is measured while it runs. It tells in one step how many partitions the input
needs.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from math import ceil
from statistics import median

from binshift.arguments import checked
from binshift.autoscaling.decision import Action, Change, Decision
from binshift.autoscaling.observed import Cluster, Observation
from binshift.autoscaling.settings import ScalingSettings
from binshift.errors import ConfigurationError

__all__ = ["decide"]

#: An epoch that takes this share of its time may well be behind its input.
_SATURATED = 0.95
#: After this many times the usual gap between epochs without one, nothing is done, because none may ever come.
_SILENT = 3


@checked(ConfigurationError)
def decide(
    observations: Sequence[Observation],
    *,
    settings: ScalingSettings,
    now_s: float,
    cluster: Cluster | None = None,
    last: Change | None = None,
    is_running: bool = False,
) -> Decision:
    """Decides how many partitions the query should have.

    A query with p partitions is busy for a share u of its time. For a target utilization of t, it needs p * u /
    t partitions, rounded up. This is DS2's rule, because u is the input rate divided by the true rate. A query
    that can't keep up is busy all the time, so it gets 1 / t times as many partitions, and perhaps more the
    next time.

    Nothing changes within the dead band and the cooldown. A change is not reverted while the input is the same
    as at that change. So under a constant input, the number of partitions only ever goes one way, and settles.
    A query that is behind its input first gets more partitions than it needs later, and gives them back once.

    There is one exception: a query that can't keep up since it has fewer partitions gets more again, because
    the work per row may have grown. After that, none of them is given back while the input is the same.

    If the next epoch is overdue, the query counts as idle. If it has run no epoch for some time, its partitions
    are left alone, because changes take effect with epochs; only executors without partitions are given back.

    Parameters
    ----------
    observations : sequence of Observation
        Epochs with the current number of partitions and no moving bins, oldest first.
    settings : ScalingSettings
        The settings.
    now_s : float
        The time now, by the clock of the observations.
    cluster : Cluster, optional
        The cluster that the query runs on.
    last : Change, optional
        The latest change.
    is_running : bool
        Whether an epoch is under way that isn't among the observations yet.
    """
    cluster = cluster or Cluster()
    if not observations:
        return Decision(
            now_s,
            action=Action.HOLD,
            current=0,
            desired=0,
            reason="no epoch was observed since the last change",
        )
    current = observations[-1].partitions
    recent = [o for o in observations if o.partitions == current][-settings.window :]
    if not (settings.min_partitions <= current <= settings.max_partitions):
        desired = min(max(current, settings.min_partitions), settings.max_partitions)
        return Decision(
            now_s,
            action=Action.RESCALE,
            current=current,
            desired=desired,
            reason=f"the bounds are {_bounds(settings)}",
        )
    if last is not None and (left := last.at_s + settings.cooldown_s - now_s) > 0:
        return Decision(
            now_s,
            action=Action.HOLD,
            current=current,
            desired=current,
            reason=f"cooling down for {left:.0f} s more",
        )
    usual_s = _usual(recent, settings.epoch_s)
    silent_s = 0.0 if is_running else now_s - _end(recent, settings.epoch_s)
    if silent_s > _SILENT * usual_s:
        return _silent(current, settings, now_s, cluster, silent_s)
    if len(recent) < settings.window:
        seen = f"{len(recent)} of {settings.window} epochs were observed since the last change"
        return Decision(now_s, action=Action.HOLD, current=current, desired=current, reason=seen)
    return _decided(recent, settings, now_s, cluster, last, None if is_running else now_s - usual_s)


def _silent(current: int, s: ScalingSettings, now_s: float, cluster: Cluster, silent_s: float) -> Decision:
    """Decides while no epoch runs, so that what is known about the load is out of date."""
    why = f"no epoch has run for {silent_s:.0f} s"
    enough = _executors_for(current, s, cluster)
    if _is_spare(enough, s, cluster) and cluster.empty:
        return Decision(
            now_s, action=Action.RELEASE, current=current, desired=current, reason=why, executors=enough
        )
    return Decision(now_s, action=Action.HOLD, current=current, desired=current, reason=why)


def _decided(
    recent: Sequence[Observation],
    s: ScalingSettings,
    now_s: float,
    cluster: Cluster,
    last: Change | None,
    end_s: float | None,
) -> Decision:
    current = recent[-1].partitions
    half = len(recent) // 2
    older = _utilization(recent[:half], s.epoch_s, recent[half].started_s)
    newer = _utilization(recent[half:], s.epoch_s, end_s)
    rows, busy = sum(o.rows for o in recent), sum(o.busy_s for o in recent)
    input_rate = rows / _span(recent, s.epoch_s, end_s)
    utilization = _utilization(recent, s.epoch_s, end_s)
    keeps_up = all(o.busy_s < _SATURATED * s.epoch_s for o in recent)

    def decided(action: Action, desired: int, reason: str, executors: int | None = None) -> Decision:
        return Decision(
            now_s,
            action=action,
            current=current,
            desired=desired,
            reason=reason,
            input_rate=input_rate,
            true_rate=rows / busy if busy else None,
            utilization=utilization,
            place_on=() if action is Action.HOLD else cluster.idle,
            executors=executors,
            keeps_up=keeps_up,
        )

    low, high, target = min(older, newer), max(older, newer), s.target_utilization
    seen = f"busy {utilization:.0%} of the time, {target:.0%} wanted"
    is_short = low > target * (1 + s.dead_band)
    if released := _released(current, s, cluster, seen if is_short else None):
        stay, why = released
        return decided(Action.RELEASE, current, why, stay)
    if cluster.idle and cluster.to_move:
        why = f"executors {', '.join(cluster.idle)} run no partition, and {cluster.to_move} move there"
        return decided(Action.REBALANCE, current, why)
    if not is_short and not high < target * (1 - s.dead_band):
        why = "that is within the dead band, at least for a part of the window"
        return decided(Action.HOLD, current, f"{seen}; {why}")
    wanted = ceil(current * (low if is_short else high) / target)
    desired = _within(wanted, current, s, cluster) if is_short else max(wanted, s.min_partitions)
    needed = min(_executors_for(desired, s, cluster), _askable(s, cluster))
    is_asking = is_short and _may_ask(s, cluster) and cluster.executors < needed
    if is_short and desired <= current and not is_asking:
        why = f"{wanted} partitions would do, but the limit is {_limit(current, s, cluster)}"
    elif not is_short and desired >= current:
        why = "no fewer partitions would do"
    elif (
        last is not None
        # A query that is behind reads only what it can, so its rate is no argument against more partitions.
        and (keeps_up or not is_short)
        and _is_taken_back(last, current, desired, input_rate, s.dead_band)
    ):
        why = (
            f"{desired} partitions would take back the last change, but the input is about the "
            f"{last.input_rate or 0:,.0f} rows/s that it was then"
        )
    elif is_asking:
        return decided(Action.REQUEST, desired, seen, needed)
    else:
        return decided(Action.RESCALE, desired, seen)
    return decided(Action.HOLD, current, f"{seen}; {why}")


def _has_executors(s: ScalingSettings, cluster: Cluster) -> bool:
    """True if the number of executors may be changed, and it is known how many tasks one runs."""
    return s.max_executors is not None and cluster.slots is not None


def _may_ask(s: ScalingSettings, cluster: Cluster) -> bool:
    return _has_executors(s, cluster) and not cluster.is_refused


def _askable(s: ScalingSettings, cluster: Cluster) -> int:
    """How many executors there may be, besides those that get no partitions."""
    return max(0, (s.max_executors or 0) - cluster.drained - cluster.excluded)


def _is_spare(enough: int, s: ScalingSettings, cluster: Cluster) -> bool:
    """True if executors should be given back until `enough` are left, besides those that other queries use."""
    return _has_executors(s, cluster) and cluster.own > enough


def _released(current: int, s: ScalingSettings, cluster: Cluster, short: str | None) -> tuple[int, str] | None:
    """How many executors stay if some go, and why; `short` says that more partitions are wanted."""
    enough = _executors_for(current, s, cluster)
    if short is None:
        spare = _is_spare(enough, s, cluster)
        return (enough, f"{enough} are enough for {current} partitions") if spare else None
    # Executors that were drained and run nothing count against the limit. Others may come in their place.
    if cluster.emptied and _has_executors(s, cluster) and cluster.executors >= _askable(s, cluster):
        why = f"{short}, and {cluster.emptied} executors that were drained run nothing"
        return cluster.own - cluster.emptied, why
    return None


def _executors_for(partitions: int, s: ScalingSettings, cluster: Cluster) -> int:
    """How many executors it takes to run so many partitions at the same time, within the bounds."""
    wanted = max(s.min_executors, ceil(partitions / cluster.slots_per_executor))
    return wanted if s.max_executors is None else min(wanted, s.max_executors)


def _within(wanted: int, current: int, s: ScalingSettings, cluster: Cluster) -> int:
    """So many partitions, or as many as can run at the same time, but not fewer than there are."""
    return min(wanted, s.max_partitions, max(_slots(cluster, s), current))


def _limit(current: int, s: ScalingSettings, cluster: Cluster) -> str:
    if current >= s.max_partitions:
        return f"max_partitions={s.max_partitions}"
    return f"{_slots(cluster, s)} cores"


def _slots(cluster: Cluster, s: ScalingSettings) -> int:
    """How many partitions can run at the same time, including executors that may be asked for."""
    if cluster.slots is None:
        return s.max_partitions
    slots = cluster.slots
    if _may_ask(s, cluster):
        slots = max(slots, _askable(s, cluster) * cluster.slots_per_executor)
    return max(slots, s.min_partitions)


def _span(epochs: Sequence[Observation], epoch_s: float, end_s: float | None) -> float:
    end = _end(epochs, epoch_s)
    return (end if end_s is None else max(end_s, end)) - epochs[0].started_s


def _end(epochs: Sequence[Observation], epoch_s: float) -> float:
    """When the next epoch is due."""
    last = epochs[-1]
    return last.started_s + max(epoch_s, last.busy_s)


def _usual(epochs: Sequence[Observation], epoch_s: float) -> float:
    """The usual number of seconds from one epoch to the next."""
    gaps = [later.started_s - o.started_s for o, later in pairwise(epochs)]
    return max(epoch_s, median(gaps) if gaps else epochs[-1].busy_s)


def _utilization(epochs: Sequence[Observation], epoch_s: float, end_s: float | None) -> float:
    return sum(o.busy_s for o in epochs) / _span(epochs, epoch_s, end_s)


def _is_taken_back(last: Change, current: int, desired: int, input_rate: float, dead_band: float) -> bool:
    if last.input_rate is None:
        return False
    if last.target > last.source:
        return desired < current and input_rate >= last.input_rate * (1 - dead_band)
    return desired > current and input_rate <= last.input_rate * (1 + dead_band)


def _bounds(s: ScalingSettings) -> str:
    return f"{s.min_partitions} to {s.max_partitions} partitions"
