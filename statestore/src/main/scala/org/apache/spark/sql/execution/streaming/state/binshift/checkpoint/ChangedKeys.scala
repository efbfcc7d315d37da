package org.apache.spark.sql.execution.streaming.state.binshift.checkpoint

import org.json4s.{DefaultFormats, Formats, JValue}
import org.json4s.JsonDSL._

import org.apache.spark.sql.execution.streaming.state.binshift.BinshiftException

/**
 * Records that an operator keeps state under other keys than those of its rows. From the first such row on, none of the operator's
 * bins may move.
 *
 * Only the partition that got the row can find that state again, as with Spark's own provider. So the table in force when the first
 * of these rows was written stays in force for good. A task makes this file durable before it commits such state, and the driver
 * looks for it before it makes a step durable.
 *
 * @param columns names of the grouping columns of which all or some have changed; empty if it isn't known which
 * @param epoch   the epoch in which this was noticed
 */
private[sql] final case class ChangedKeys(operator: Long, name: String, columns: Seq[String], epoch: Long) {

  /** The beginning of messages that go on with the consequences. */
  def described: String = {
    val what = columns match {
      case Nil => "one of its grouping columns has"
      case Seq(one) => s"column $one has"
      case several => s"one of the columns ${several.mkString(", ")} has"
    }
    s"operator $operator ($name) keeps state under other keys than those of its rows: the value of $what changed on its way to " +
      "the state, for example because pandas makes floats of integers if there is a null among them"
  }

  /** The error for a plan that wants to move bins. */
  def refusal(more: String): BinshiftException =
    BinshiftException("KEYS_CHANGE", "operator" -> operator, "columns" -> columns.mkString(", ")).unsupportedOperator(
      s"$described; such state can only be found in its present partition, so no bins can move; $more")
}

private[sql] object ChangedKeys {
  val Dir = "changed_keys"
  private val FormatVersion = 1

  /** Lists the directory, and reads a file for each operator concerned. */
  def read(dir: ControlDir): Seq[ChangedKeys] = dir.numbers(Dir).flatMap(op => dir.decoded(s"$Dir/$op")(fromJson(op, _)))

  /** Writes the file unless it exists. Several tasks may write the same. */
  def write(dir: ControlDir, changed: ChangedKeys): Unit = {
    val file = s"$Dir/${changed.operator}"
    if (!dir.exists(file)) dir.write(file, toJson(changed))
  }

  private def toJson(c: ChangedKeys): JValue =
    ("format" -> FormatVersion) ~ ("operator" -> c.operator) ~ ("name" -> c.name) ~ ("columns" -> c.columns) ~
      ("epoch" -> c.epoch)

  private def fromJson(operator: Long, json: JValue): ChangedKeys = {
    implicit val formats: Formats = DefaultFormats
    ControlDir.requireFormat(json, s"$Dir/$operator", FormatVersion)
    ChangedKeys(operator, (json \ "name").extract[String], (json \ "columns").extract[Seq[String]],
      (json \ "epoch").extract[Long])
  }
}
