"""Packs loads into a number of groups so that the heaviest group is light."""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import dataclass

__all__ = ["Packing", "longest_first", "multifit"]

#: With more loads times groups than this, MULTIFIT would cost more time than it is worth.
_MAX_WORK = 2_000_000
_HALVINGS = 10


@dataclass(frozen=True, slots=True)
class Packing:
    """The group of each load, and the sum of the heaviest group."""

    groups: tuple[int, ...]
    busiest: float


def longest_first(loads: Sequence[float], n: int) -> Packing:
    """Puts each load, heaviest first, into the lightest group: at most 4/3 - 1/3n of the best (Graham 1969)."""
    groups = [0] * len(loads)
    heap = [(0.0, g) for g in range(n)]
    for i in sorted(range(len(loads)), key=lambda i: (-loads[i], i)):
        load, group = heap[0]
        groups[i] = group
        heapq.heapreplace(heap, (load + loads[i], group))
    return Packing(tuple(groups), max(heap)[0])


def multifit(loads: Sequence[float], n: int) -> Packing:
    """Searches for the least capacity for which each load, heaviest first, fits in the first group with room.

    The result is at most 13/11 of the best, plus 1/1024 because the search ends there (Coffman, Garey and
    Johnson, SIAM J. Comput. 1978; the bound by Yue 1990). Large inputs are packed `longest_first`.
    """
    best = longest_first(loads, n)
    if len(loads) * n > _MAX_WORK:
        return best
    low, high = max(sum(loads) / n, *loads), best.busiest
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        packing = _first_fit(loads, n, middle)
        if packing is None:
            low = middle
        else:
            high = min(middle, packing.busiest)
            best = min(best, packing, key=lambda p: p.busiest)
    return best


def _first_fit(loads: Sequence[float], n: int, capacity: float) -> Packing | None:
    groups = [0] * len(loads)
    sums = [0.0] * n
    for i in sorted(range(len(loads)), key=lambda i: (-loads[i], i)):
        group = next((g for g, s in enumerate(sums) if s + loads[i] <= capacity), None)
        if group is None:
            return None
        groups[i] = group
        sums[group] += loads[i]
    return Packing(tuple(groups), max(sums))
