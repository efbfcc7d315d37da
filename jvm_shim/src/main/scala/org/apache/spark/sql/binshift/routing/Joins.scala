package org.apache.spark.sql.binshift.routing

import org.apache.spark.sql.catalyst.expressions.{Cast, Expression, NamedExpression, PredicateHelper}
import org.apache.spark.sql.catalyst.plans.{Inner, LeftSemi}
import org.apache.spark.sql.execution.SparkPlan
import org.apache.spark.sql.execution.streaming.operators.stateful.join.StreamingSymmetricHashJoinExec
import org.apache.spark.sql.internal.SQLConf
import org.apache.spark.sql.types.{CalendarIntervalType, DataType, DayTimeIntervalType, TimestampNTZType, TimestampType}
import org.apache.spark.unsafe.types.CalendarInterval

/** Tells which joins of two streams look up state by the key of the row at hand, and which ones scan it besides. */
private[routing] object Joins extends PredicateHelper {

  /**
   * True if a join scans its state only to remove rows that no later row can meet.
   *
   * Relies on Spark: an inner or left semi join removes rows that are not later than its watermark, and gives nothing out. Other
   * joins give out rows that found no match. Each side drops arriving rows by its event time, if they are not later than the
   * watermark by which the epoch before removed. A row of state is removed by the event time in its key, or by its own event time
   * if a comparison in the condition gives a limit. State of formats 1 to 3 counts the values of each key, and numbers them from 0.
   */
  def lookUpByKey(join: StreamingSymmetricHashJoinExec): Boolean =
    isQuiet(join) && join.stateFormatVersion <= 3 && !join.conf.getConf(SQLConf.STATE_STORE_SKIP_NULLS_FOR_STREAM_STREAM_JOINS) &&
      (!scan(join) || forgets(join))

  /** True if a join scans its state at the end of an epoch. */
  def scan(join: StreamingSymmetricHashJoinExec): Boolean =
    join.stateWatermarkPredicates.left.isDefined || join.stateWatermarkPredicates.right.isDefined

  private def isQuiet(join: StreamingSymmetricHashJoinExec): Boolean = join.joinType == Inner || join.joinType == LeftSemi

  /** True if each side drops late rows by the very column by which rows of the other side are removed. */
  private def forgets(join: StreamingSymmetricHashJoinExec): Boolean =
    join.eventTimeWatermarkForLateEvents.isDefined && hasOneEventTime(join.left) && hasOneEventTime(join.right) &&
      join.leftKeys.zip(join.rightKeys).forall { case (left, right) => isEventTime(left) == isEventTime(right) } &&
      comparesTimes(join)

  /**
   * True if every comparison of an event time in the condition is between the two event times themselves, shifted by one interval at
   * most. Otherwise Spark may remove rows that later rows should meet: it takes a comparison with any column of the other side for
   * one with the event time, ignores casts that round, counts a day as 24 hours although the comparison counts local days, and
   * counts equal intervals only once.
   */
  private def comparesTimes(join: StreamingSymmetricHashJoinExec): Boolean = {
    val times = (join.left.output ++ join.right.output).filter(StatefulOperators.isEventTime).map(_.exprId).toSet
    join.condition.full.toSeq.flatMap(splitConjunctivePredicates)
      .filter(_.references.exists(column => times(column.exprId)))
      .forall { part =>
        val constants = constantsOf(part)
        part.references.forall(column => times(column.exprId) && isTime(column.dataType)) && !part.exists(isCast) &&
        constants.size <= 1 && constants.forall(isShort)
      }
  }

  private def isTime(of: DataType): Boolean = of == TimestampType || of == TimestampNTZType

  private def isCast(part: Expression): Boolean = part match {
    case cast: Cast => cast.references.nonEmpty
    case _ => false
  }

  private def constantsOf(part: Expression): Seq[Expression] =
    if (part.foldable) Seq(part) else part.children.flatMap(constantsOf)

  private def isShort(constant: Expression): Boolean = (constant.dataType, constant.eval()) match {
    case (_: DayTimeIntervalType, micros: Long) => math.abs(micros) < MicrosPerDay
    case (CalendarIntervalType, interval: CalendarInterval) =>
      interval.months == 0 && interval.days == 0 && math.abs(interval.microseconds) < MicrosPerDay
    case _ => false
  }

  private val MicrosPerDay = 24L * 60 * 60 * 1000 * 1000

  private def hasOneEventTime(side: SparkPlan): Boolean = side.output.count(StatefulOperators.isEventTime) == 1

  private def isEventTime(key: Expression): Boolean = key match {
    case column: NamedExpression => StatefulOperators.isEventTime(column)
    case _ => false
  }
}
