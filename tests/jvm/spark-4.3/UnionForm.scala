package org.apache.spark.sql.execution

object UnionForm {
  /** True if a union puts its branches one after the other, rather than partition by partition, when it runs. */
  def isPlain(union: UnionExec): Boolean = union.isPlainUnion
}
