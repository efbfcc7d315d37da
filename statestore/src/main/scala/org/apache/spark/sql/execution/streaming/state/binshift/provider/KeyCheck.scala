package org.apache.spark.sql.execution.streaming.state.binshift.provider

import org.apache.spark.internal.Logging
import org.apache.spark.sql.catalyst.expressions.UnsafeRow
import org.apache.spark.sql.execution.streaming.state.{StateStoreId, StateStoreIterator, UnsafeRowPair}
import org.apache.spark.sql.execution.streaming.state.binshift.BinshiftConf
import org.apache.spark.sql.execution.streaming.state.binshift.checkpoint.{ChangedKeys, ControlDir}
import org.apache.spark.sql.execution.streaming.state.binshift.keys.{KeyBins, StoreBins}
import org.apache.spark.sql.execution.streaming.state.binshift.routing.{ArrivedKeys, EpochRouting}
import org.apache.spark.TaskContext

/**
 * Finds out whether a task keeps state under keys that none of its rows has, and decides in which bin to store such state.
 *
 * Spark distributes rows by their columns, but `transformWithState` makes the key of its state from the values that the user's
 * language gives back. For example, if there is a null among integers, pandas makes floats of all of them, and Spark takes these for
 * null. The hash of such a changed key doesn't tell which partition gets its rows. Spark's own provider keeps the state in the
 * partition that has the row, and several partitions may have state under the same key. This class does the same: if the bin of a
 * changed key isn't owned, the state goes to the first bin that the partition owns, under the same key. So it is found again as long
 * as the routing table stays, and [[ChangedKeys]] makes sure that it does.
 *
 * A key hasn't changed if it is that of a row, or of state that the task has found in a scan, as timers are.
 *
 * Created on the task's thread, and used by the task's store, on one thread at a time.
 */
private[provider] final class KeyCheck(
    task: TaskContext, id: StateStoreId, version: Long, db: BinnedRocksDB, binsOf: StoreBins, routing: EpochRouting,
    dir: => ControlDir) extends Logging {
  private val attempt = task.taskAttemptId()
  /** `None` for a job from a thread of a foreign pool, which has no properties of its epoch. */
  private val isStepNext: Option[Boolean] =
    Option(task.getLocalProperty(BinshiftConf.StepHint)).map(_.split(':')).collect {
      case Array(run, epoch, isNext) if run == routing.run && epoch == version.toString => isNext.toBoolean
    }
  /** `None` if the keys certainly don't change. Lazy, because keys are only noted once the operator has its input. */
  private lazy val arrived = ArrivedKeys.of(attempt, id.operatorId)
  /** True even if this run notes no keys, if an earlier run has found changed ones, because the query made keys differently then. */
  private lazy val mayHaveChanged = arrived.nonEmpty || ChangedKeys.read(dir).exists(_.operator == id.operatorId)
  private var isFound = false
  private var refusal = Option.empty[Exception]
  /** Hash of the key that was written last, if that key arrived in a row. Not an `Option`, because each write reads it. */
  private var last = 0
  private var hasLast = false

  /** The bin in which to look up a key whose hash gives `bin`. */
  def toRead(bin: Int): Int = if (db.owns(bin) || !mayHaveChanged) bin else db.homeBin

  /**
   * The bin in which to write `key`. If the key arrived in a row, this is the bin of its hash, and the database checks that the
   * partition owns it.
   *
   * @param hash hash of the key
   */
  def toWrite(hash: Int, key: UnsafeRow, bins: KeyBins): Int = {
    val bin = bins.ofHash(hash)
    if (hasLast && last == hash) bin
    else arrived.fold(toRead(bin)) { keys =>
      if (keys.has(hash)) {
        last = hash
        hasLast = true
        bin
      } else {
        if (!isFound) found(keys.changed(key, bins))
        isFound = true
        toRead(bin)
      }
    }
  }

  /** Passes on rows that the task scans, and notes their keys as arrived, because the task didn't get them from a row. */
  def scanned(rows: StateStoreIterator[UnsafeRowPair], family: String): StateStoreIterator[UnsafeRowPair] =
    arrived.fold(rows) { keys =>
      val bins = binsOf.of(family)
      val known = rows.map { row =>
        // If its bin isn't owned, this is a changed key, which will be stored in the same place again when it is written.
        val hash = bins.hash(row.key)
        if (db.owns(bins.ofHash(hash))) keys.add(hash, row.key, bins.hashes)
        row
      }
      new StateStoreIterator(known, () => rows.close())
    }

  private def found(columns: Seq[String]): Unit = {
    val changed = ChangedKeys(id.operatorId, binsOf.operatorName, columns, version)
    // Durable before the task commits this state, because the state relies on the table in force.
    routing.sayOfChangedKeys(id.operatorId) {
      ChangedKeys.write(dir, changed)
      logWarning(
        s"${changed.described}; the query runs on as with Spark's own provider, and its partitions cannot change any more")
    }
    if (isStepNext.getOrElse(routing.hasStepAfter(version))) {
      refusal = Some(changed.refusal(
          s"a step was about to take effect with epoch ${version + 1}, so epoch $version fails and changes nothing; start the " +
            "query again, and it continues with the partitions that it has"))
      requireAccepted()
    }
  }

  /** Fails if a write was refused, even if the user's code has caught that exception. Called before the store is committed. */
  def requireAccepted(): Unit = refusal.foreach(throw _)
}
