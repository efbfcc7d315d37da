"""Cuts the moves of a migration into steps. Strategies propose; the controller enforces.

A strategy is a pure function of two routing tables. The names follow Megaphone (VLDB 2019), section 3.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import KW_ONLY, dataclass
from itertools import chain, zip_longest
from typing import Protocol

from binshift.arguments import checked
from binshift.errors import PlanError, impossible
from binshift.numbers import is_whole
from binshift.planning.edge_colouring import edge_colours
from binshift.planning.plan import MigrationPlan, Step
from binshift.planning.routing import Move, RoutingTable

__all__ = [
    "AllAtOnce",
    "Batched",
    "Fluid",
    "OnDemand",
    "Optimized",
    "Strategy",
    "default_strategy",
    "in_steps",
    "parse_strategy",
    "strategy_at_once",
    "strategy_of",
]


class Strategy(Protocol):
    """Cuts the way from one table to another into steps."""

    def plan(self, source: RoutingTable, target: RoutingTable) -> MigrationPlan:
        """A plan that starts at `source`, ends at `target`, and moves only bins that have to move."""
        ...


@checked(PlanError)
@dataclass(frozen=True, slots=True)
class AllAtOnce:
    """Everything in one step: the shortest migration and the longest epoch.

    Parameters
    ----------
    gap : int
        Without effect, because there is one step; all strategies accept it.
    """

    _: KW_ONLY
    gap: int = 0

    def plan(self, source: RoutingTable, target: RoutingTable) -> MigrationPlan:
        """See `Strategy.plan`."""
        return _cut(source, target, max(1, source.bins), "all-at-once", self.gap)


@checked(PlanError)
@dataclass(frozen=True, slots=True)
class Fluid:
    """One bin per step: the longest migration and the shortest epochs.

    Parameters
    ----------
    gap : int
        Epochs that stay idle between two steps.
    """

    _: KW_ONLY
    gap: int = 0

    def plan(self, source: RoutingTable, target: RoutingTable) -> MigrationPlan:
        """See `Strategy.plan`."""
        return _cut(source, target, 1, "fluid", self.gap)


@checked(PlanError)
@dataclass(frozen=True, slots=True)
class OnDemand:
    """Everything at once, with state fetched when it is first touched, as in Meces (ATC 2022), section 4.

    The new owners take over at one epoch. Operators that look up state by key fetch the rows that their epoch
    touches, and the bins follow over the next epochs. Other operators wait for each bin that they touch. The
    old owners send the most touched bins first. Nothing is copied ahead, whatever `prepare` says.

    Parameters
    ----------
    gap : int
        Without effect, because there is one step; all strategies accept it.
    """

    _: KW_ONLY
    gap: int = 0

    def plan(self, source: RoutingTable, target: RoutingTable) -> MigrationPlan:
        """See `Strategy.plan`."""
        return _cut(source, target, max(1, source.bins), "on-demand", self.gap, on_demand=True)


@checked(PlanError)
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
        If `bins_per_step` is not a whole number of at least 1.
    """

    bins_per_step: int
    _: KW_ONLY
    gap: int = 0

    def __post_init__(self) -> None:
        _require_bins("bins_per_step", self.bins_per_step)

    def plan(self, source: RoutingTable, target: RoutingTable) -> MigrationPlan:
        """See `Strategy.plan`."""
        return _cut(source, target, self.bins_per_step, f"batched({self.bins_per_step})", self.gap)


@checked(PlanError)
@dataclass(frozen=True, slots=True)
class Optimized:
    """As many bins per step as can move without any partition being busier than another.

    In a step, no partition sends more than `bins_per_pair` bins, and none receives more; sent and received bins
    are counted separately. No plan with this property has fewer steps. The moves are the edges of a bipartite
    multigraph, and a step consists of `bins_per_pair` matchings. By König's theorem, the graph can be divided
    into as many matchings as its busiest node has edges. Megaphone has a strategy of the same name.

    Parameters
    ----------
    bins_per_pair : int
        The most bins that a partition sends, and the most that it receives, in one step; at least 1.
    gap : int
        Epochs that stay idle between two steps.

    Raises
    ------
    PlanError
        If `bins_per_pair` is not a whole number of at least 1.
    """

    bins_per_pair: int = 1
    _: KW_ONLY
    gap: int = 0

    def __post_init__(self) -> None:
        _require_bins("bins_per_pair", self.bins_per_pair)

    def plan(self, source: RoutingTable, target: RoutingTable) -> MigrationPlan:
        """See `Strategy.plan`."""
        moves = source.moves_to(target)
        rounds: defaultdict[int, list[Move]] = defaultdict(list)
        for move, colour in zip(moves, edge_colours([(m.source, m.target) for m in moves]), strict=True):
            rounds[colour // self.bins_per_pair].append(move)
        parts = [rounds[i] for i in sorted(rounds)]
        return in_steps(source, target, parts, name=f"optimized({self.bins_per_pair})", gap=self.gap)


def default_strategy(source: RoutingTable, *, gap: int = 0) -> Strategy:
    """A quarter of the bins per step. Such a step costs its epoch little, and smaller ones not much less."""
    return Batched(max(1, source.bins // _DEFAULT_STEPS), gap=gap)


def strategy_at_once(*, fetches_rows: bool) -> Strategy:
    """The soonest strategy without copies: on demand if the operators allow it, else all at once."""
    return OnDemand() if fetches_rows else AllAtOnce()


def strategy_of(strategy: Strategy | str) -> Strategy:
    """The strategy for an argument, which may be a strategy or a name.

    Raises
    ------
    PlanError
        If it is neither.
    """
    if isinstance(strategy, str):
        return parse_strategy(strategy)
    if isinstance(strategy, type) or not callable(getattr(strategy, "plan", None)):
        wanted = f"a strategy, such as binshift.Batched(16), or the name of one: {_NAMES}"
        raise impossible(PlanError, "strategy", strategy, wanted)
    return strategy


def parse_strategy(text: str, *, gap: int = 0) -> Strategy:
    """The strategy with a name as on the command line: `fluid`, `batched:16`, `optimized:2`.

    Raises
    ------
    PlanError
        If there is no such strategy, or its number is no number.
    """
    name, _, size = text.partition(":")
    if name not in _BY_NAME or (size and not size.isdigit()) or bool(size) is not (name in _SIZED):
        raise PlanError(
            f"strategy {text!r} is unknown; give one of {_NAMES}",
            condition="INVALID_VALUE",
            name="strategy",
            value=text,
        )
    return _BY_NAME[name](int(size), gap=gap) if size else _BY_NAME[name](gap=gap)


_DEFAULT_STEPS = 4
_BY_NAME: dict[str, Callable[..., Strategy]] = {
    "all-at-once": AllAtOnce,
    "fluid": Fluid,
    "batched": Batched,
    "optimized": Optimized,
    "on-demand": OnDemand,
}
_SIZED = ("batched", "optimized")
_NAMES = ", ".join(n + ":BINS" * (n in _SIZED) for n in _BY_NAME)


def _require_bins(name: str, value: object) -> None:
    if not is_whole(value, 1):
        raise impossible(PlanError, name, value, "a whole number of at least 1")


def _cut(
    source: RoutingTable, target: RoutingTable, size: int, name: str, gap: int, *, on_demand: bool = False
) -> MigrationPlan:
    moves = _in_turn(source.moves_to(target))
    parts = [moves[i : i + size] for i in range(0, len(moves), size)]
    return in_steps(source, target, parts, name=name, gap=gap, on_demand=on_demand)


def in_steps(
    source: RoutingTable,
    target: RoutingTable,
    parts: Sequence[Sequence[Move]],
    *,
    name: str,
    gap: int = 0,
    on_demand: bool = False,
) -> MigrationPlan:
    """Makes a plan whose steps are `parts`. Strategies use it for their result.

    Parameters
    ----------
    source, target : RoutingTable
        Where the plan begins and ends.
    parts : sequence of sequence of Move
        The moves of each step; all together lead from `source` to `target`. If it is empty, there is one step
        if the number of partitions changes, and none otherwise.
    name : str
        Name of the strategy.
    gap : int
        Epochs that stay idle between two steps.
    on_demand : bool
        Whether each bin is fetched when it is first touched.
    """
    if not parts and source.partitions != target.partitions:
        parts = [()]
    # New partitions exist from the first step on, and partitions that go away stay until the last step.
    meanwhile = max(source.partitions, target.partitions)
    steps = tuple(
        Step(tuple(part), partitions=target.partitions if i == len(parts) - 1 else meanwhile)
        for i, part in enumerate(parts)
    )
    return MigrationPlan(source, steps=steps, strategy=name, gap=gap, on_demand=on_demand)


def _in_turn(moves: tuple[Move, ...]) -> tuple[Move, ...]:
    """Orders moves so that the pairs of source and target take turns, and a step loads all of them alike."""
    pairs: defaultdict[tuple[int, int], list[Move]] = defaultdict(list)
    for m in moves:
        pairs[m.source, m.target].append(m)
    rounds = zip_longest(*(pairs[key] for key in sorted(pairs)))
    return tuple(m for m in chain.from_iterable(rounds) if m is not None)
