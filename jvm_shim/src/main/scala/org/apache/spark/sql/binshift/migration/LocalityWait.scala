package org.apache.spark.sql.binshift.migration

import scala.collection.mutable

import org.apache.spark.internal.config
import org.apache.spark.sql.execution.streaming.runtime.MicroBatchExecution
import org.apache.spark.SparkContext

/**
 * Has tasks wait longer for the executor that they prefer, while partitions are about to settle there, or bins are copied.
 *
 * By default Spark runs a task elsewhere when its executor was busy for 3 s, and its state is then loaded there. What the old
 * executor had copied for it, or was about to send of it, is lost; so bins come from the checkpoint. A slow executor is busy
 * for as long as an epoch takes, so the wait is at least that long.
 *
 * Relies on Spark: each stage reads the wait from the context's own settings when it is submitted. So the wait holds for
 * all queries of the application; it is put back when the last one lets go. Thread-safe.
 */
private[binshift] object LocalityWait {
  private val MaxEpochMs = 600000L
  private val Key = config.LOCALITY_WAIT_PROCESS.key

  /** Who holds it, with the milliseconds that each wants, of which context, and what was set before. */
  private val owners = mutable.Map.empty[AnyRef, Long]
  private var held: Option[Held] = None

  /** @param leastMs of the wait, which is longer where the epochs of `query` are; 0 leaves the wait as it is */
  def hold(owner: AnyRef, query: MicroBatchExecution, leastMs: Long): Unit = if (leastMs > 0)
    hold(owner, query.sparkSession.sparkContext, math.max(leastMs, math.min(OpeningPace.of(query).epochMs, MaxEpochMs)))

  private def hold(owner: AnyRef, context: SparkContext, waitMs: Long): Unit = synchronized {
    if (!held.exists(_.context eq context)) {
      owners.clear()
      held = Some(Held(context, context.conf.getOption(Key), context.conf.get(config.LOCALITY_WAIT_PROCESS)))
    }
    if (!owners.get(owner).contains(waitMs)) {
      owners(owner) = waitMs
      held.foreach(set)
    }
  }

  def release(owner: AnyRef): Unit = synchronized {
    if (owners.remove(owner).isDefined) held.foreach { h =>
      set(h)
      if (owners.isEmpty) held = None
    }
  }

  private def set(h: Held): Unit = owners.values.maxOption.filter(_ > h.ms) match {
    case Some(longest) => h.context.conf.set(Key, s"${longest}ms")
    case None => h.before.fold(h.context.conf.remove(Key))(h.context.conf.set(Key, _))
  }

  /**
   * @param before what was set
   * @param ms     the wait without us
   */
  private final case class Held(context: SparkContext, before: Option[String], ms: Long)
}
