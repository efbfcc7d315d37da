package org.apache.spark.sql.execution.streaming.state.binshift

import org.apache.spark.sql.execution.streaming.state.{ColumnFamilyInfo, RocksDB, StateStore}

/**
 * A column family of a store. Its number differs from partition to partition, in the order in which
 * operators happened to create the families; what is moved is moved by name.
 *
 * @param isInternal whether Spark counts its rows apart from the user's
 */
private[binshift] final case class ColumnFamily(name: String, isInternal: Boolean)

private[binshift] object ColumnFamily {
  /** The only family of a store that was made without. */
  val Default: ColumnFamily = ColumnFamily(StateStore.DEFAULT_COL_FAMILY_NAME, isInternal = false)

  /**
   * The families of a loaded database.
   *
   * Relies on Spark: `RocksDB` keeps what is internal in a private map. Read by reflection, once per
   * source of a switch.
   */
  def of(db: RocksDB, useColumnFamilies: Boolean): Seq[ColumnFamily] =
    if (!useColumnFamilies) Seq(Default)
    else db.allColumnFamilyNames.toSeq.sorted.map { name =>
      ColumnFamily(name, infoOf.invoke(db, name).asInstanceOf[ColumnFamilyInfo].isInternal)
    }

  private lazy val infoOf = {
    val method = classOf[RocksDB].getDeclaredMethod("getColumnFamilyInfo", classOf[String])
    method.setAccessible(true)
    method
  }
}
