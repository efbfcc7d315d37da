package org.apache.spark.sql.binshift.routing

import org.apache.spark.sql.catalyst.expressions.{Cast, Expression, NamedExpression, PredicateHelper}
import org.apache.spark.sql.catalyst.plans.{Inner, LeftSemi}
import org.apache.spark.sql.execution.SparkPlan
import org.apache.spark.sql.execution.streaming.operators.stateful.join.StreamingSymmetricHashJoinExec
import org.apache.spark.sql.internal.SQLConf
import org.apache.spark.sql.types.{CalendarIntervalType, DataType, DayTimeIntervalType, TimestampNTZType, TimestampType}
import org.apache.spark.unsafe.types.CalendarInterval

/** Which joins of two streams look up state by the key of the row at hand, and which scan it besides. */
private[routing] object Joins extends PredicateHelper {

  /**
   * Whether a join scans its state for nothing but to remove rows that no later row meets.
   *
   * Relies on Spark: an inner or left semi join removes what is not later than its watermark and gives nothing out, where other
   * joins give out what found no other side. A side drops rows that are not later than the one by which the epoch before removed,
   * by the event time that it has; a row is removed by the event time in its key, or by its own one, if a comparison in the condition
   * tells by which. State of formats 1 to 3 has a count of each key's values, which have the numbers below it.
   */
  def lookUpByKey(join: StreamingSymmetricHashJoinExec): Boolean =
    isQuiet(join) && join.stateFormatVersion <= 3 && !join.conf.getConf(SQLConf.STATE_STORE_SKIP_NULLS_FOR_STREAM_STREAM_JOINS) &&
      (!scan(join) || forgets(join))

  /** Whether a join scans its state at the end of an epoch. */
  def scan(join: StreamingSymmetricHashJoinExec): Boolean =
    join.stateWatermarkPredicates.left.isDefined || join.stateWatermarkPredicates.right.isDefined

  private def isQuiet(join: StreamingSymmetricHashJoinExec): Boolean = join.joinType == Inner || join.joinType == LeftSemi

  /** Whether each side drops late rows by the very column by which rows of the other side are removed. */
  private def forgets(join: StreamingSymmetricHashJoinExec): Boolean =
    join.eventTimeWatermarkForLateEvents.isDefined && hasOneEventTime(join.left) && hasOneEventTime(join.right) &&
      join.leftKeys.zip(join.rightKeys).forall { case (left, right) => isEventTime(left) == isEventTime(right) } &&
      comparesTimes(join)

  /**
   * Whether what the condition says of an event time, it says of the two event times alone and as they are, moved by one interval at
   * most. Spark takes a comparison of one with any column of the other side for one with its event time, and disregards casts
   * that round. It counts a day as 24 hours, where a comparison counts local days, and equal intervals once. By any of these,
   * later rows may meet what is removed.
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
