"""Colouring the edges of a bipartite multigraph with as few colours as possible."""

import random
import time

from hypothesis import given
from hypothesis import strategies as st

from binshift.planning.edge_colouring import edge_colours, max_degree

EDGES = st.lists(st.tuples(st.integers(0, 7), st.integers(0, 7)), max_size=60)


@given(EDGES)
def test_no_two_edges_of_one_colour_meet(edges):
    colours = edge_colours(edges)
    for side in (0, 1):
        ends = [(edge[side], colour) for edge, colour in zip(edges, colours, strict=True)]
        assert len(set(ends)) == len(ends)


@given(EDGES)
def test_there_are_as_many_colours_as_the_busiest_node_has_edges(edges):
    assert set(edge_colours(edges)) == set(range(max_degree(edges)))


@given(EDGES)
def test_the_same_edges_get_the_same_colours(edges):
    assert edge_colours(edges) == edge_colours(list(edges))


def test_a_complete_graph_needs_swapped_paths_and_still_no_colour_more():
    edges = [(u, v) for u in range(12) for v in range(12)]
    random.Random(7).shuffle(edges)
    assert max(edge_colours(edges)) == 11


def test_the_largest_graphs_are_coloured_in_seconds():
    rng = random.Random(1)
    shapes = {
        "at random": [(rng.randrange(1000), rng.randrange(1000)) for _ in range(1 << 16)],
        "one to one": [(0, 0)] * (1 << 16),
        "one to all": [(0, i % 1000) for i in range(1 << 16)],
    }
    for edges in shapes.values():
        before = time.process_time()
        assert max(edge_colours(edges)) == max_degree(edges) - 1
        assert time.process_time() - before < 10
