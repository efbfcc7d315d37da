package org.apache.spark.sql.execution.streaming.state.binshift.migration

import scala.collection.mutable
import scala.util.control.NonFatal

import org.apache.spark.internal.Logging
import org.apache.spark.sql.execution.streaming.state.binshift.keys.{BinKeyCodec, ColumnFamily, KeyRows}
import org.apache.spark.sql.execution.streaming.state.binshift.shipping._
import org.apache.spark.sql.execution.streaming.state.binshift.statistics.RowsByBin

/**
 * The bins that a partition owns but doesn't have yet, because they come on demand. The first access to a bin waits for it, a scan waits
 * for all of them, and each load takes in the bins that have arrived in between.
 *
 * If a task says ahead which rows it looks up ([[askFor]]), those rows are fetched, and their bins follow later. Then an access waits
 * for the rows, and not for the bin ([[KnownRows]]).
 *
 * Logically, the partition adopted all of them at the switch: a recovery does so, and a snapshot is made only when all have arrived.
 * Used by the store's task.
 */
private[binshift] final class PendingBins(conf: BackgroundConf, known: KnownRows, into: BinIntake) extends Logging {

  private val absent = mutable.Map.empty[Int, Absent]
  /** Bins that have arrived, and were not taken in yet. */
  private val here = mutable.ArrayBuffer.empty[ComeBins]
  /** Clients with outstanding requests for rows. */
  private val asked = mutable.LinkedHashSet.empty[RowClient]
  private val patience = new Patience(conf.timeoutMs)
  /** The form of keys in all families of which rows are requested: they begin with the bin. */
  private val codec = BinKeyCodec.of(ColumnFamily.Default.name)

  /** Number of bins that haven't arrived. On the path of each access. */
  var missing = 0

  /** Registers that `bins` come from `source` as of `version`, through `staged`. */
  def expect(version: Long, source: Int, bins: Seq[Int], staged: StagedBins): Unit = {
    bins.foreach(b => absent(b) = Absent(version, source, staged))
    missing = absent.size
  }

  /** Forgets everything, because the store was loaded from the checkpoint. */
  def clear(): Unit = {
    // A task that was killed while it asked may have noted keys that were never sent.
    absent.values.flatMap(_.rows).toSeq.distinct.foreach(_.forget())
    absent.clear()
    here.clear()
    forgetRequests()
    known.clear()
    patience.clear()
    missing = 0
  }

  /** True if `bin` hasn't arrived. */
  def isMissing(bin: Int): Boolean = absent.contains(bin)

  /** Asks for the rows of `keys`, which the task will look up. Doesn't wait for them. */
  def askFor(keys: Seq[KeyRows]): Unit = {
    val wanted = keys.filter(key => absent.contains(codec.binOf(key.key)) && !known.contains(key.family, key.key))
    wanted.take(known.room).groupBy(key => absent(codec.binOf(key.key)).source).toSeq.sortBy(_._1).foreach { case (_, ofSource) =>
      absent(codec.binOf(ofSource.head.key)).rows.foreach(client => if (client.ask(ofSource)) asked += client)
    }
  }

  /**
   * Waits for the row of a stored key of `bin`, or for all rows whose keys begin with it, if these were requested; otherwise waits for the
   * bin.
   */
  def requireRow(bin: Int, family: String, key: Array[Byte]): Unit =
    if (absent.contains(bin) && !known.enter(family, key)) {
      if (asked.nonEmpty) awaitRows()
      if (!known.enter(family, key)) require(bin)
    }

  /** Waits for `bin`, which its old owner then sends before others. */
  def require(bin: Int): Unit = while (absent.contains(bin)) {
    await(bin, isForAll = false)
    takeIn()
  }

  /** Waits for all bins except `others`. */
  def requireAllBut(others: Set[Int]): Unit = absent.keys.toSeq.filterNot(others).foreach(require)

  def requireAll(): Unit = while (missing > 0) {
    absent.keys.toSeq.foreach(await(_, isForAll = true))
    takeIn()
  }

  /**
   * Takes in all bins that have arrived at once, because RocksDB may have to write out its memory first. If many rows of these bins were
   * fetched, some of the bins wait for the next load.
   */
  def pull(): Unit = if (missing > 0) {
    receive()
    // There will be no copy of these. If no task touched another of their bins, they would stay missing for ever.
    absent.filter { case (bin, from) => isNeverHere(bin, from) }.values.toSeq
      .distinctBy(from => (from.version, from.source)).foreach(readAllOf)
    takeIn(PendingBins.RowsTogether)
  }

  private def isHere(bin: Int): Boolean = here.exists(_.bins.contains(bin))

  private def isNeverHere(bin: Int, from: Absent): Boolean = !isHere(bin) && !from.copy.exists(!_.isGone(bin))

  private def ask(bin: Int): Unit = {
    val from = absent(bin)
    from.copy.foreach(from.staged.request(_, bin))
  }

  /**
   * Returns when `bin` has arrived, or was read from the checkpoint because nothing came for a long time.
   *
   * Meanwhile, each other source may be asked for one of its bins: if all bins are waited for, because a source only sends at full pace
   * when somebody asks it for a bin; or if nothing comes for some time, because the next wait may be for a source that doesn't answer
   * either.
   */
  private def await(bin: Int, isForAll: Boolean): Unit = {
    var others = Seq.empty[Int]
    if (absent.contains(bin)) receive()
    while (absent.contains(bin) && !isHere(bin)) {
      val from = absent(bin)
      from.copy match {
        case Some(copy) if !copy.isGone(bin) && !patience.isOver(from.source) =>
          if (isForAll || others.isEmpty && patience.isLow(from.source)) others = firstOfEach
          ask(bin +: others.filter(other => absent.get(other).exists(_.source != from.source) && !isHere(other)))
          receive()
        case _ => readAllOf(from)
      }
    }
  }

  /** Asks for bins of different sources, and gives them a moment to arrive. */
  private def ask(bins: Seq[Int]): Unit = {
    val begun = System.nanoTime()
    bins.foreach(ask)
    Thread.sleep(StagedBins.PollMs)
    for (from <- bins.map(absent); copy <- from.copy) patience.asked(from.source, copy.bytesCopied, System.nanoTime() - begun)
  }

  /** For each source, the first of its bins that haven't arrived. */
  private def firstOfEach: Seq[Int] = {
    val come = here.iterator.flatMap(_.bins).toSet
    absent.keys.filterNot(come).groupBy(absent(_).source).values.map(_.min).toSeq
  }

  /** Takes over bins that have arrived, and forgets those that are gone, for example because their order ended. */
  private def receive(): Unit = {
    here.filterInPlace(_.isThere)
    for {
      from <- absent.values.toSeq.distinctBy(_.source)
      copy <- from.copy.toSeq
      (bins, taken) <- copy.takeReady()
    } here += ComeBins(bins, taken, if (copy.wasShipped) 0 else bins.size)
  }

  /** @param rows bound on the known rows of the bins that are taken in, which doesn't apply to the first bins that arrived */
  private def takeIn(rows: Int = Int.MaxValue): Unit = if (here.nonEmpty) {
    // Bins that were read from the checkpoint meanwhile are no longer wanted.
    val (came, late) = here.toSeq.partition(_.bins.forall(absent.contains))
    late.foreach(_.discard())
    val sums = came.scanLeft(0L)((sum, c) => sum + known.count(c.bins)).tail
    val (wanted, left) = came.splitAt(if (came.isEmpty) 0 else math.max(1, sums.count(_ <= rows)))
    here.clear()
    here ++= left
    if (wanted.nonEmpty) {
      val bins = wanted.flatMap(_.bins)
      val files = TakenCopy(
        wanted.flatMap(_.taken.base), Nil, RowsByBin.sum(wanted.map(_.taken.rows)), wanted.head.taken.version)
      try {
        into.adopt(bins, wanted.map(_.recopied).sum, files)
        bins.foreach(drop)
      } catch {
        case NonFatal(e) if into.isUsable =>
          logWarning(s"bins ${bins.mkString(", ")} could not be taken in; they are read from the checkpoint", e)
      }
    }
  }

  private def readAllOf(from: Absent): Unit = {
    val bins = absent.collect { case (bin, Absent(from.version, from.source, _)) => bin }.toSeq
    into.readRest(from.version, from.source, bins)
    bins.foreach(drop)
  }

  /** Takes in the rows that were requested. */
  private def awaitRows(): Unit = {
    asked.toSeq.foreach { client =>
      asked -= client
      client.foreachAnswer { answers =>
        // Their bin may have arrived meanwhile, and been written to.
        val rows = answers.filter { answer =>
          absent.get(codec.binOf(answer.key.key)).exists(_.rows.contains(client)) &&
          !known.contains(answer.key.family, answer.key.key)
        }
        // Rows that were requested before may have been large.
        if (known.room == 0) client.stop() else if (rows.nonEmpty) into.fetched(rows)
      }
    }
  }

  private def drop(bin: Int): Unit = {
    absent -= bin
    missing = absent.size
    if (missing == 0) {
      forgetRequests()
      patience.clear()
    }
  }

  /** Forgets requests for keys that the task has noted but never looked up. */
  private def forgetRequests(): Unit = {
    asked.foreach(_.forget())
    asked.clear()
  }
}

private object PendingBins {
  /** How many known rows a load merges with their bins, which takes some microseconds each. */
  private val RowsTogether = 10000
}

/** Brings bins and rows into the database of a store. After an exception, the database may be unusable. */
private[binshift] trait BinIntake {
  /** Takes in copied bins, `recopied` of which were copied from the checkpoint. */
  def adopt(bins: Seq[Int], recopied: Int, taken: TakenCopy): Unit

  /** Reads bins of a source as of a version from its checkpoint. */
  def readRest(version: Long, source: Int, bins: Seq[Int]): Unit

  /** Takes in rows of bins that haven't arrived. */
  def fetched(rows: Seq[FetchedRows]): Unit

  /** After an exception: whether the database is as before. */
  def isUsable: Boolean
}

private final case class Absent(version: Long, source: Int, staged: StagedBins) {
  def copy: Option[StagedCopy] = staged.copyOnTheWay(source)

  def rows: Option[RowClient] = staged.rowsFrom(source)
}

/** @param recopied how many of the bins were copied from the checkpoint */
private final case class ComeBins(bins: Seq[Int], taken: TakenCopy, recopied: Int) {
  def isThere: Boolean = taken.base.forall(_.exists)

  def discard(): Unit = taken.base.foreach(_.delete())
}
