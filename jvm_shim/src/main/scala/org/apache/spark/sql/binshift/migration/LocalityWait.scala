package org.apache.spark.sql.binshift.migration

import java.util.UUID

import scala.collection.mutable

import org.apache.spark.SparkContext
import org.apache.spark.internal.{config, Logging}
import org.apache.spark.scheduler.TaskSchedulerImpl
import org.apache.spark.scheduler.binshift.TaskSets
import org.apache.spark.sql.execution.streaming.state.binshift.LogLine

/**
 * Makes tasks of a query wait longer for the executor that they prefer, while partitions are about to settle there.
 *
 * By default, Spark runs a task elsewhere if its executor was busy for 3 s, and the task's state is then loaded there.
 *
 * Relies on Spark: each stage reads the wait from the context's own settings when it is submitted, and again when an executor joins or
 * is lost. So this sets a longer wait for the whole application first. As long as that is set, a check each quarter of a second gives
 * the user's own wait back to stages of other work, and to those in which a task waits for an executor that gets no tasks any more.
 * The setting itself is restored when the last query lets go. Thread-safe.
 */
private[binshift] object LocalityWait extends Logging {
  private val WaitMs = 30000L
  private val Key = config.LOCALITY_WAIT_PROCESS.key

  /** The holders, with their queries. */
  private val owners = mutable.Map.empty[AnyRef, String]
  private var held: Option[Held] = None

  /** Does nothing beside queries in real-time mode, because Spark counts waiting tasks against the slots of their batches. */
  def hold(owner: AnyRef, query: UUID, context: SparkContext): Unit = synchronized {
    if (!held.exists(_.context eq context)) {
      // Another context was stopped, and its settings are gone with it.
      owners.clear()
      held.foreach(_.watch.close())
      held = None
    }
    if (!RealTimeQueries.areIn(context)) {
      owners(owner) = query.toString
      val ownMs = context.conf.get(config.LOCALITY_WAIT_PROCESS)
      if (held.isEmpty && ownMs < WaitMs) held = schedulerOf(context).map { scheduler =>
        val before = context.conf.getOption(Key)
        context.conf.set(Key, s"${WaitMs}ms")
        Held(context, before, new ExecutorWatch("locality", () => true, () => look(scheduler, ownMs)))
      }
    }
  }

  def release(owner: AnyRef): Unit = synchronized {
    if (owners.remove(owner).isDefined && owners.isEmpty) putBack()
  }

  /** Ends the longer wait for all holders. */
  def giveUp(context: SparkContext): Unit = synchronized {
    if (held.exists(_.context eq context)) {
      owners.clear()
      putBack()
    }
  }

  private def putBack(): Unit = {
    held.foreach { h =>
      h.watch.close()
      h.before.fold(h.context.conf.remove(Key))(h.context.conf.set(Key, _))
    }
    held = None
  }

  /** Doesn't hold the lock of this object, because the scheduler's lock may be held for long. */
  private def look(scheduler: TaskSchedulerImpl, ownMs: Long): Unit = {
    val queries = synchronized(owners.values.toSet)
    for {
      w <- TaskSets.shorten(scheduler, ownMs)(w => w.gone.nonEmpty || !w.query.exists(queries)) if w.gone.nonEmpty
    } logInfo(LogLine("waits", "query" -> w.query.getOrElse("none"), "stage" -> w.stage,
        "gone" -> w.gone.toSeq.sorted.mkString(","), "wait_ms" -> ownMs))
  }

  /** A scheduler of another kind keeps the user's own wait, because nothing could end a longer one. */
  private def schedulerOf(context: SparkContext): Option[TaskSchedulerImpl] = context.taskScheduler match {
    case scheduler: TaskSchedulerImpl => Some(scheduler)
    case _ => None
  }

  /** @param before the value of the setting before it was changed */
  private final case class Held(context: SparkContext, before: Option[String], watch: ExecutorWatch)
}
