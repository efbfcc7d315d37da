package org.apache.spark.sql.binshift.statistics

import org.json4s.JValue
import org.json4s.JsonDSL._

import org.apache.spark.sql.execution.streaming.state.binshift.routing.RoutingTable
import org.apache.spark.sql.execution.streaming.state.binshift.statistics.StoreReport

/** The hottest keys of all operators in a sampled epoch, hottest first. */
private[binshift] final case class HotKeys(epoch: Long, keys: Seq[OperatorKey]) {
  def toJson: JValue = ("epoch" -> epoch) ~ ("keys" -> keys.map { k =>
    ("operator" -> k.operator) ~ ("name" -> k.name) ~ ("bin" -> k.bin) ~ ("partition" -> k.partition) ~
      ("key" -> k.key) ~ ("operations" -> k.operations) ~ ("missing" -> k.missing) ~ ("share" -> k.share)
  })
}

/**
 * @param operations reads and writes that certainly happened, in all stores of the operator
 * @param missing    how many more reads and writes there may have been
 * @param share      the certain operations, divided by all operations of the bin
 */
private[binshift] final case class OperatorKey(
    operator: Long, name: String, bin: Int, partition: Int, key: String, operations: Long, missing: Long,
    share: Double)

private[binshift] object HotKeys {
  /** Enough for any client. */
  private val MaxKeys = 100

  def of(
      epoch: Long, table: RoutingTable, operators: Iterable[OperatorStatistics],
      reports: Iterable[StoreReport]): HotKeys = {
    val keys = operators.toSeq.flatMap { o =>
      val found = reports.toSeq.filter(_.operator == o.id).flatMap(_.hotKeys)
      found.groupBy(k => (k.bin, k.key)).map { case ((bin, key), parts) =>
        val operations = parts.map(_.operations).sum
        OperatorKey(o.id, o.name, bin, table.owner(bin), key, operations, parts.map(_.missing).sum,
          operations.toDouble / math.max(1, o.touches(bin)))
      }
    }
    HotKeys(epoch, keys.sortBy(k => (-k.operations, k.operator, k.bin, k.key)).take(MaxKeys))
  }
}
