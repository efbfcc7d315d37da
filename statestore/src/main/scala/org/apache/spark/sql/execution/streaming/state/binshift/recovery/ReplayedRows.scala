package org.apache.spark.sql.execution.streaming.state.binshift.recovery

import org.apache.spark.sql.execution.streaming.state.binshift.storage.BinnedFileManager

/**
 * Keeps the number of a store's rows right after a replay that looked none up ([[QuickReplay]]). The number is known later, and
 * is corrected here.
 *
 * If a version is loaded again with the same id, it keeps its content and its number of rows.
 *
 * Used by the store's task.
 *
 * @param isIdle whether a core is free of tasks
 */
private[binshift] final class ReplayedRows(db: ReplayingRocksDB, isIdle: () => Boolean) extends AutoCloseable {
  private var replay = Option.empty[QuickReplay]
  /** The version that is loaded, and its id. */
  private var loaded = Option.empty[(Long, Option[String])]

  /** True if the number of rows is right. */
  def isCounted: Boolean = replay.isEmpty

  /** True if the version that was loaded or committed last is `version` with this id. */
  def has(version: Long, id: Option[String]): Boolean = loaded.contains((version, id))

  /** True if a replay waits for its number to be taken, and no key is left to be looked up. */
  def isReady: Boolean = replay.exists(_.isOver)

  /**
   * Called when a version is about to be loaded, before Spark closes the database for it.
   *
   * @param isLoaded whether the version is loaded already, with this id or another
   */
  def beginLoad(version: Long, id: Option[String], isLoaded: Boolean): Unit = {
    def isAnotherId = loaded.exists { case (_, ofLoaded) => ofLoaded.isDefined && id.isDefined && id != ofLoaded }
    if (!isLoaded || isAnotherId) close()
    else if (!loaded.contains((version, id))) settle()
    loaded = Some((version, id))
  }

  /** Returns the object that applies the records of the next changelog. */
  def next(): BinnedFileManager.Replay = {
    if (replay.forall(_.isEnded)) replay = Some(new QuickReplay(db, isIdle))
    replay.get
  }

  /** Looks up the remaining keys, and corrects the number of rows. */
  def settle(): Unit = {
    replay.foreach(r => db.addRows(r.settle()))
    replay = None
  }

  /** Called when a version was committed. The remaining keys are looked up in the background. */
  def committed(version: Long, id: Option[String]): Unit = {
    loaded = Some((version, id))
    replay.foreach(_.count())
  }

  /** Forgets the replay, because the database is closed, or was loaded from elsewhere. */
  override def close(): Unit = {
    replay.foreach(_.close())
    replay = None
  }
}
