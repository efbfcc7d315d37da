package org.apache.spark.sql.execution.streaming.state.binshift.keys

/**
 * The rows of a partitioning key in a column family: one, or all those whose keys begin with it.
 *
 * @param family   the name of the family
 * @param key      the key, or what all keys begin with, in its stored form and without the number of the family
 * @param isPrefix whether there may be several rows
 */
private[binshift] final case class KeyRows(family: String, key: Array[Byte], isPrefix: Boolean)

private[binshift] object KeyRows {
  /** The order in which a database has keys. */
  val Order: Ordering[Array[Byte]] = (a, b) => java.util.Arrays.compareUnsigned(a, b)

  def begins(key: Array[Byte], prefix: Array[Byte]): Boolean =
    key.length >= prefix.length && java.util.Arrays.equals(key, 0, prefix.length, prefix, 0, prefix.length)
}
