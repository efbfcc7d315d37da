package org.apache.spark.sql.execution.streaming.state.binshift.shipping

import java.io.File

/** Scratch databases for stores that are about to get bins. */
object TestScratch {
  /** The bytes of memory that all of them share. */
  def sharedBytes(): Long = StagingDatabase.Cache.getUsage

  def open(directory: String): TestScratch = new TestScratch(new File(directory))
}

final class TestScratch(dir: File) {
  private val store = new StagingStore(dir, Nil)

  /** Changes rows of a kilobyte each; returns how many it finds again. */
  def change(rows: Int): Int = {
    def key(i: Int) = f"key$i%09d".getBytes
    (0 until rows).foreach(i => store.change(key(i), Some(new Array[Byte](1024)), None))
    (0 until rows).count(i => store.get(key(i)).exists(_.length == 1024))
  }

  def close(): Unit = store.close()
}
