package org.apache.spark.sql.execution.streaming.state.binshift.provider

import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.catalyst.expressions.{JoinedRow, UnsafeProjection}
import org.apache.spark.sql.execution.streaming.state._
import org.apache.spark.sql.execution.streaming.state.binshift.keys.{Extent, KeyRows, StoreBins}
import org.apache.spark.sql.execution.streaming.state.binshift.routing.TouchedKey
import org.apache.spark.sql.types.{DataType, StructType}

/**
 * Finds the rows of an operator's keys in its store: a value or a list has the key itself, a map's entries have keys that begin with it,
 * and the values of a join are numbered.
 *
 * Families whose keys have another form are left out. That only costs speed, because whole bins come then.
 *
 * Relies on Spark: in `transformWithState`, the key of a value or list consists of the columns of the grouping key; for a map, these
 * are one struct, followed by the entry's key. In a join, the columns of the key are followed by the number of the value.
 *
 * Used by the store's task.
 *
 * @param binsOf knows the encoders of the families that were registered so far
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

  /** Empty if the keys of two rows differ in more than their number, which today's encoders don't do. */
  private def numbered(family: String, schema: StructType, keys: Seq[TouchedKey]): Seq[KeyRows] = {
    val withNumber = UnsafeProjection.create(schema.map(_.dataType).toArray)
    def stored(t: TouchedKey, number: Long): Array[Byte] =
      db.keyOf(t.bin)(store.get(withNumber(new JoinedRow(t.key, InternalRow(number))), family))
    // The number follows columns of fixed width, so it is at the same place in all keys.
    val at = keys.headOption.flatMap(t => Extent.Numbered.of(stored(t, 0), stored(t, -1)))
    at.toSeq.flatMap(where => keys.map(t => KeyRows(family, stored(t, 0), where)))
  }
}
