package org.apache.spark.sql.execution.streaming.state.binshift.routing

/** How the bins of a step come to their new owners. */
private[sql] sealed abstract class Delivery(val name: String)

private[sql] object Delivery {
  /** Bins are copied before the step, and the copies follow their changes. */
  case object Ahead extends Delivery("ahead")

  /** Bins are sent, or read from the checkpoint, in the epoch of the step, which waits for them. */
  case object AtSwitch extends Delivery("at-switch")

  /** Each bin is fetched after the step, when it is first touched. Each one travels as a part of its own. */
  case object OnDemand extends Delivery("on-demand")

  /**
   * Partitions that are empty at the step begin with all files of another partition. All other bins are sent in the epoch of the
   * step, and so are all bins of a store with families that are read in order.
   *
   * @param splits maps each of these new partitions to the one with whose files it begins
   */
  final case class WholeFiles(splits: Map[Int, Int]) extends Delivery("whole-files")

  /** The delivery with this name. Only whole files use `splits`. */
  def of(name: String, splits: Map[Int, Int]): Option[Delivery] =
    Seq(Ahead, AtSwitch, OnDemand, WholeFiles(splits)).find(_.name == name)
}
