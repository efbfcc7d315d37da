package org.apache.spark.sql.execution.streaming.state.binshift.storage

import java.util.concurrent.{RejectedExecutionException, ThreadPoolExecutor}

import org.apache.spark.sql.execution.streaming.state.binshift.OrWarn
import org.apache.spark.util.ThreadUtils

/**
 * Uploads snapshots at once that allow other partitions to delete files. Spark's maintenance would upload them only once a minute by
 * default. Makes one upload at a time on an executor. If one fails, maintenance will upload the next snapshot.
 *
 * Relies on Spark: commits put snapshots into a queue, from which maintenance uploads them, and anybody may take from that queue.
 */
private[binshift] object PromptUploads extends OrWarn {
  private lazy val thread: ThreadPoolExecutor = ThreadUtils.newDaemonFixedThreadPool(1, "binshift-upload")

  /** Returns at once. */
  def submit(db: VersionedRocksDB): Unit =
    try thread.execute(() =>
        orWarn(s"a snapshot of ${db.localRootDir.getName} could not be uploaded promptly")(db.uploadSnapshots()))
    catch {
      case e: RejectedExecutionException => logWarning("snapshots are only uploaded by Spark's maintenance from now on", e)
    }
}
