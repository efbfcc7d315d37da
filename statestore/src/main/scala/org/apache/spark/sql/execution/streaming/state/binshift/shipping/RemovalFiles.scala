package org.apache.spark.sql.execution.streaming.state.binshift.shipping

import java.io.File

import scala.collection.mutable
import scala.util.control.NonFatal

import org.apache.spark.internal.Logging
import org.apache.spark.sql.execution.streaming.state.RocksDBConf
import org.apache.spark.sql.execution.streaming.state.binshift.Faults
import org.apache.spark.sql.execution.streaming.state.binshift.keys.{KeyRows, NumberedFamily}
import org.apache.spark.sql.execution.streaming.state.binshift.storage.SstFiles
import org.apache.spark.util.Utils

/** Is told the keys, in families that are read in order, that have to be removed when their bins leave. */
private[shipping] trait RemovedKeys {
  /** Adds a native key, which must be greater than the keys before it of the same family. */
  def add(key: Array[Byte]): Unit
  def endFamily(): Unit
  /** Called when all keys of `step` were added. */
  def endStep(step: Int): Unit
}

private[shipping] object RemovedKeys {
  val Unheard: RemovedKeys = new RemovedKeys {
    override def add(key: Array[Byte]): Unit = ()
    override def endFamily(): Unit = ()
    override def endStep(step: Int): Unit = ()
  }
}

/** @param keys keys of rows that no file deletes, in their stored form, by the name of their family */
private[shipping] final case class LaterRemoval(files: Seq[File], keys: Map[String, Seq[Array[Byte]]])

private object RemovalFiles {
  private val MaxLater = 8
}

/**
 * Files that delete, from families that are read in order, the rows that leave with a step. They are made in the background, while
 * rows are sent, so that the switch doesn't have to look at any row.
 *
 * If a file can't be written, for example because the disk is full, no more are made. The rows are sent all the same.
 *
 * One thread writes the first files, and others write later ones; the store's task takes the files of a step.
 *
 * @param dir a directory of its own within the exporter's; created by this class
 */
private[shipping] final class RemovalFiles(dir: File, conf: RocksDBConf) extends Logging {
  private val files = mutable.Map.empty[Int, Seq[File]]
  private val later = mutable.Map.empty[Int, Vector[LaterRemoval]]
  private var appended = 0
  @volatile private var isClosed = false

  /** Runs `body`, which writes. Files that aren't finished then are discarded. */
  def writing[T](body: RemovedKeys => T): T = {
    Utils.createDirectory(dir)
    val sst = new SstFiles(dir, conf)
    try body(new Writer(sst))
    finally sst.close()
  }

  /**
   * Makes files, in the background, that delete rows which were written since the base. Until they are ready, or if they can't be
   * written, [[take]] returns the keys instead.
   *
   * @param families the families of the keys
   * @param keys     keys in their stored form, by the name of their family
   */
  def append(step: Int, families: Seq[NumberedFamily], keys: Map[String, Seq[Array[Byte]]]): Unit = {
    val told = LaterRemoval(Nil, keys)
    val number = synchronized {
      later(step) = later.getOrElse(step, Vector.empty) :+ told
      appended += 1
      appended
    }
    ShippingThreads.removals.execute { () =>
      try if (!isClosed) {
          // A family may have been created since the order's base.
          val made = LaterRemoval(write(new File(dir, s"later-$number"), families, keys), keys -- families.map(_.family.name))
          synchronized(later.get(step).foreach(all => later(step) = all.map(one => if (one eq told) made else one)))
        }
      catch {
        case NonFatal(e) => logWarning(s"a file of deletions could not be written in $dir; its rows are deleted one by one", e)
      } finally if (isClosed) Utils.tryLogNonFatalError(Utils.deleteRecursively(dir.getParentFile))
    }
  }

  /** Nothing more is wanted. The caller deletes the parent directory, and a thread that is still writing deletes its files. */
  def close(): Unit = isClosed = true

  private def write(folder: File, families: Seq[NumberedFamily], keys: Map[String, Seq[Array[Byte]]]): Seq[File] = {
    Utils.createDirectory(folder)
    val sst = new SstFiles(folder, conf)
    try families.flatMap { family =>
        keys.getOrElse(family.family.name, Nil).map(family.nativeKey).sorted(KeyRows.Order).foreach(sst.delete)
        Faults.at("export.later")
        sst.finish(isInternal = false).map(_.file)
      }
    finally sst.close()
  }

  /** Hands over the files of `step`; `None` if they were taken already, or aren't ready. */
  def take(step: Int): Option[(Seq[File], Seq[LaterRemoval])] = synchronized {
    val since = later.remove(step).getOrElse(Vector.empty)
    files.remove(step).map(_ -> since)
  }

  /** True if one more file may be appended. Each is another file in the level that reads search first. */
  def hasRoomFor(step: Int): Boolean = synchronized(later.get(step).forall(_.size < RemovalFiles.MaxLater))

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
            logWarning(s"no more files of deletions can be written in $dir; the next switches scan the column families", e)
        }
      }
  }
}
