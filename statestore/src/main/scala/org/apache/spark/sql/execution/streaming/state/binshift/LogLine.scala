package org.apache.spark.sql.execution.streaming.state.binshift

/**
 * Lines of the log that tools can take apart: `binshift step: query=… epoch=7 step=1/4`.
 *
 * The names that all lines share are query, epoch, migration, operator and partition. A value with blanks is quoted.
 */
private[sql] object LogLine {
  def apply(what: String, values: (String, Any)*): String =
    values.map { case (name, value) => s"$name=${quoted(value.toString)}" }.mkString(s"binshift $what: ", " ", "")

  private def quoted(value: String): String =
    if (value.nonEmpty && !value.exists(c => c.isWhitespace || c == '"' || c == '=')) value
    else value.replace("\\", "\\\\").replace("\"", "\\\"").mkString("\"", "", "\"")
}
