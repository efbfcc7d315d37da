"""Colours the edges of a bipartite multigraph, so that edges of one colour are a matching.

By König's theorem, as many colours are enough as the busiest node has edges, and fewer are impossible. The
algorithm is also the proof: an edge gets a colour that is free at both ends; if there is none, the colours
along an alternating path are swapped, which makes one free. With E edges and N nodes this takes at most
E * N steps, and far fewer in practice, because most edges find a free colour at once.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

__all__ = ["edge_colours", "max_degree"]

Edge = tuple[int, int]
Node = tuple[int, int]


def max_degree(edges: Sequence[Edge]) -> int:
    """The most edges at one node. A node on the left and its namesake on the right are different nodes."""
    left, right = Counter(u for u, _ in edges), Counter(v for _, v in edges)
    return max((*left.values(), *right.values()), default=0)


def edge_colours(edges: Sequence[Edge]) -> list[int]:
    """Colours each edge, from 0 on, with as few colours as possible, so that no two edges of one colour meet.

    Parameters
    ----------
    edges : sequence of (left, right)
        The same pair may occur several times. Left and right nodes are different, even if they have the same
        name.

    Returns
    -------
    list of int
        Colours 0 to `max_degree(edges)` - 1, in the order of the edges; always the same for the same edges.
    """
    every = (1 << max_degree(edges)) - 1
    nodes = [*((0, u) for u in sorted({u for u, _ in edges})), *((1, v) for v in sorted({v for _, v in edges}))]
    # For each node: the free colours as bits, and for each other colour the edge that has it.
    free = dict.fromkeys(nodes, every)
    taken: dict[Node, dict[int, int]] = {node: {} for node in nodes}
    colours = [-1] * len(edges)

    def give(edge: int, colour: int) -> None:
        colours[edge] = colour
        for side, name in enumerate(edges[edge]):
            free[side, name] ^= 1 << colour
            taken[side, name][colour] = edge

    def take(edge: int) -> None:
        for side, name in enumerate(edges[edge]):
            free[side, name] ^= 1 << colours[edge]
            del taken[side, name][colours[edge]]

    def swap_along_path(side: int, name: int, first: int, second: int) -> None:
        """Frees colour `first` at a node that has `second` free."""
        path = []
        colour = first
        while (edge := taken[side, name].get(colour)) is not None:
            path.append(edge)
            side, name = 1 - side, edges[edge][1 - side]
            colour = second if colour == first else first
        swapped = [second if colours[edge] == first else first for edge in path]
        for edge in path:
            take(edge)
        for edge, new in zip(path, swapped, strict=True):
            give(edge, new)

    for edge, (u, v) in enumerate(edges):
        both = free[0, u] & free[1, v]
        if not both:
            # A path that leaves v by u's colour arrives at left nodes by that colour, which is free at u. So it
            # never reaches u.
            colour = _lowest(free[0, u])
            swap_along_path(1, v, colour, _lowest(free[1, v]))
            give(edge, colour)
        else:
            give(edge, _lowest(both))
    return colours


def _lowest(bits: int) -> int:
    return (bits & -bits).bit_length() - 1
