package org.apache.spark.sql.execution.streaming.state.binshift

import org.json4s.{DefaultFormats, Formats}
import org.json4s.jackson.JsonMethods.parse
import org.json4s.jackson.Serialization

import org.apache.spark.sql.execution.streaming.state.binshift.shipping.{CopyPace, TaskTimes}

/** The pace of copies, on a simulated clock. */
object TestCopyPace {
  private implicit val formats: Formats = DefaultFormats

  /**
   * The rate after each task, in bytes per second.
   *
   * @param tasks JSON: of each the milliseconds that it took, and whether something was copied meanwhile
   * @param bound of copies that wait, which may go so fast at most; 0 if none waits
   */
  def rates(tasks: String, bound: Long): String = {
    var (now, copied) = (0L, 0L)
    val pace = new CopyPace(() => now)
    val times = new TaskTimes(pace, () => copied, () => now)
    Serialization.write(parse(tasks).extract[Seq[Task]].map { task =>
      times.begin()
      now += task.ms * 1000000L
      if (task.copied) copied += 1
      pace.waits(bound)
      times.end()
      pace.bytesPerSecond
    })
  }

  private final case class Task(ms: Long, copied: Boolean)
}
