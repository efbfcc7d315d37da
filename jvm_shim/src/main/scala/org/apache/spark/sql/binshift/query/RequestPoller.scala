package org.apache.spark.sql.binshift.query

import org.apache.spark.sql.execution.streaming.state.binshift.OrWarn

/**
 * Looks for requests of other processes at a bounded rate, on a thread of its own, so that no epoch waits for the
 * checkpoint's file system.
 *
 * Somebody who asks once usually asks again, so for a while after a request it looks more often.
 *
 * @param intervalMs time between two looks, if nobody has asked lately
 * @param look       answers the existing requests, and returns whether there were any
 */
private[query] final class RequestPoller(name: String, intervalMs: Long, isActive: () => Boolean, look: () => Boolean)
  extends OrWarn {
  import RequestPoller._

  private var isClosed = false

  private val thread = new Thread((() => run()): Runnable, name)
  thread.setDaemon(true)

  def start(): Unit = thread.start()

  /** Ends the thread, and waits until a look that has begun is over, so that accepted plans are in the checkpoint. */
  def close(): Unit = {
    synchronized {
      isClosed = true
      notifyAll()
    }
    if (Thread.currentThread ne thread) thread.join(MaxWaitMs)
  }

  private def run(): Unit = {
    var askedAt = Option.empty[Long]
    var goesOn = true
    while (goesOn) {
      val isAsked = askedAt.exists(System.nanoTime() - _ < AttentiveNanos)
      goesOn = pause(if (isAsked) math.min(intervalMs, AttentiveMs) else intervalMs) && isActive()
      orWarn(s"$name could not look for requests; it looks again soon")(if (goesOn && look()) askedAt = Some(System.nanoTime()))
    }
  }

  /** Pauses, and returns whether to continue. */
  private def pause(ms: Long): Boolean = synchronized {
    val until = System.nanoTime() + ms * NanosPerMs
    def left = until - System.nanoTime()
    while (!isClosed && left > 0) wait(left / NanosPerMs + 1)
    !isClosed
  }
}

private object RequestPoller {
  private val NanosPerMs = 1000000L
  private val AttentiveMs = 250L
  private val AttentiveNanos = 30000 * NanosPerMs
  private val MaxWaitMs = 60000L
}
