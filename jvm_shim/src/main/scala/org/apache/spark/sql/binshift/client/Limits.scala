package org.apache.spark.sql.binshift.client

import java.util.Locale

import scala.util.Try

import org.apache.spark.sql.binshift.migration.{Deadline, EpochGuard}
import org.apache.spark.sql.execution.streaming.state.binshift.BinshiftException

/** Parses the deadline and the guard of a migration, by the rules and with the errors of Python's `planning/limits.py`. Pure. */
private[binshift] object Limits {
  /** More than thirty years. The driver counts in milliseconds. */
  private val Most = 1e9
  private val Form = """\s*(\d+(?:\.\d+)?)\s*([a-z]*)\s*""".r
  private val Epochs = Set("epoch", "epochs")
  private val Seconds = Map("" -> 1, "s" -> 1, "second" -> 1, "seconds" -> 1, "min" -> 60, "minute" -> 60, "minutes" -> 60,
    "h" -> 3600, "hour" -> 3600, "hours" -> 3600)
  private val OnTimeout = Seq(Deadline.Finish, Deadline.Keep, Deadline.Rollback)
  /** After so many epochs that are longer than the guard allows, a migration is rolled back. */
  private val LongEpochs = 3

  /**
   * @param text      `600 s`, `10 min`, `2 h`, `30 epochs`, or a number of seconds
   * @param onTimeout what happens when the deadline passes; by default, the migration goes on
   */
  def deadline(text: Option[String], onTimeout: Option[String]): Option[Deadline] = {
    val wanted = onTimeout.getOrElse(Deadline.Finish)
    if (!OnTimeout.contains(wanted)) throw impossible("on_timeout", wanted, OnTimeout.map(o => s"'$o'").mkString(" or "))
    if (text.isEmpty && wanted != Deadline.Finish) throw BinshiftException("INVALID_VALUE", "name" -> "on_timeout",
      "value" -> wanted).plan(
      s"on timeout '$wanted' without a deadline is impossible; give a deadline too, such as '10 min'")
    text.map(t =>
      parse(t, wanted).filter(d => d.amount > 0 && d.amount <= Most).getOrElse(
        throw impossible("deadline", t, "a time above 0, such as '600 s', '10 min', '2 h' or '30 epochs'")))
  }

  def guard(longestEpochS: Option[Double]): Option[EpochGuard] = longestEpochS.map { s =>
    if (!(s >= 0.001 && s <= Most)) throw BinshiftException("INVALID_VALUE", "name" -> "guard_longest_epoch_s",
      "value" -> s).plan(s"guard longest epoch $s is impossible; give a number of seconds, at least 0.001")
    EpochGuard((s * 1000).toLong, LongEpochs)
  }

  private def parse(text: String, onTimeout: String): Option[Deadline] = text.toLowerCase(Locale.ROOT) match {
    case Form(n, unit) if Epochs(unit) => Try(Deadline(n.toLong.toDouble, isEpochs = true, onTimeout)).toOption
    case Form(n, unit) => Seconds.get(unit).map(s => Deadline(n.toDouble * s, isEpochs = false, onTimeout))
    case _ => None
  }

  private def impossible(name: String, value: String, wanted: String): BinshiftException =
    BinshiftException("INVALID_VALUE", "name" -> name, "value" -> value).plan(
      s"${name.replace('_', ' ')} '$value' is impossible; give $wanted")
}
