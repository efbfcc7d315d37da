package org.apache.spark.sql.execution.streaming.state.binshift

/** A point of a query's rows, before their operator has ended; queries call it by `java_method`. */
object TestFailingRow {

  def goesOn(): Boolean = {
    Faults.at("query.row")
    true
  }
}
