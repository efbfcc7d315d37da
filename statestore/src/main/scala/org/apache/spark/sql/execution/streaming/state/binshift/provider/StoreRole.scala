package org.apache.spark.sql.execution.streaming.state.binshift.provider

/**
 * What a binned store is at the version that it loads.
 *
 * @param followsTable whether a query runs on it, and its bins follow the routing table
 */
private[binshift] sealed abstract class StoreRole(val followsTable: Boolean)

private[binshift] object StoreRole {
  /** Nothing was loaded yet. */
  case object Unloaded extends StoreRole(followsTable = false)
  /** The epoch was begun with Spark's own provider, so it runs, and commits, in that provider's form. */
  case object Stock extends StoreRole(followsTable = false)
  /** The store begins empty, and is filled from files in the form of Spark's own provider. */
  case object Takeover extends StoreRole(followsTable = true)
  case object Routed extends StoreRole(followsTable = true)
  /** The store only reads. */
  case object Read extends StoreRole(followsTable = false)
  /** The store only reads, and the query had no such partition at the version. Its files are from before, so it begins empty. */
  case object Retired extends StoreRole(followsTable = false)

  /**
   * What a store is when it begins to load `version`. One that reads may turn out to be retired.
   *
   * @param takenOverAt the first binned epoch of a checkpoint that Spark's own provider started
   * @param ofRun       whether the store is one of a running query
   */
  def at(version: Long, takenOverAt: Option[Long], ofRun: Boolean): StoreRole =
    if (isStock(version, takenOverAt)) Stock
    else if (!ofRun) Read
    else if (takenOverAt.contains(version)) Takeover
    else Routed

  /** True if the epoch `version` is in the form of Spark's own provider. */
  def isStock(version: Long, takenOverAt: Option[Long]): Boolean = takenOverAt.exists(version < _)
}
