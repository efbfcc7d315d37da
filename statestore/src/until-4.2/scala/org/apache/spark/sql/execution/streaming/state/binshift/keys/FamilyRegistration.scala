package org.apache.spark.sql.execution.streaming.state.binshift.keys

import org.apache.spark.sql.execution.streaming.state.{KeyStateEncoderSpec, ReadStateStore, RocksDBStateStoreProvider, StateStore}
import org.apache.spark.sql.types.StructType

/** A store that hears of column families which are there, and are to be read. Spark 4.2 makes them as if they were new. */
private[binshift] trait FamilyRegistration extends StateStore {
  def delegate: RocksDBStateStoreProvider#RocksDBStateStore

  /** Called before Spark's own store hears of the family. */
  protected def register(family: String, spec: KeyStateEncoderSpec): Unit
}

private[binshift] object FamilyRegistration {
  /** Tells a store that only reads of a family that it has. */
  def register(
      store: ReadStateStore, name: String, keySchema: StructType, valueSchema: StructType, spec: KeyStateEncoderSpec,
      isMultiValued: Boolean, isInternal: Boolean): Unit =
    store.asInstanceOf[StateStore].createColFamilyIfAbsent(name, keySchema, valueSchema, spec, isMultiValued, isInternal)
}
