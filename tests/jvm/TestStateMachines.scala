package org.apache.spark.sql.execution.streaming.state.binshift

import scala.util.Try

import org.apache.spark.sql.execution.streaming.state.binshift.provider.StoreRole
import org.apache.spark.sql.execution.streaming.state.binshift.shipping.CopyState

/** Checks, for each two states of a copy, whether the one may follow the other, and what a store is at a version. */
object TestStateMachines {
  /** For each state of a copy, which of them may follow it, in the order of the rows. */
  private val Copies: Seq[(CopyState, String)] = {
    import CopyState._
    Seq(
      Fetching -> " x x x",
      Damaged -> " xx  x",
      Reading -> " x x x",
      Fetched -> " x  xx",
      Staged -> " x   x",
      Failed -> "     x")
  }

  /** Returns `null`, or what is wrong. */
  def check(): String =
    (wrong(CopyState.Next, Copies) ++ wrongRoles).nextOption().orNull

  private def wrong[S](next: Map[S, Set[S]], expected: Seq[(S, String)]): Iterator[String] = {
    val states = expected.map(_._1)
    val pairs = for ((from, row) <- expected.iterator; (to, legal) <- states.zip(row)) yield {
      val machine = new StateMachine("it", next, from)
      val thrown = Try(machine.become(to)).failed.toOption
      if (legal == 'x') Option.when(thrown.nonEmpty || machine.now != to)(s"$from cannot become $to: $thrown")
      else {
        val isRefused = thrown.exists(e =>
          e.isInstanceOf[IllegalStateException] && e.getMessage.startsWith(s"it is $from and cannot become $to"))
        Option.when(!isRefused || machine.now != from)(s"$from becomes $to: $thrown")
      }
    }
    pairs.flatten ++ Option.when(next.keySet != states.toSet)(s"the table has other states than $states")
  }

  private val Versions = 0L to 5L
  private val TakenOverAt = None +: Versions.map(Option(_))

  private def wrongRoles: Iterator[String] = for {
    version <- Versions.iterator
    takenOverAt <- TakenOverAt
    ofRun <- Seq(true, false)
    side = takenOverAt.fold(1)(epoch => version.compare(epoch))
    role =
      if (side < 0) StoreRole.Stock
      else if (!ofRun) StoreRole.Read
      else if (side == 0) StoreRole.Takeover
      else StoreRole.Routed
    found = StoreRole.at(version, takenOverAt, ofRun)
    if found != role || found.followsTable != (ofRun && side >= 0)
  } yield s"version $version of $takenOverAt, $ofRun is $found"
}
