package org.apache.spark.sql.execution.streaming.state.binshift.routing

/** How the bins of a step come to their new owners. */
private[sql] sealed abstract class Delivery(val name: String)

private[sql] object Delivery {
  /** They are copied before the step, and the copies follow their changes. */
  case object Ahead extends Delivery("ahead")

  /** They are sent in the epoch of the step, which waits for them, or read from the checkpoint. */
  case object AtSwitch extends Delivery("at-switch")

  /** Each is fetched when it is first touched, after the step. Bins travel one by one, each as a part of its own. */
  case object OnDemand extends Delivery("on-demand")

  /**
   * Partitions that are empty at the step begin with all files of another one; other bins are sent in the epoch of the step. Bins of
   * a store that has families which are read in order are all sent.
   *
   * @param splits maps such partitions to the one with whose files they begin
   */
  final case class WholeFiles(splits: Map[Int, Int]) extends Delivery("whole-files")

  /** The delivery that is called `name`; `splits` are those of whole files. */
  def of(name: String, splits: Map[Int, Int]): Option[Delivery] =
    Seq(Ahead, AtSwitch, OnDemand, WholeFiles(splits)).find(_.name == name)
}
