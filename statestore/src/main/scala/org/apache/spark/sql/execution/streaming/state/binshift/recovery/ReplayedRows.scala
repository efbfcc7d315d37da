package org.apache.spark.sql.execution.streaming.state.binshift.recovery

import org.apache.spark.sql.execution.streaming.state.binshift.storage.{BinnedFileManager, RocksDBFields}

/**
 * How many rows a store has after a replay that looked up none ([[QuickReplay]]): the number is late, and set right here.
 *
 * A version that is loaded already, with the same id, keeps its content and its number of rows when it is loaded again.
 *
 * Used by the store's task.
 *
 * @param isIdle whether tasks leave a core
 */
private[binshift] final class ReplayedRows(db: ReplayingRocksDB, isIdle: () => Boolean) extends AutoCloseable {
  private var replay = Option.empty[QuickReplay]
  /** The version that is loaded, and its id. */
  private var loaded = Option.empty[(Long, Option[String])]

  /** Whether the number of rows is right. */
  def isCounted: Boolean = replay.isEmpty

  /** Whether a version with this id is the one that was loaded or committed last. */
  def has(version: Long, id: Option[String]): Boolean = loaded.contains((version, id))

  /** Whether nothing is left to be looked up. */
  def isReady: Boolean = replay.exists(_.isOver)

  /**
   * A version is about to be loaded; called before Spark closes the database, if it does.
   *
   * @param isLoaded whether it is loaded already, by whichever id
   */
  def beginLoad(version: Long, id: Option[String], isLoaded: Boolean): Unit = {
    def isAnotherId = loaded.exists { case (_, ofLoaded) => ofLoaded.isDefined && id.isDefined && id != ofLoaded }
    if (!isLoaded || isAnotherId) close()
    else if (!loaded.contains((version, id))) settle()
    loaded = Some((version, id))
  }

  /** What applies the records of the next changelog. */
  def next(): BinnedFileManager.Replay = {
    if (replay.forall(_.isEnded)) replay = Some(new QuickReplay(db, isIdle))
    replay.get
  }

  /** Looks up what is left, and sets the number of rows right. */
  def settle(): Unit = {
    replay.foreach(r => RocksDBFields.setRows(db, RocksDBFields.rows(db) + r.settle()))
    replay = None
  }

  /** A version was committed; what is left is looked up in the background. */
  def committed(version: Long, id: Option[String]): Unit = {
    loaded = Some((version, id))
    replay.foreach(_.count())
  }

  /** Forgets what was replayed: the database is closed, or loaded from elsewhere. */
  override def close(): Unit = {
    replay.foreach(_.close())
    replay = None
  }
}
