package org.apache.spark.sql.execution.streaming.state.binshift

import java.nio.file.Path
import java.util.{Arrays, Random}

import org.apache.hadoop.conf.Configuration

import org.apache.spark.sql.execution.streaming.state._
import org.apache.spark.sql.internal.SQLConf

/** Random rows in random bins of a real RocksDB, read in order and compared with a sorted list. */
final class OrderedScanCheck(dir: String) {
  private val db = new RocksDB(
    Path.of(dir, "dfs").toString, RocksDBConf(StateStoreConf(new SQLConf())),
    localRootDir = Path.of(dir, "local").toFile, hadoopConf = new Configuration(), loggingId = "check",
    useColumnFamilies = true)
  private val families = Seq("before", "timers", "behind")
  private val letters = Array[Byte](0, 1, -1, 127)
  db.load(0)
  families.foreach(db.createColFamilyIfAbsent(_, isInternal = false))

  /** What was expected and what was read, if they differ; else an empty string. */
  def mismatch(seed: Long, rows: Int, bins: Int): String = {
    val random = new Random(seed)
    val wanted = Array.fill(rows)((random.nextInt(bins), key(random))).distinctBy { case (b, k) => (b, k.toSeq) }
    families.foreach(f => db.iterator(f).map(r => r.key).toSeq.foreach(db.remove(_, f)))
    // Neighbouring families hold rows too, which no scan may reach.
    families.foreach(f => wanted.foreach { case (bin, k) => db.put(BinKeyCodec.encode(bin, k), Array(bin.toByte), f) })
    val owned = Array.range(0, bins).filter(_ => random.nextInt(4) > 0)
    val start = if (random.nextBoolean()) Array.emptyByteArray else key(random)
    val end = Option.when(random.nextBoolean())(key(random))
    val expected = wanted.filter { case (bin, k) =>
      owned.contains(bin) && Arrays.compareUnsigned(k, start) >= 0 && end.forall(Arrays.compareUnsigned(k, _) < 0)
    }.sortWith((a, b) => Arrays.compareUnsigned(a._2, b._2) < 0)
    val scan = new OrderedScan(db.reusableIterator("timers"), owned, start, end)
    val read = try scan.map(r => (r.value(0).toInt, r.key)).toArray finally scan.closeIfNeeded()
    val sameOrder = expected.map(_._2.toSeq).toSeq == read.map(_._2.toSeq).toSeq
    val sameRows = expected.map(e => (e._1, e._2.toSeq)).toSet == read.map(r => (r._1, r._2.toSeq)).toSet
    if (sameOrder && sameRows) "" else s"expected ${show(expected)}, read ${show(read)}"
  }

  def close(): Unit = db.close()

  /** Short keys of few letters, so that keys are equal, or begin alike, in several bins. */
  private def key(random: Random): Array[Byte] =
    Array.fill(random.nextInt(4))(letters(random.nextInt(letters.length)))

  private def show(rows: Array[(Int, Array[Byte])]): String =
    rows.map { case (bin, k) => s"$bin:${k.mkString(",")}" }.mkString("[", " ", "]")
}
