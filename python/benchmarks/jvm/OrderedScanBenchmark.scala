package org.apache.spark.sql.execution.streaming.state.binshift

import java.nio.ByteBuffer
import java.nio.file.Files
import java.util.Random

import org.apache.hadoop.conf.Configuration

import org.apache.spark.sql.execution.streaming.state._
import org.apache.spark.sql.internal.SQLConf

/**
 * Two ways to keep rows that are read in order across keys, such as timers: with their bin in front
 * and merged when read, or without and filtered when they are moved. One line of results per number
 * of timers: milliseconds, medians of `Repeats`.
 */
object OrderedScanBenchmark {
  private val Bins = 1024
  private val Partitions = 4
  private val Repeats = 15

  def main(args: Array[String]): Unit = {
    println("timers  expired  read_stock_ms  read_merged_ms  move_range_ms  move_filter_ms")
    args.map(_.toInt).foreach(measure)
  }

  /** One partition's share of the bins; a hundredth of the timers expires in an epoch. */
  private def measure(timers: Int): Unit = {
    val owned = Array.range(0, Bins).filter(_ % Partitions == 0)
    val random = new Random(42)
    val keys = Array.fill(timers)((random.nextInt(timers).toLong, owned(random.nextInt(owned.length)), random.nextLong()))
    val stock = open("stock")
    val binned = open("binned")
    keys.foreach { case (time, bin, key) =>
      stock.put(encode(time, key), Value)
      binned.put(BinKeyCodec.encode(bin, encode(time, key)), Value)
    }
    stock.commit()
    binned.commit()
    val from = time(timers / 2)
    val until = time(timers / 2 + timers / 100)
    var expired = 0
    val readStock = median {
      expired = drain(stock.rangeScan(Some(from), Some(until)))
    }
    val readMerged = median {
      val n = drain(new OrderedScan(binned.reusableIterator(), owned, from, Some(until)))
      require(n == expired, s"merged $n, stock $expired")
    }
    val moving = owned.take(16)
    val moveRange = median {
      moving.foreach(b => drain(binned.rangeScan(BinKeyCodec.lowerBound(b), BinKeyCodec.lowerBound(b + 1))))
    }
    // Without a bin in the key, every key is read, decoded and hashed to learn whether it moves.
    val isMoving = moving.toSet
    val moveFilter = median {
      val rows = stock.iterator()
      rows.count(r => isMoving(scala.util.hashing.MurmurHash3.bytesHash(r.key.drop(9)) & (Bins - 1)))
      rows.closeIfNeeded()
    }
    println(f"$timers%7d $expired%8d $readStock%14.2f $readMerged%15.2f $moveRange%14.2f $moveFilter%15.2f")
    stock.close()
    binned.close()
  }

  private def median(body: => Unit): Double = {
    val times = (0 until Repeats + 5).map { _ =>
      val start = System.nanoTime()
      body
      (System.nanoTime() - start) / 1e6
    }.drop(5).sorted
    times(times.size / 2)
  }

  private def drain(rows: org.apache.spark.util.NextIterator[ByteArrayPair]): Int = {
    var n = 0
    while (rows.hasNext) { rows.next(); n += 1 }
    rows.closeIfNeeded()
    n
  }

  private val Value = Array[Byte](0, 0, 0, 0, 0, 0, 0, 0)

  /** A timer as Spark encodes it, near enough: a marker, the time, and a grouping key of 24 bytes. */
  private def encode(time: Long, key: Long): Array[Byte] =
    ByteBuffer.allocate(33).put(0.toByte).putLong(time).putLong(0).putLong(0).putLong(key).array()

  private def time(t: Int): Array[Byte] = ByteBuffer.allocate(9).put(0.toByte).putLong(t.toLong).array()

  private def open(name: String): RocksDB = {
    val conf = RocksDBConf(StateStoreConf(new SQLConf()))
    val db = new RocksDB(Files.createTempDirectory(name).toString, conf,
      localRootDir = Files.createTempDirectory(name).toFile, hadoopConf = new Configuration(), loggingId = name)
    db.load(0)
    db
  }
}
