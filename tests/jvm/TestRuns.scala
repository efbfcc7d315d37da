package org.apache.spark.sql.execution.streaming.state.binshift

import org.apache.spark.sql.catalyst.expressions.{BoundReference, GenericInternalRow, UnsafeProjection}
import org.apache.spark.sql.execution.streaming.state.binshift.routing.OrderedRuns
import org.apache.spark.sql.types.{IntegerType, StringType}
import org.apache.spark.unsafe.types.UTF8String

/** The order of rows, without a query. */
object TestRuns {
  /**
   * Rows whose places and lengths of text are given, in the order that they come out of runs of `runBytes`: the number
   * of each, and its length. Lists are texts, such as "1:30 2:0", since each number of an array is a call from Python.
   */
  def ordered(rowsOf: String, runBytes: Int): String = {
    val wanted = rowsOf.split(' ').filter(_.nonEmpty).map(_.split(':').map(_.toInt))
    val projection = UnsafeProjection.create(Seq(
        BoundReference(0, IntegerType, nullable = false), BoundReference(1, IntegerType, nullable = false),
        BoundReference(2, StringType, nullable = false)))
    // One row object that changes with each step, as in a shuffle.
    val rows = wanted.iterator.zipWithIndex.map { case (Array(place, length), i) =>
      projection(new GenericInternalRow(Array[Any](place, i, UTF8String.fromString("x" * length))))
    }
    new OrderedRuns(rows, 3, _.getInt(0), runBytes)
      .map(row => s"${row.getInt(1)}:${row.getUTF8String(2).numBytes}").mkString(" ")
  }
}
