package org.apache.spark.sql.execution.streaming.state.binshift.routing

/**
 * The changes for one partition at one epoch.
 *
 * @param arriving bins to adopt, by the partition that owned them at the epoch before
 * @param leaving  bins to release, ascending
 * @param staying  bins that were owned before and still are
 * @param isNew    whether the partition did not exist at the epoch before. If so, any files in its directory are from an earlier
 *                 life and must not be read.
 */
private[binshift] final case class BinSwitch(
    arriving: Map[Int, Seq[Int]],
    leaving: Seq[Int],
    staying: Int => Boolean,
    isNew: Boolean) {

  /** The same switch, restricted to some bins. */
  def of(bins: Set[Int]): BinSwitch = copy(
    arriving = arriving.map { case (source, all) => source -> all.filter(bins) }.filter(_._2.nonEmpty),
    leaving = leaving.filter(bins))

  def isEmpty: Boolean = arriving.isEmpty && leaving.isEmpty && !isNew
}

private[binshift] object BinSwitch {
  /** The switch of a partition that starts empty. */
  val Fresh: BinSwitch = BinSwitch(Map.empty, Nil, _ => false, isNew = true)

  def between(before: RoutingTable, now: RoutingTable, partition: Int): BinSwitch = {
    require(before.bins == now.bins,
      s"the number of bins changed from ${before.bins} to ${now.bins}; it is fixed for a checkpoint")
    val changed = (0 until now.bins).filter(b => before.owner(b) != now.owner(b))
    BinSwitch(
      arriving = changed.filter(now.owner(_) == partition).groupBy(before.owner),
      leaving = changed.filter(before.owner(_) == partition),
      staying = bin => before.owner(bin) == partition && now.owner(bin) == partition,
      isNew = partition >= before.partitions)
  }
}
