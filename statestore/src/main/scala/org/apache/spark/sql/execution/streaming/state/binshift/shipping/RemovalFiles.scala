package org.apache.spark.sql.execution.streaming.state.binshift.shipping

import java.io.File

import scala.collection.mutable
import scala.util.control.NonFatal

import org.apache.spark.internal.Logging
import org.apache.spark.sql.execution.streaming.state.RocksDBConf
import org.apache.spark.sql.execution.streaming.state.binshift.Faults
import org.apache.spark.sql.execution.streaming.state.binshift.storage.SstFiles
import org.apache.spark.util.Utils

/** Hears of the keys of families that are read in order, which are to be removed when their bins leave. */
private[shipping] trait RemovedKeys {
  /** A native key that is greater than those before it of its family. */
  def add(key: Array[Byte]): Unit
  def endFamily(): Unit
  /** All keys of `step` were added. */
  def endStep(step: Int): Unit
}

private[shipping] object RemovedKeys {
  val Unheard: RemovedKeys = new RemovedKeys {
    override def add(key: Array[Byte]): Unit = ()
    override def endFamily(): Unit = ()
    override def endStep(step: Int): Unit = ()
  }
}

/**
 * Files that delete the rows that leave with a step from families that are read in order. They are made while rows are sent, in
 * the background, so that the switch needs to look at no row.
 *
 * If one cannot be written, as on a full disk, there are none from then on. The rows are sent all the same.
 *
 * One thread writes; the store's task takes the files of a step.
 *
 * @param dir a directory of its own, which this makes
 */
private[shipping] final class RemovalFiles(dir: File, conf: RocksDBConf) extends Logging {
  private val files = mutable.Map.empty[Int, Seq[File]]

  /** Runs `body`, which writes; what was not finished then is not there. */
  def writing[T](body: RemovedKeys => T): T = {
    Utils.createDirectory(dir)
    val sst = new SstFiles(dir, conf)
    try body(new Writer(sst))
    finally sst.close()
  }

  /** The files of `step`, which are the caller's from now on; `None` if there are none any more, or not yet. */
  def take(step: Int): Option[Seq[File]] = synchronized(files.remove(step))

  private final class Writer(sst: SstFiles) extends RemovedKeys {
    private var finished = Vector.empty[File]
    private var isBroken = false

    override def add(key: Array[Byte]): Unit = unlessBroken(sst.delete(key))

    override def endFamily(): Unit = unlessBroken {
      Faults.at("export.removal")
      finished ++= sst.finish(isInternal = false).map(_.file)
    }

    override def endStep(step: Int): Unit = unlessBroken {
      RemovalFiles.this.synchronized(files(step) = finished)
      finished = Vector.empty
    }

    private def unlessBroken(body: => Unit): Unit =
      if (!isBroken) {
        try body
        catch {
          case NonFatal(e) =>
            isBroken = true
            sst.abandon()
            logWarning(s"no more files of deletions can be written in $dir; the next switches look through the families", e)
        }
      }
  }
}
