package org.apache.spark.sql.execution.streaming.state.binshift

/**
 * Makes log lines that tools can parse, such as `binshift step: query=… epoch=7 step=1/4`.
 *
 * Lines use the same names where they apply: query, epoch, migration, operator and partition. A value with blanks is quoted.
 */
private[sql] object LogLine {
  def apply(what: String, values: (String, Any)*): String =
    values.map { case (name, value) => s"$name=${quoted(value.toString)}" }.mkString(s"binshift $what: ", " ", "")

  private def quoted(value: String): String =
    if (value.nonEmpty && !value.exists(c => c.isWhitespace || c == '"' || c == '=')) value
    else value.replace("\\", "\\\\").replace("\"", "\\\"").mkString("\"", "", "\"")
}
