package org.apache.spark.sql.execution.streaming.state.binshift.provider

import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.catalyst.expressions.{JoinedRow, UnsafeProjection}
import org.apache.spark.sql.execution.streaming.state._
import org.apache.spark.sql.execution.streaming.state.binshift.keys.{Extent, KeyRows, StoreBins}
import org.apache.spark.sql.execution.streaming.state.binshift.routing.TouchedKey
import org.apache.spark.sql.types.{DataType, StructType}

/**
 * Where the rows of an operator's keys are in its store: a value or a list by the key itself, a map's entries behind it, and the
 * values of a join by their numbers.
 *
 * A key of another form than that of a family is left out, and so is a family that is found otherwise. Both are matters of speed:
 * whole bins come then.
 *
 * Relies on Spark: `transformWithState` has the columns of the grouping key as the key of a value or list, and as one struct
 * before the entry's key for a map. A join has the number of a value behind the columns of the key.
 *
 * Used by the store's task.
 *
 * @param binsOf knows the encoders of the families that there are by now
 */
private[provider] final class RowsOfKeys(
    store: RocksDBStateStoreProvider#RocksDBStateStore, db: BinnedRocksDB, binsOf: StoreBins) {

  /** The rows of `keys` in all families. */
  def of(keys: Seq[TouchedKey]): Seq[KeyRows] = {
    val families = binsOf.specs.toSeq.filter { case (family, _) =>
      !db.hasFamilies || family != StateStore.DEFAULT_COL_FAMILY_NAME
    }
    families.flatMap {
      case (family, NoPrefixKeyStateEncoderSpec(schema)) if binsOf.haveNumbers(family) =>
        numbered(family, schema, keys.filter(_.key.numFields == schema.size - 1))
      case (family, NoPrefixKeyStateEncoderSpec(schema)) =>
        keys.filter(_.key.numFields == schema.size)
          .map(t => KeyRows(family, db.keyOf(t.bin)(store.get(t.key, family)), Extent.One))
      case (family, PrefixKeyScanStateEncoderSpec(schema, 1)) =>
        schema.head.dataType match {
          case columns: StructType =>
            val asStruct = UnsafeProjection.create(Array[DataType](columns))
            keys.filter(_.key.numFields == columns.size).map { t =>
              KeyRows(family, db.keyOf(t.bin)(store.prefixScan(asStruct(InternalRow(t.key)), family)), Extent.Beginning)
            }
          case _ => Nil
        }
      case _ => Nil
    }
  }

  /** None if the keys of two rows differ in more than their number, as no encoder of today has it. */
  private def numbered(family: String, schema: StructType, keys: Seq[TouchedKey]): Seq[KeyRows] = {
    val withNumber = UnsafeProjection.create(schema.map(_.dataType).toArray)
    def stored(t: TouchedKey, number: Long): Array[Byte] =
      db.keyOf(t.bin)(store.get(withNumber(new JoinedRow(t.key, InternalRow(number))), family))
    // It is behind columns of fixed width, so at the same place for all keys.
    val at = keys.headOption.flatMap(t => Extent.Numbered.of(stored(t, 0), stored(t, -1)))
    at.toSeq.flatMap(where => keys.map(t => KeyRows(family, stored(t, 0), where)))
  }
}
