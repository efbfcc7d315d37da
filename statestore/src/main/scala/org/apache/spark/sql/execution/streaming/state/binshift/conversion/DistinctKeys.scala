package org.apache.spark.sql.execution.streaming.state.binshift.conversion

import scala.jdk.CollectionConverters._

import org.apache.spark.SparkContext
import org.apache.spark.sql.catalyst.expressions.UnsafeRow
import org.apache.spark.sql.execution.streaming.state.binshift.keys.StoreBins
import org.apache.spark.util.CollectionAccumulator

/**
 * The distinct keys that the tasks of a conversion found in the partition where Spark's hash would put them.
 *
 * A key that is distributed by something else is in that partition by chance, with a probability of one in the number of
 * partitions. So we need to see several keys before we know how an operator distributes its rows.
 *
 * Created and queried in the driver; travels with tasks.
 *
 * @param hashes     of the keys, a few of each task
 * @param partitions in which the keys are; 2 or more
 */
private[sql] final class DistinctKeys private (hashes: CollectionAccumulator[Int], partitions: Int) extends Serializable {
  import DistinctKeys._

  /** So many keys that the chance of finding all of them in their places by accident is below one in a billion. */
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
