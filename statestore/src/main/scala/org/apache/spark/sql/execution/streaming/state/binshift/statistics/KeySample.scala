package org.apache.spark.sql.execution.streaming.state.binshift.statistics

import org.apache.datasketches.frequencies.{ErrorType, ItemsSketch}

import org.apache.spark.sql.catalyst.expressions.{BoundReference, Cast, UnsafeProjection, UnsafeRow}
import org.apache.spark.sql.execution.streaming.state.binshift.keys.KeyBins
import org.apache.spark.sql.internal.SQLConf
import org.apache.spark.sql.types.{DataType, StringType}

/**
 * Finds the keys that a store's operations concern most in one epoch, in bounded memory. It exists only while a client asks for it.
 * A sketch of Apache DataSketches, which Spark ships, does the counting. With few keys it is exact. Otherwise it may undercount a
 * key by up to 0.35 % of all operations, so the keys that it reports are certainly frequent.
 *
 * Used by the store's task.
 */
private[binshift] final class KeySample {
  private val sketch = new ItemsSketch[SampledKey](KeySample.Slots)
  private var types = Seq.empty[DataType]

  def offer(bin: Int, key: UnsafeRow, binsOf: KeyBins): Unit = {
    if (types.isEmpty) types = binsOf.keyTypes
    sketch.update(SampledKey(bin, binsOf.keyOf(key).copy()))
  }

  /** The most frequent keys, at most `n`. */
  def hottest(n: Int): Seq[HotKey] = {
    val texts = UnsafeProjection.create(types.zipWithIndex.map { case (t, i) =>
      Cast(BoundReference(i, t, nullable = true), StringType, Some(SQLConf.get.sessionLocalTimeZone))
    })
    sketch.getFrequentItems(ErrorType.NO_FALSE_POSITIVES).iterator.take(n).map { row =>
      val text = texts(row.getItem.key)
      val columns = types.indices.map(i => if (text.isNullAt(i)) "null" else text.getUTF8String(i).toString)
      HotKey(row.getItem.bin, columns.mkString(", ").take(KeySample.TextLength), row.getLowerBound,
        row.getUpperBound - row.getLowerBound)
    }.toSeq
  }
}

private[binshift] object KeySample {
  /** A power of two. Three quarters of it are the number of keys that can be counted at a time. */
  private val Slots = 1024
  private val TextLength = 256
}

private final case class SampledKey(bin: Int, key: UnsafeRow)

/**
 * @param key        the partitioning columns as text
 * @param operations reads and writes that certainly happened
 * @param missing    how many more reads and writes there may have been
 */
private[sql] final case class HotKey(bin: Int, key: String, operations: Long, missing: Long)
