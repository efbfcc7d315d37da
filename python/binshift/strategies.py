"""How the moves of a migration are cut into steps. Strategies propose; the controller enforces.

A strategy is a pure function of two routing tables. The names follow Megaphone (VLDB 2019), section 3.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from itertools import chain, zip_longest
from typing import Protocol

from binshift.errors import PlanError
from binshift.plan import MigrationPlan, Step
from binshift.routing import Move, RoutingTable

__all__ = ["AllAtOnce", "Batched", "Fluid", "OnDemand", "Strategy"]


class Strategy(Protocol):
    """Cuts the way from one table to another into steps."""

    def plan(self, source: RoutingTable, target: RoutingTable) -> MigrationPlan:
        """A plan that starts at `source`, ends at `target` and moves no bin that need not move."""
        ...


@dataclass(frozen=True, slots=True)
class AllAtOnce:
    """Everything in one step: the shortest migration and the longest epoch.

    Parameters
    ----------
    gap : int
        Without effect, since there is one step; accepted as all strategies do.
    """

    gap: int = 0

    def plan(self, source: RoutingTable, target: RoutingTable) -> MigrationPlan:
        """See `Strategy.plan`."""
        return _cut(source, target, max(1, source.bins), "all-at-once", self.gap)


@dataclass(frozen=True, slots=True)
class Fluid:
    """One bin per step: the longest migration and the shortest epochs.

    Parameters
    ----------
    gap : int
        Epochs that stay idle between two steps.
    """

    gap: int = 0

    def plan(self, source: RoutingTable, target: RoutingTable) -> MigrationPlan:
        """See `Strategy.plan`."""
        return _cut(source, target, 1, "fluid", self.gap)


@dataclass(frozen=True, slots=True)
class OnDemand:
    """Everything at once, and each bin fetched when it is first touched: Meces (ATC 2022), section 4.

    The new owners take over at one epoch. A record whose bin has not come yet waits for that bin alone;
    the old owners send the bins that were touched most first, and what nobody touches follows over the
    next epochs. Nothing is copied before, whatever `prepare` says.

    Parameters
    ----------
    gap : int
        Without effect, since there is one step; accepted as all strategies do.
    """

    gap: int = 0

    def plan(self, source: RoutingTable, target: RoutingTable) -> MigrationPlan:
        """See `Strategy.plan`."""
        return _cut(source, target, max(1, source.bins), "on-demand", self.gap)


@dataclass(frozen=True, slots=True)
class Batched:
    """A fixed number of bins per step, taken from all pairs of source and target in turn.

    Parameters
    ----------
    bins_per_step : int
        At least 1.
    gap : int
        Epochs that stay idle between two steps.

    Raises
    ------
    PlanError
        If `bins_per_step` is not a whole number from 1 on.
    """

    bins_per_step: int
    gap: int = 0

    def __post_init__(self) -> None:
        n = self.bins_per_step
        if isinstance(n, bool) or not isinstance(n, int) or n < 1:
            raise PlanError(f"bins_per_step={n!r} is not a number of bins; give an int from 1 on")

    def plan(self, source: RoutingTable, target: RoutingTable) -> MigrationPlan:
        """See `Strategy.plan`."""
        return _cut(source, target, self.bins_per_step, f"batched({self.bins_per_step})", self.gap)


def _cut(source: RoutingTable, target: RoutingTable, size: int, name: str, gap: int) -> MigrationPlan:
    moves = _in_turn(source.moves_to(target))
    parts = [moves[i : i + size] for i in range(0, len(moves), size)]
    if not parts and source.partitions != target.partitions:
        parts = [()]
    # Partitions that come are there from the first step on; those that go stay until the last.
    meanwhile = max(source.partitions, target.partitions)
    steps = tuple(
        Step(part, target.partitions if i == len(parts) - 1 else meanwhile) for i, part in enumerate(parts)
    )
    return MigrationPlan(source, steps, name, gap)


def _in_turn(moves: tuple[Move, ...]) -> tuple[Move, ...]:
    """The moves with the pairs of source and target taking turns, so that a step loads all alike."""
    pairs: defaultdict[tuple[int, int], list[Move]] = defaultdict(list)
    for m in moves:
        pairs[m.source, m.target].append(m)
    rounds = zip_longest(*(pairs[key] for key in sorted(pairs)))
    return tuple(m for m in chain.from_iterable(rounds) if m is not None)
