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
 * @param localityWaitMs     that a task waits for its busy executor while something moves, at least
 * @param areRequestsServed  whether the checkpoint is searched for requests of other processes
 * @param requestsIntervalMs between two searches, while nobody asks
 */
private[binshift] final case class DriverConf(
    entriesToRetain: Int, maxEpochsToWait: Int, localityWaitMs: Long, areRequestsServed: Boolean, requestsIntervalMs: Long)

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
    def time(key: String, default: Long, least: Long, wanted: String): Long =
      setting(key, default, wanted)(text => Try(JavaUtils.timeStringAsMs(text)).toOption.filter(_ >= least))
    DriverConf(
      entriesToRetain = count(BinshiftConf.RoutingEntriesToRetain, 256),
      maxEpochsToWait = count(BinshiftConf.MaxEpochsToWait, 120),
      localityWaitMs = time(BinshiftConf.LocalityWait, 30000L, 0L, "a time from 0s on, such as 30s"),
      areRequestsServed = setting(BinshiftConf.RequestsEnabled, true, "true or false")(_.toBooleanOption),
      requestsIntervalMs = time(BinshiftConf.RequestsInterval, 5000L, 50L, "a time from 50ms on, such as 5s"))
  }
}
