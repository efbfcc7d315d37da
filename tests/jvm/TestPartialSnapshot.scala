package org.apache.spark.sql.execution.streaming.state.binshift.recovery

import java.io.File
import java.nio.file.{Files, Path}

import scala.collection.mutable
import scala.util.Random

import org.apache.hadoop.conf.Configuration
import org.apache.hadoop.fs.{Path => HadoopPath}
import org.rocksdb.{Options, RocksDB => NativeRocksDB, WriteOptions}

import org.apache.spark.sql.execution.streaming.state.{RocksDB, RocksDBConf, StateStore}
import org.apache.spark.sql.execution.streaming.state.binshift.keys.{ColumnFamily, NumberedFamily}
import org.apache.spark.sql.execution.streaming.state.binshift.storage.{PartialSnapshot, RocksDBFields}

/** Snapshots of random changes, parts of which are read. */
object TestPartialSnapshot {
  private val Bins = 16
  private val Default = NumberedFamily(ColumnFamily.Default, None)

  /** The number of files for all bins, the number for some, and whether the rows of those are right. */
  def fetched(directory: String, seed: Long): Array[Int] = {
    val random = new Random(seed)
    val root = Files.createDirectories(Path.of(directory))
    val conf = RocksDBConf().copy(minDeltasForSnapshot = 1)
    val db = new RocksDB(s"$root/checkpoint", conf, Files.createTempDirectory(root, "local").toFile, new Configuration)
    val expected = mutable.Map.empty[Seq[Byte], Seq[Byte]]
    val versions = 3 + random.nextInt(6)
    (0 until versions).foreach { version =>
      db.load(version, None)
      val first = random.nextInt(Bins)
      val last = math.min(Bins - 1, first + random.nextInt(4))
      if (random.nextInt(3) == 0) {
        val options = new WriteOptions().setDisableWAL(true)
        Default.ranges(first to last).foreach { case (from, to) => RocksDBFields.native(db).deleteRange(options, from, to) }
        expected.filterInPlace((key, _) => key(1) < first || key(1) > last)
      }
      (0 until 200).foreach { _ =>
        val key = Array[Byte](0, (first + random.nextInt(last - first + 1)).toByte, random.nextInt(100).toByte)
        if (random.nextInt(4) == 0) {
          db.remove(key, StateStore.DEFAULT_COL_FAMILY_NAME)
          expected -= key.toSeq
        } else {
          val value = random.nextBytes(20)
          db.put(key, value, StateStore.DEFAULT_COL_FAMILY_NAME)
          expected(key.toSeq) = value.toSeq
        }
      }
      db.commit()
    }
    db.close()
    val wanted = Set.fill(1 + random.nextInt(3))(random.nextInt(Bins))
    val zip = new HadoopPath(s"$root/checkpoint/$versions.zip")
    val (all, some) = (new File(root.toFile, "all"), new File(root.toFile, "some"))
    PartialSnapshot.fetch(zip, all, (0 until Bins).toSet, 0, new Configuration)
    PartialSnapshot.fetch(zip, some, wanted, 0, new Configuration)
    def ofBins(bins: Set[Int]) = expected.filter { case (key, _) => bins(key(1)) }.toMap
    val isRight = rows(all, (0 until Bins).toSet) == ofBins((0 until Bins).toSet) && rows(some, wanted) == ofBins(wanted)
    Array(ssts(all), ssts(some), if (isRight) 1 else 0)
  }

  private def ssts(dir: File): Int = dir.list.count(_.endsWith(".sst"))

  private def rows(dir: File, bins: Set[Int]): Map[Seq[Byte], Seq[Byte]] = {
    val found = mutable.Map.empty[Seq[Byte], Seq[Byte]]
    val db = NativeRocksDB.open(new Options(), dir.getPath)
    try Default.foreachRow(db, db.getDefaultColumnFamily, bins.toSeq)((k, v) => found(k.toSeq) = v.toSeq)
    finally db.close()
    found.toMap
  }
}
