package org.apache.spark.sql.execution.streaming.state.binshift.provider

import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.catalyst.expressions.UnsafeProjection
import org.apache.spark.sql.execution.streaming.state._
import org.apache.spark.sql.execution.streaming.state.binshift.keys.KeyRows
import org.apache.spark.sql.execution.streaming.state.binshift.routing.TouchedKey
import org.apache.spark.sql.types.{DataType, StructType}

/**
 * Where the rows of an operator's keys are in its store: a value or a list by the key itself, a map's entries behind it.
 *
 * A key of another form than that of a family is left out, and so is a family that is found otherwise. Both are matters of speed:
 * whole bins come then.
 *
 * Relies on Spark: `transformWithState` has the columns of the grouping key as the key of a value or list, and as one struct
 * before the entry's key for a map.
 *
 * Used by the store's task.
 *
 * @param specs the encoders of the families that are known by now
 */
private[provider] final class RowsOfKeys(
    store: RocksDBStateStoreProvider#RocksDBStateStore, db: BinnedRocksDB, specs: => Map[String, KeyStateEncoderSpec]) {

  /** The rows of `keys` in all families. */
  def of(keys: Seq[TouchedKey]): Seq[KeyRows] = {
    val families = specs.toSeq.filter { case (family, _) => !db.hasFamilies || family != StateStore.DEFAULT_COL_FAMILY_NAME }
    families.flatMap {
      case (family, NoPrefixKeyStateEncoderSpec(schema)) =>
        keys.filter(_.key.numFields == schema.size)
          .map(t => KeyRows(family, db.keyOf(t.bin)(store.get(t.key, family)), isPrefix = false))
      case (family, PrefixKeyScanStateEncoderSpec(schema, 1)) =>
        schema.head.dataType match {
          case columns: StructType =>
            val asStruct = UnsafeProjection.create(Array[DataType](columns))
            keys.filter(_.key.numFields == columns.size).map { t =>
              KeyRows(family, db.keyOf(t.bin)(store.prefixScan(asStruct(InternalRow(t.key)), family)), isPrefix = true)
            }
          case _ => Nil
        }
      case _ => Nil
    }
  }
}
