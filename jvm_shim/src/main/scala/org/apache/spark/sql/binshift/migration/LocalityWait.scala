package org.apache.spark.sql.binshift.migration

import scala.collection.mutable

import org.apache.spark.internal.config
import org.apache.spark.SparkContext

/**
 * Has tasks wait longer for the executor that they prefer, while partitions are about to settle there.
 *
 * By default Spark runs a task elsewhere when its executor was busy for 3 s, and its state is then loaded there.
 *
 * Relies on Spark: each stage reads the wait from the context's own settings when it is submitted. So the wait holds for
 * all queries of the application; it is put back when the last one lets go. Thread-safe.
 */
private[binshift] object LocalityWait {
  private val WaitMs = 30000L
  private val Key = config.LOCALITY_WAIT_PROCESS.key

  /** Who holds it, of which context, and what was set before. */
  private val owners = mutable.Set.empty[AnyRef]
  private var held: Option[Held] = None

  /** Does nothing beside queries in real-time mode, whose tasks would wait, too. */
  def hold(owner: AnyRef, context: SparkContext): Unit = synchronized {
    if (!held.exists(_.context eq context)) {
      owners.clear()
      held = None
    }
    if (!RealTimeQueries.areIn(context) && owners.add(owner) && held.isEmpty && context.conf.get(
        config.LOCALITY_WAIT_PROCESS) < WaitMs) {
      held = Some(Held(context, context.conf.getOption(Key)))
      context.conf.set(Key, s"${WaitMs}ms")
    }
  }

  def release(owner: AnyRef): Unit = synchronized {
    if (owners.remove(owner) && owners.isEmpty) putBack()
  }

  /** Nobody holds it any more. */
  def giveUp(context: SparkContext): Unit = synchronized {
    if (held.exists(_.context eq context)) {
      owners.clear()
      putBack()
    }
  }

  private def putBack(): Unit = {
    held.foreach(h => h.before.fold(h.context.conf.remove(Key))(h.context.conf.set(Key, _)))
    held = None
  }

  private final case class Held(context: SparkContext, before: Option[String])
}
