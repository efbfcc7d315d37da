package org.apache.spark.sql.binshift.migration

/**
 * Decides how many new partitions one epoch opens: all of them, unless the epoch would take noticeably longer than others.
 *
 * @param epochMs milliseconds that an epoch takes; 0 if that isn't known
 * @param slackMs milliseconds that are left until the next trigger
 * @param cores   tasks that run at a time
 * @param storeMs milliseconds that opening a store adds to the work of its epoch
 */
private[binshift] final case class OpeningPace(epochMs: Long, slackMs: Long, cores: Int, storeMs: Long) {
  import OpeningPace._

  /**
   * @param inAll  partitions that the step opens, in up to four epochs
   * @param stores stores of a partition, of all operators
   */
  def partitionsAtOnce(inAll: Int, stores: Int): Int = {
    val affordableMs = math.max(epochMs / EpochShare, slackMs / 2) * math.max(cores, 1)
    val affordable = math.min(affordableMs / (math.max(stores, 1) * math.max(storeMs, 1)), inAll.toLong).toInt
    Seq(1, (inAll + MaxEpochs - 1) / MaxEpochs, affordable).max
  }
}

private[binshift] object OpeningPace {
  /** Measured: a task that opens an empty store on a local disk, and commits it, takes up to 0.1 s more than another. */
  private val StoreMs = 100L
  /** Measured: the longest epochs of a query without changes take half as long again as the median one. */
  private val EpochShare = 2
  private val MaxEpochs = 4
  /** In real-time mode, a batch is minutes long, and its pause doesn't depend on how many partitions are opened. */
  val AllAtOnce: OpeningPace = OpeningPace(epochMs = 0, slackMs = Int.MaxValue, cores = Int.MaxValue, storeMs = 1)

  /**
   * @param took       milliseconds that the latest epochs took
   * @param intervalMs milliseconds between two triggers; 0 if they follow at once
   * @param opened     how many stores earlier epochs opened
   */
  def of(took: Map[Long, Long], intervalMs: Long, cores: Int, opened: Iterable[(Long, Int)]): OpeningPace = {
    val epochMs = median(took.values.toSeq).getOrElse(0L)
    val storeMs = for ((epoch, stores) <- opened.toSeq; ms <- took.get(epoch)) yield math.max(ms - epochMs, 0L) * cores / stores
    OpeningPace(epochMs, math.max(intervalMs - epochMs, 0L), cores, median(storeMs).getOrElse(StoreMs))
  }

  private def median(values: Seq[Long]): Option[Long] = values.sorted.lift(values.size / 2)
}
