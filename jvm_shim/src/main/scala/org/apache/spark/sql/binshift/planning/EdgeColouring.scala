package org.apache.spark.sql.binshift.planning

import java.util.BitSet

import scala.collection.mutable

/**
 * Colours the edges of a bipartite multigraph with as few colours as its busiest node has edges, so that edges of one colour
 * are a matching; `planning/edge_colouring.py` has the algorithm and its proof. Pure.
 */
private[binshift] object EdgeColouring {

  /**
   * @param edges pairs of a left and a right node, which are different nodes even if they have the same number; may contain a pair
   *              several times
   * @return a colour for each edge, from 0 on; always the same for the same edges
   */
  def apply(edges: IndexedSeq[(Int, Int)]): Array[Int] = {
    val colouring = new EdgeColouring(edges)
    edges.indices.foreach(colouring.colour)
    colouring.colours
  }
}

private final class EdgeColouring(edges: IndexedSeq[(Int, Int)]) {
  private val colours = Array.fill(edges.size)(-1)
  private val degree =
    (edges.groupBy(_._1).values.map(_.size) ++ edges.groupBy(_._2).values.map(_.size)).maxOption.getOrElse(0)
  private val left = mutable.Map.empty[Int, Node]
  private val right = mutable.Map.empty[Int, Node]

  /** The free colours of a node, and for each other colour the edge that has it. */
  private final class Node {
    val free = new BitSet(degree)
    free.set(0, degree)
    val taken = mutable.Map.empty[Int, Int]
  }

  private def colour(edge: Int): Unit = {
    val (u, v) = edges(edge)
    val (atU, atV) = (node(isLeft = true, u), node(isLeft = false, v))
    var both = atU.free.nextSetBit(0)
    while (both >= 0 && !atV.free.get(both)) both = atU.free.nextSetBit(both + 1)
    if (both >= 0) give(edge, both)
    else {
      // A path that leaves v by u's colour arrives at left nodes by that colour, which is free at u. So it never reaches u.
      val colour = atU.free.nextSetBit(0)
      swapAlongPath(v, colour, atV.free.nextSetBit(0))
      give(edge, colour)
    }
  }

  /** Frees colour `first` at a right node that has `second` free. */
  private def swapAlongPath(from: Int, first: Int, second: Int): Unit = {
    val path = mutable.ArrayBuffer.empty[Int]
    var (isLeft, name, colour) = (false, from, first)
    var next = node(isLeft, name).taken.get(colour)
    while (next.isDefined) {
      val edge = next.get
      path += edge
      name = if (isLeft) edges(edge)._2 else edges(edge)._1
      isLeft = !isLeft
      colour = if (colour == first) second else first
      next = node(isLeft, name).taken.get(colour)
    }
    val swapped = path.map(edge => if (colours(edge) == first) second else first)
    path.foreach(take)
    path.zip(swapped).foreach { case (edge, colour) => give(edge, colour) }
  }

  private def give(edge: Int, colour: Int): Unit = {
    colours(edge) = colour
    ends(edge).foreach { end =>
      end.free.clear(colour)
      end.taken(colour) = edge
    }
  }

  private def take(edge: Int): Unit = ends(edge).foreach { end =>
    end.free.set(colours(edge))
    end.taken -= colours(edge)
  }

  private def ends(edge: Int): Seq[Node] = Seq(node(isLeft = true, edges(edge)._1), node(isLeft = false, edges(edge)._2))

  private def node(isLeft: Boolean, name: Int): Node =
    (if (isLeft) left else right).getOrElseUpdate(name, new Node)
}
