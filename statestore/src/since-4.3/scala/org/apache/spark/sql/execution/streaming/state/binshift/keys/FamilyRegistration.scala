package org.apache.spark.sql.execution.streaming.state.binshift.keys

import org.apache.spark.sql.execution.streaming.state.{KeyStateEncoderSpec, ReadStateStore, RocksDBStateStoreProvider, StateStore}
import org.apache.spark.sql.types.StructType

/** A store that is told about existing column families before they are read. Spark 4.3 has a method for it. */
private[binshift] trait FamilyRegistration extends StateStore {
  def delegate: RocksDBStateStoreProvider#RocksDBStateStore

  /** Called before Spark's own store is told about the family. */
  protected def register(family: String, spec: KeyStateEncoderSpec): Unit

  override def registerColFamily(
      colFamilyName: String,
      keySchema: StructType,
      valueSchema: StructType,
      keyStateEncoderSpec: KeyStateEncoderSpec,
      useMultipleValuesPerKey: Boolean,
      isInternal: Boolean): Unit = {
    register(colFamilyName, keyStateEncoderSpec)
    delegate.registerColFamily(colFamilyName, keySchema, valueSchema, keyStateEncoderSpec, useMultipleValuesPerKey, isInternal)
  }
}

private[binshift] object FamilyRegistration {
  /** Tells a read-only store about one of its families. */
  def register(
      store: ReadStateStore, name: String, keySchema: StructType, valueSchema: StructType, spec: KeyStateEncoderSpec,
      isMultiValued: Boolean, isInternal: Boolean): Unit =
    store.registerColFamily(name, keySchema, valueSchema, spec, isMultiValued, isInternal)
}
