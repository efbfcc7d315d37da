package org.apache.spark.sql.binshift.internals

private[binshift] object JarVersion {
  /** The version of the jar that contains this class. */
  def version: String = Option(getClass.getPackage.getImplementationVersion).getOrElse("unknown")
}
