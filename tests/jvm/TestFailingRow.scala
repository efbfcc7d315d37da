package org.apache.spark.sql.execution.streaming.state.binshift

import java.nio.file.{Files, Paths}

/** Fails the task of a row, before its operator has ended; queries call it by `java_method`. */
object TestFailingRow {

  /** True; fails instead if there is a file `marker`, which it takes away. */
  def goesOn(marker: String): Boolean = {
    if (Files.deleteIfExists(Paths.get(marker))) throw new java.io.IOException("fails on purpose")
    true
  }
}
