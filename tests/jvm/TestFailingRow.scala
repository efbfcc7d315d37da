package org.apache.spark.sql.execution.streaming.state.binshift

/** A fault point for rows of a query whose operator has not ended yet; queries call it by `java_method`. */
object TestFailingRow {

  def goesOn(): Boolean = {
    Faults.at("query.row")
    true
  }
}
