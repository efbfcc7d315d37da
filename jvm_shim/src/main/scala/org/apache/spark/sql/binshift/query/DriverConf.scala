package org.apache.spark.sql.binshift.query

import scala.util.Try

import org.apache.spark.network.util.JavaUtils
import org.apache.spark.sql.classic.SparkSession
import org.apache.spark.sql.execution.streaming.state.binshift.{BinshiftConf, BinshiftException}

/**
 * Settings that the driver reads, once for each run of a query; see docs/settings.md.
 *
 * @param entriesToRetain    entries of the routing log that are kept, beyond those that recovery needs
 * @param maxEpochsToWait    epochs without progress of its copies that a step waits
 * @param areRequestsServed  whether the checkpoint is searched for requests of other processes
 * @param requestsIntervalMs between two searches, while nobody asks
 */
private[binshift] final case class DriverConf(
    entriesToRetain: Int, maxEpochsToWait: Int, areRequestsServed: Boolean, requestsIntervalMs: Long)

private[binshift] object DriverConf {
  /** @throws BinshiftException if a setting is no number from 0 on, or neither true nor false */
  def of(session: SparkSession): DriverConf = {
    def setting[A](key: String, default: A, wanted: String)(parse: String => Option[A]): A =
      session.conf.getOption(key).fold(default) { text =>
        parse(text).getOrElse(
          throw BinshiftException("INVALID_VALUE", "name" -> key, "value" -> text).configuration(
            s"$key is '$text'; it must be $wanted"))
      }
    def count(key: String, default: Int): Int =
      setting(key, default, "a whole number from 0 on")(_.toIntOption.filter(_ >= 0))
    DriverConf(
      entriesToRetain = count(BinshiftConf.RoutingEntriesToRetain, 256),
      maxEpochsToWait = count(BinshiftConf.MaxEpochsToWait, 120),
      areRequestsServed = setting(BinshiftConf.RequestsEnabled, true, "true or false")(_.toBooleanOption),
      requestsIntervalMs = setting(BinshiftConf.RequestsInterval, 5000L, "a time from 50ms on, such as 5s")(text =>
        Try(JavaUtils.timeStringAsMs(text)).toOption.filter(_ >= 50)))
  }
}
