"""Computes target tables by load, which remove the skew of partitions with few moves. Pure functions.

Assigning bins so that the busiest partition has as little load as possible is NP-hard, and so is doing it with
as few moves as possible. So we use approximations with known bounds: longest first (Graham 1969: 4/3 of the
best), MULTIFIT (Coffman, Garey and Johnson 1978: 13/11), and for a limited number of moves the greedy algorithm
of Aggarwal, Motwani and Zhu (SPAA 2003: twice the best).
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Sequence
from dataclasses import KW_ONLY, dataclass
from typing import cast

import pyarrow as pa

from binshift.display import brief
from binshift.errors import PlanError, impossible
from binshift.numbers import is_whole
from binshift.planning.load import By, measured_loads
from binshift.planning.packing import Packing, longest_first, multifit
from binshift.planning.routing import RoutingTable, require_partitions

__all__ = [
    "TOLERANCE",
    "HotBin",
    "LoadTarget",
    "Target",
    "balanced",
    "balanced_by_bins",
    "balanced_by_load",
    "table_of",
]

#: How far the busiest partition may be above the possible minimum, so that few bins move.
TOLERANCE = 0.1
_HALVINGS = 16
#: Sums of the same loads in another order differ by less than this.
_ROUNDING = 1e-9


@dataclass(frozen=True, slots=True, repr=False)
class HotBin:
    """A bin that has more than a partition's fair share of the load. Neither bins nor keys can be split.

    Parameters
    ----------
    bin : int
        The bin.
    partition : int
        Its owner in the target table.
    load, fair_share : float
        Its load, and the load of all bins divided by the partitions, in the unit of the loads.
    """

    bin: int
    _: KW_ONLY
    partition: int
    load: float
    fair_share: float

    def __str__(self) -> str:
        return (
            f"bin {self.bin} (partition {self.partition}) alone has {self.load / self.fair_share:.1f} times "
            "the fair share of a partition; no placement helps, since a bin stays whole: see which keys are "
            "hot, and make them finer (by salting, for example), or have fewer partitions"
        )

    def __repr__(self) -> str:
        return brief(self)


@dataclass(frozen=True, slots=True, repr=False)
class LoadTarget:
    """A target table, and its effect on the load of the partitions.

    Parameters
    ----------
    table : RoutingTable
        The target.
    before, after : tuple of float
        Load of each partition in the table in force, and in the target.
    bound : float
        The least load that the busiest partition of any table can have: the fair share, or the hottest bin.
    moves : int
        Number of bins that move.
    hot : tuple of HotBin
        Bins with more than the fair share, hottest first.
    """

    table: RoutingTable
    _: KW_ONLY
    before: tuple[float, ...]
    after: tuple[float, ...]
    bound: float
    moves: int
    hot: tuple[HotBin, ...]

    def __str__(self) -> str:
        mean = sum(self.after) / len(self.after) or 1.0
        lines = [
            f"LoadTarget: {len(self.before)} -> {len(self.after)} partitions, {self.moves} bins move",
            f"  busiest partition: {max(self.before) / mean:.2f} -> {max(self.after) / mean:.2f} fair shares, "
            f"at best {self.bound / mean:.2f}",
        ]
        return "\n".join([*lines, *(f"  hot: {h}" for h in self.hot)])

    def __repr__(self) -> str:
        return f"<{str(self).splitlines()[0]}>"


#: The target of a plan: a number of partitions, a table, a target by load, or the owner of each bin.
Target = int | RoutingTable | LoadTarget | Sequence[int]


def table_of(to: Target, source: RoutingTable) -> RoutingTable:
    """The table for the argument `to`, if `source` is in force.

    Raises
    ------
    PlanError
        If it is impossible.
    """
    match to:
        case RoutingTable():
            return to
        case LoadTarget():
            return to.table
        case Sequence() if not isinstance(to, str | bytes):
            owners = tuple(to)
            if wrong := [o for o in owners if not is_whole(o)]:
                wanted = "the owner of each bin, a whole number of at least 0"
                raise impossible(PlanError, "assignment", wrong[0], wanted, what=f"the owner {wrong[0]!r}")
            return RoutingTable(max(owners, default=0) + 1, owners)
    require_partitions(to, source.bins)
    return source.balanced(cast(int, to))


def balanced(
    table: RoutingTable,
    stats: pa.Table | None,
    by: By = "rows",
    *,
    partitions: int | None = None,
    max_moves: int | None = None,
) -> LoadTarget:
    """The table that evens out the measured load, or the number of bins if nothing was measured.

    Parameters
    ----------
    table : RoutingTable
        The table in force.
    stats : pyarrow.Table or None
        The table that `Controller.stats` returns; None if nothing was measured.
    by : {"rows", "bytes", "both", "bins"}
        How load is measured; see `measured_loads`.
    partitions, max_moves : int, optional
        See `balanced_by_load`.

    Raises
    ------
    PlanError
        If a number is impossible, or more than `max_moves` bins lose their partition.
    """
    kind, loads = measured_loads(stats, table.bins, by)
    if kind == "bins" and max_moves is None:
        return balanced_by_bins(table, table.partitions if partitions is None else partitions)
    return balanced_by_load(table, loads, partitions=partitions, max_moves=max_moves)


def balanced_by_load(
    table: RoutingTable,
    loads: Sequence[float],
    *,
    partitions: int | None = None,
    max_moves: int | None = None,
    tolerance: float = TOLERANCE,
) -> LoadTarget:
    """The table whose busiest partition is within `tolerance` of the best possible, with few moves.

    More exactly, the busiest partition has at most 1 + `tolerance` times the lower bound for any table (the
    fair share, or the hottest bin). If the bins are too coarse for that, it has at most the load that results
    from packing all bins from scratch, which is within 2/11 of the best table (1/3 beyond two million bins
    times partitions). The same input always gives the same table.

    Parameters
    ----------
    table : RoutingTable
        The table in force.
    loads : sequence of float
        Load of each bin, in any unit, not negative. If all are 0, each bin counts as 1.
    partitions : int, optional
        Partitions of the target; by default as many as now.
    max_moves : int, optional
        The largest number of bins that may move. The busiest partition then has at most twice the least load
        that is possible with so many moves.
    tolerance : float
        A larger tolerance means fewer moves.

    Raises
    ------
    PlanError
        If a number is impossible, or more than `max_moves` bins lose their partition.
    """
    n = table.partitions if partitions is None else partitions
    require_partitions(n, table.bins)
    weights = _checked(table, loads)
    if max_moves is not None and not is_whole(max_moves):
        raise impossible(PlanError, "max_moves", max_moves, "a whole number of at least 0")
    homeless = sum(1 for owner in table.assignment if owner >= n)
    if max_moves is not None and homeless > max_moves:
        raise PlanError(
            f"{homeless} bins lose their partition when there are {n}, but only {max_moves} may move; "
            "allow more moves, or keep more partitions",
            condition="TOO_FEW_MOVES",
            max_moves=max_moves,
            needed=homeless,
        )
    if not 0 <= tolerance < float("inf"):
        raise impossible(PlanError, "tolerance", tolerance, f"a number of at least 0, such as {TOLERANCE}")
    problem = _Problem(table, weights, n)
    found = problem.within(problem.bound * (1 + tolerance))
    if max_moves is not None and found.moves > max_moves:
        found = problem.with_moves(max_moves)
    return problem.result(found)


def balanced_by_bins(table: RoutingTable, partitions: int) -> LoadTarget:
    """The table of partitions that own equally many bins, within one, with the fewest moves.

    Raises
    ------
    PlanError
        If `partitions` is not a whole number from 1 to the number of bins.
    """
    target = table.balanced(partitions)
    problem = _Problem(table, [1.0] * table.bins, partitions)
    return problem.result(problem.found(list(target.assignment)))


def _checked(table: RoutingTable, loads: Sequence[float]) -> list[float]:
    if len(loads) != table.bins:
        raise PlanError(
            f"there are {len(loads)} loads, but {table.bins} bins; give a load for each bin",
            condition="BINS_ARE_FIXED",
            bins=table.bins,
        )
    for bin_, load in enumerate(loads):
        if not 0 <= load < float("inf"):
            what = f"the load {load!r} of bin {bin_}"
            raise impossible(PlanError, "loads", load, "a number of at least 0", what=what)
    return [float(x) for x in loads] if any(loads) else [1.0] * len(loads)


@dataclass(frozen=True, slots=True)
class _Found:
    owners: list[int]
    busiest: float
    moves: int


class _Problem:
    """One search for a table: `loads` of the bins, and `n` partitions for them."""

    def __init__(self, table: RoutingTable, loads: list[float], n: int) -> None:
        self.table, self.loads, self.n = table, loads, n
        self.bound = max(sum(loads) / n, *loads)
        #: The bins of each partition that stays, heaviest first.
        self.owned: list[list[int]] = [[] for _ in range(n)]
        self.homeless: list[int] = []
        for bin_ in sorted(range(table.bins), key=lambda b: (-loads[b], b)):
            owner = table.assignment[bin_]
            (self.owned[owner] if owner < n else self.homeless).append(bin_)

    def within(self, limit: float) -> _Found:
        """The table with the fewest moves found in which no partition is above `limit`, or a fresh packing."""
        anew = longest_first(self.loads, self.n)
        if anew.busiest > limit:
            anew = min(anew, multifit(self.loads, self.n), key=lambda p: p.busiest)
            limit = max(limit, anew.busiest)
        candidates = [*self.shed(limit), self.pruned(self.renamed(anew), limit)]
        return min(candidates, key=lambda f: f.moves)

    def with_moves(self, max_moves: int) -> _Found:
        """The table with the least busy partitions found with so many moves at most."""
        found = [self.greedy(max_moves)]
        if not self.homeless:
            found.append(self.found(list(self.table.assignment)))
        low, high = self.bound, max(f.busiest for f in found)
        for _ in range(_HALVINGS):
            middle = (low + high) / 2
            near = [f for f in self.shed(middle) if f.moves <= max_moves]
            found += near
            low, high = (low, middle) if near else (middle, high)
        return min(found, key=lambda f: (f.busiest, f.moves))

    def shed(self, limit: float) -> Iterator[_Found]:
        """Takes as few bins as possible from partitions above the limit, with and without their heaviest."""
        for keep in (0, 1):
            removed = list(self.homeless)
            for bins in self.owned:
                removed += self.surplus(bins, limit, keep)
            found = self.placed(removed)
            if found.busiest <= limit * (1 + _ROUNDING):
                yield self.pruned(found.owners, limit)

    def surplus(self, bins: list[int], limit: float, keep: int) -> list[int]:
        """The fewest, and among those the lightest, of `bins` without which the others are within the limit."""
        excess = sum(self.loads[b] for b in bins) - limit * (1 + _ROUNDING)
        gone: list[int] = []
        rest = bins[keep:]
        while excess > 0 and rest:
            enough = [b for b in rest if self.loads[b] >= excess]
            chosen = enough[-1] if enough else rest[0]
            gone.append(chosen)
            if enough:
                break
            excess -= self.loads[chosen]
            rest = rest[1:]
        return gone

    def greedy(self, moves: int) -> _Found:
        """Takes the heaviest bin of the busiest partition, so many times; then puts all where least is."""
        left = [list(reversed(bins)) for bins in self.owned]
        heap = [(-sum(self.loads[b] for b in bins), p) for p, bins in enumerate(left)]
        heapq.heapify(heap)
        removed = list(self.homeless)
        while len(removed) < moves and left[heap[0][1]]:
            load, p = heap[0]
            bin_ = left[p].pop()
            removed.append(bin_)
            heapq.heapreplace(heap, (load + self.loads[bin_], p))
        return self.placed(removed)

    def placed(self, removed: list[int]) -> _Found:
        """Puts the removed bins, heaviest first, into the partition with the least load."""
        owners = list(self.table.assignment)
        gone = set(removed)
        heap = [(sum(self.loads[b] for b in bins if b not in gone), p) for p, bins in enumerate(self.owned)]
        heapq.heapify(heap)
        for bin_ in sorted(removed, key=lambda b: (-self.loads[b], b)):
            load, p = heap[0]
            owners[bin_] = p
            heapq.heapreplace(heap, (load + self.loads[bin_], p))
        return self.found(owners)

    def renamed(self, packing: Packing) -> list[int]:
        """Names each group of a packing after the partition from which it keeps the most bins."""
        kept: dict[tuple[int, int], int] = {}
        for group, owner in zip(packing.groups, self.table.assignment, strict=True):
            if owner < self.n:
                kept[group, owner] = kept.get((group, owner), 0) + 1
        names: dict[int, int] = {}
        for group, owner in sorted(kept, key=lambda pair: (-kept[pair], pair)):
            if group not in names and owner not in names.values():
                names[group] = owner
        free = iter(sorted(set(range(self.n)) - set(names.values())))
        for group in range(self.n):
            if group not in names:
                names[group] = next(free)
        return [names[g] for g in packing.groups]

    def pruned(self, owners: list[int], limit: float) -> _Found:
        """Undoes moves that aren't needed, lightest bins first, because those leave the most room."""
        owners = list(owners)
        sums = self.sums(owners)
        moved = [b for b, owner in enumerate(self.table.assignment) if owner != owners[b] and owner < self.n]
        for bin_ in sorted(moved, key=lambda b: (self.loads[b], b)):
            origin = self.table.assignment[bin_]
            if sums[origin] + self.loads[bin_] <= limit * (1 + _ROUNDING):
                sums[origin] += self.loads[bin_]
                sums[owners[bin_]] -= self.loads[bin_]
                owners[bin_] = origin
        return self.found(owners)

    def found(self, owners: list[int]) -> _Found:
        moves = sum(1 for old, new in zip(self.table.assignment, owners, strict=True) if old != new)
        return _Found(owners, max(self.sums(owners)), moves)

    def sums(self, owners: Sequence[int], partitions: int = 0) -> list[float]:
        out = [0.0] * max(self.n, partitions)
        for owner, load in zip(owners, self.loads, strict=True):
            out[owner] += load
        return out

    def result(self, found: _Found) -> LoadTarget:
        before = self.sums(self.table.assignment, self.table.partitions)[: self.table.partitions]
        fair = sum(self.loads) / self.n
        hot = sorted((-load, b) for b, load in enumerate(self.loads) if load > fair * (1 + _ROUNDING))
        return LoadTarget(
            RoutingTable(self.n, tuple(found.owners), epoch=self.table.epoch),
            before=tuple(before),
            after=tuple(self.sums(found.owners)),
            bound=self.bound,
            moves=found.moves,
            hot=tuple(HotBin(b, partition=found.owners[b], load=-load, fair_share=fair) for load, b in hot),
        )
