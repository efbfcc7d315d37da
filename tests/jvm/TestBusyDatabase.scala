package org.apache.spark.sql.execution.streaming.state.binshift.storage

import java.util.Random

import org.rocksdb._

/** A database of which binshift doesn't know, as if it were just being opened. */
object TestBusyDatabase {
  private val Files = 4
  private val BytesPerFile = 1 << 20

  /** Opens a database that compacts for about so many seconds, and logs through the JVM when it is done. */
  def compact(dir: String, seconds: Int): Unit = {
    RocksDB.loadLibrary()
    val options = new Options().setCreateIfMissing(true).setLevel0FileNumCompactionTrigger(Files)
      .setCompactionReadaheadSize(64L << 10).setCompressionType(CompressionType.NO_COMPRESSION)
    val refillMicros = 20000L
    options.setRateLimiter(new RateLimiter(
        (Files * BytesPerFile / seconds).toLong, refillMicros, 10, RateLimiterMode.READS_ONLY, false))
    val logger = new Logger(InfoLogLevel.INFO_LEVEL) {
      override protected def log(level: InfoLogLevel, message: String): Unit = ()
    }
    options.setLogger(logger)
    val db = RocksDB.open(options, dir)
    val random = new Random(7)
    val value = new Array[Byte](1000)
    (1 to Files).foreach { _ =>
      (1 to BytesPerFile / value.length).foreach { _ =>
        random.nextBytes(value)
        db.put(BigInt(64, random).toByteArray, value)
      }
      db.flush(new FlushOptions())
    }
  }
}
