package org.apache.spark.sql.execution.streaming.state.binshift.storage

import java.util.concurrent.{RejectedExecutionException, ThreadPoolExecutor}

import scala.util.control.NonFatal

import org.apache.spark.internal.Logging
import org.apache.spark.util.ThreadUtils

/**
 * Uploads snapshots that other partitions' files are kept for, without waiting for Spark's maintenance, whose turn comes once a
 * minute by default. One upload at a time on an executor; what fails is left to maintenance's next snapshot.
 *
 * Relies on Spark: maintenance uploads what commits have put into a queue, from which anybody may take.
 */
private[binshift] object PromptUploads extends Logging {
  private lazy val thread: ThreadPoolExecutor = ThreadUtils.newDaemonFixedThreadPool(1, "binshift-upload")

  /** Returns at once. */
  def submit(db: VersionedRocksDB): Unit =
    try thread.execute { () =>
        try db.uploadSnapshots()
        catch {
          case NonFatal(e) => logWarning(s"a snapshot of ${db.localRootDir.getName} could not be uploaded promptly", e)
        }
      }
    catch {
      case e: RejectedExecutionException => logWarning("snapshots are uploaded by Spark's maintenance alone", e)
    }
}
