package org.apache.spark.sql.execution.streaming.state.binshift.migration

import java.io.File
import java.nio.file.{Files, Path}

import scala.collection.immutable.SortedMap

import org.apache.hadoop.conf.Configuration
import org.rocksdb.FlushOptions

import org.apache.spark.sql.execution.streaming.state._
import org.apache.spark.sql.execution.streaming.state.binshift.keys.{BinKeyCodec, ColumnFamily, Extent, KeyRows}
import org.apache.spark.sql.execution.streaming.state.binshift.shipping.FetchedRows
import org.apache.spark.sql.execution.streaming.state.binshift.statistics.{RowCounts, RowsByBin}
import org.apache.spark.sql.execution.streaming.state.binshift.storage._

/** Rows that are fetched, read and written before their bins come, in a separate database without a query. */
object TestKnownRows {

  /**
   * Does what `script` says with a database that owns the bins of `stored` and has none of them; returns the rows that it has
   * in the end, and how many it counts.
   *
   * @param stored what the old owner has, as "bin.key=value" with blanks between
   * @param script "fetch 3.7", "put 3.7 x", "merge 3.7 x", "delete 3.7", and "files 1,3" or "checkpoint 1,3" for bins that come
   * @param hasFamilies whether there are column families; "3.7/2" then is one of several rows of key 3.7 in a family of its own, and
   *                    "3.7#2" its row of number 2 in a third one. Without families, either all keys have a number or none has
   */
  def run(directory: String, stored: String, script: String, hasFamilies: Boolean): String = {
    val old = SortedMap(words(stored, ' ').map { row =>
      val Array(key, value) = row.split('=')
      key -> value
    }: _*)
    val db = new PlainDatabase(new File(directory), hasFamilies)
    val known = new KnownRows(db, partition = 0)
    val ranges = new BinRows(db, hasFamilies)
    var absent = old.keySet.map(binOf) ++ (0 until 8)
    def family(key: String): String =
      if (!hasFamilies) StateStore.DEFAULT_COL_FAMILY_NAME
      else if (key.contains('/')) "several"
      else if (key.contains('#')) "numbered"
      else "one"
    def enter(key: String): Unit = if (absent(binOf(key)) && !known.enter(family(key), bytes(key))) {
      val (begin, extent) =
        if (key.contains('#')) (key.split('#').head + "#", NumberAt)
        else if (hasFamilies && key.contains('/')) (key.split('/').head + "/", Extent.Beginning)
        else (key, Extent.One)
      val found = old.toSeq.filter { case (k, _) => if (extent == Extent.One) k == begin else k.startsWith(begin) }
      known.add(Seq(FetchedRows(
            KeyRows(family(key), bytes(if (extent == NumberAt) begin + "0" else begin), extent),
            found.map { case (k, value) =>
              (if (extent == NumberAt) NumberAt.restOf(bytes(k)) else k.drop(begin.length).getBytes) -> value.getBytes
            })))
      known.enter(family(key), bytes(key))
    }
    def come(bins: Seq[Int])(bring: Seq[(String, String)] => Unit): Unit = {
      val fresh = bins.filter(absent)
      known.winOver(fresh)(bring(old.toSeq.filter(row => fresh.contains(binOf(row._1)))))
      absent --= fresh
    }
    def bins(text: String): Seq[Int] = words(text, ',').map(_.toInt)
    db.loadAt(0, None, readOnly = false, loadEmpty = false)
    if (hasFamilies) Seq("several", "numbered", "one").foreach(db.createColFamilyIfAbsent(_, isInternal = false))
    def native(key: String): Array[Byte] =
      ColumnFamily.numbered(db, hasFamilies).find(_.family.name == family(key)).get.nativeKey(bytes(key))
    try db.inStoredForm {
        words(script, ';').map(_.split(' ')).foreach {
          case Array("fetch", key) => enter(key)
          case Array("put", key, value) =>
            enter(key)
            db.counting(binOf(key))(db.putStored(bytes(key), value.getBytes, family(key)))
          case Array("merge", key, value) =>
            enter(key)
            db.counting(binOf(key))(db.mergeStored(bytes(key), value.getBytes, family(key)))
          case Array("delete", key) =>
            enter(key)
            db.counting(binOf(key))(db.remove(bytes(key), family(key)))
          case Array("files", which) => come(bins(which)) { rows =>
              val file = written(directory, db, rows.map { case (key, value) => native(key) -> value })
              ranges.takeIn(Seq(file.toSeq), RowsByBin(rows.map { case (key, _) => binOf(key) -> RowCounts(1, 0) }))
            }
          case Array("checkpoint", which) => come(bins(which)) { rows =>
              // Like a recovery that applies a changelog, in which a row can be written twice.
              for (_ <- 1 to 2; (key, value) <- rows) {
                db.counting(binOf(key))(db.putStored(bytes(key), value.getBytes, family(key)))
              }
            }
          case other => throw new IllegalArgumentException(other.mkString(" "))
        }
        val held =
          (if (hasFamilies) Seq("one", "several", "numbered") else Seq(StateStore.DEFAULT_COL_FAMILY_NAME)).flatMap { name =>
            val rows = if (hasFamilies) db.iterator(name) else db.iterator()
            try rows.map(row => s"${text(row.key)}=${new String(row.value)}").toVector
            finally rows.closeIfNeeded()
          }
        (held.sorted :+ RocksDBFields.rows(db).rows).mkString(" ")
      }
    finally db.close()
  }

  /**
   * Takes in a file for each of `bins` bins of which a row is known, while no compaction can run.
   *
   * @return how many files are in level 0 then, and whether a writer has to wait for them
   */
  def manyFiles(directory: String, bins: Int): String = {
    val db = new PlainDatabase(new File(directory), hasFamilies = false)
    val known = new KnownRows(db, partition = 0)
    val ranges = new BinRows(db, useColumnFamilies = false)
    val family = StateStore.DEFAULT_COL_FAMILY_NAME
    db.loadAt(0, None, readOnly = false, loadEmpty = false)
    val native = RocksDBFields.native(db)
    try db.inStoredForm {
        known.add((0 until bins).map(bin => FetchedRows(KeyRows(family, bytes(s"$bin.0"), Extent.One), Nil)))
        (0 until bins).foreach(bin => db.counting(bin)(db.putStored(bytes(s"$bin.0"), "new".getBytes, family)))
        val flush = new FlushOptions().setWaitForFlush(true)
        try native.flush(flush)
        finally flush.close()
        native.pauseBackgroundWork()
        try {
          val files = (0 until bins).flatMap(bin => written(directory, db, Seq(bytes(s"$bin.0") -> "old")))
          ranges.takeIn(Seq(files), RowsByBin((0 until bins).map(_ -> RowCounts(1, 0))))
          Seq("num-files-at-level0", "is-write-stopped").map(p => native.getProperty("rocksdb." + p)).mkString(" ")
        } finally native.continueBackgroundWork()
      }
    finally db.close()
  }

  /** How many keys two stores with memory for 1,000 have room for: at first, when one knows 900, and when that one is cleared. */
  def rooms(directory: String): String = {
    val memory = new KeyMemory(1000 * 160)
    val dbs = Seq("one", "other").map(name => new PlainDatabase(new File(directory, name), hasFamilies = false))
    val Seq(one, other) = dbs.map(new KnownRows(_, partition = 0, memory))
    val family = StateStore.DEFAULT_COL_FAMILY_NAME
    try {
      dbs.foreach(_.loadAt(0, None, readOnly = false, loadEmpty = false))
      val before = other.room
      dbs.head.inStoredForm {
        one.add((0 until 900).map(i => FetchedRows(KeyRows(family, bytes(s"1.$i"), Extent.One), Nil)))
      }
      val meanwhile = other.room
      one.clear()
      s"$before $meanwhile ${other.room}"
    } finally dbs.foreach(_.close())
  }

  /** The bytes of heap for a key that has this number of numbered rows. */
  def heldOfNumbered(directory: String, rows: Int): Long = {
    val db = new PlainDatabase(new File(directory), hasFamilies = false)
    val known = new KnownRows(db, partition = 0)
    val key = bytes("1.1")
    val numbers = (0 until rows).map(n => (Extent.Numbered.bytesOf(n), key))
    try {
      db.loadAt(0, None, readOnly = false, loadEmpty = false)
      val zero = KeyRows(StateStore.DEFAULT_COL_FAMILY_NAME, key ++ numbers.head._1, Extent.Numbered(key.length))
      db.inStoredForm(known.add(Seq(FetchedRows(zero, numbers))))
      require(known.count(Seq(1)) == rows)
      known.bytesHeld
    } finally db.close()
  }

  /** A file with these rows, if there are any. */
  private def written(directory: String, db: PlainDatabase, rows: Seq[(Array[Byte], String)]): Option[File] = {
    val files = new SstFiles(Files.createTempDirectory(Path.of(directory), "came").toFile, db.conf)
    try {
      rows.sortBy(_._1)(KeyRows.Order).foreach { case (key, value) => files.put(key, value.getBytes) }
      files.finish().map(_.file)
    } finally files.close()
  }

  private def words(text: String, by: Char): Seq[String] = text.split(by).toSeq.filter(_.nonEmpty)

  private def binOf(key: String): Int = key.split('.').head.toInt

  private val codec = BinKeyCodec.of(StateStore.DEFAULT_COL_FAMILY_NAME)

  /** The number is in front of the rest of a key, so that keys are ordered by their numbers first. */
  private val NumberAt = Extent.Numbered(codec.encode(0, "#".getBytes).length)

  private def bytes(key: String): Array[Byte] = {
    val form = key.split('.').last.split('#') match {
      case Array(rest, number) => "#".getBytes ++ Extent.Numbered.bytesOf(number.toLong) ++ rest.getBytes
      case Array(rest) => rest.getBytes
    }
    codec.encode(binOf(key), form)
  }

  private def text(key: Array[Byte]): String = {
    val form = codec.stripBin(key)
    val rest =
      if (!new String(form).startsWith("#")) new String(form)
      else s"${new String(form.drop(1 + Extent.Numbered.Width))}#${NumberAt.numberOf(key)}"
    s"${codec.binOf(key)}.$rest"
  }
}

/** A database without migrations. */
private final class PlainDatabase(dir: File, hasFamilies: Boolean)
  extends BinKeyedRocksDB(
    StateStoreId(dir.getPath, 0, 0),
    RocksDBArguments(
      new File(dir, "0/0").getPath, RocksDBConf(), Files.createDirectories(dir.toPath.resolve("local")).toFile, new Configuration,
      "test", useColumnFamilies = hasFamilies, enableStateStoreCheckpointIds = false, partitionId = 0, None, None)) {

  override def loadAt(version: Long, stateStoreCkptId: Option[String], readOnly: Boolean, loadEmpty: Boolean): RocksDB = {
    loadBySpark(version, stateStoreCkptId, readOnly, loadEmpty)
    this
  }

  override def commitVersion(forceSnapshot: Boolean): (Long, StateStoreCheckpointInfo) = commitBySpark(forceSnapshot)

  override protected def maintaining(work: => Unit): Unit = work
}
