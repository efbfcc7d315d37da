package org.apache.spark.sql.execution.streaming.state.binshift.conversion

import scala.jdk.CollectionConverters._

import org.apache.spark.SparkContext
import org.apache.spark.sql.catalyst.expressions.UnsafeRow
import org.apache.spark.sql.execution.streaming.state.binshift.keys.StoreBins
import org.apache.spark.util.CollectionAccumulator

/**
 * The different keys that the tasks of a conversion found where Spark's hash of them puts them.
 *
 * A key that is distributed by something else is there by chance, once in as many times as there are partitions. So it takes
 * some keys to tell how an operator distributes its rows.
 *
 * Made, and asked, in the driver; travels with tasks.
 *
 * @param hashes     of the keys, a few of each task
 * @param partitions in which the keys are; 2 or more
 */
private[sql] final class DistinctKeys private (hashes: CollectionAccumulator[Int], partitions: Int) extends Serializable {
  import DistinctKeys._

  /** As many as are by chance all in their places less often than once in a billion. */
  val needed: Int = math.ceil(BitsOfProof * math.log(2) / math.log(partitions)).toInt

  def count: Int = hashes.value.asScala.toSet.size

  /** @param placing gives the hash of a key, as one of [[DistinctKeys.Hashes]] partitions */
  private[conversion] def ofTask(placing: StoreBins): OfTask = new OfTask(placing)

  /** Used by the thread of a task. */
  private[conversion] final class OfTask(placing: StoreBins) {
    private var known = Set.empty[Int]

    def found(family: String, key: UnsafeRow): Unit = if (known.size < needed) {
      val hash = placing.of(family)(key)
      if (!known(hash)) {
        known += hash
        hashes.add(hash)
      }
    }
  }
}

private[sql] object DistinctKeys {
  private[conversion] val Hashes = 1 << 30
  private val BitsOfProof = 30

  def in(context: SparkContext, partitions: Int): DistinctKeys =
    new DistinctKeys(context.collectionAccumulator[Int]("binshift: keys looked at"), partitions)
}
