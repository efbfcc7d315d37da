package org.apache.spark.sql.execution.streaming.state.binshift

import org.apache.spark.sql.catalyst.expressions.{BoundReference, CollationAwareMurmur3Hash, Expression, Literal, Pmod, UnsafeProjection, UnsafeRow}
import org.apache.spark.sql.types.StructType

/**
 * The bin of a state key whose columns are all partitioning columns.
 *
 * Not thread-safe: the projection reuses its output row. One instance per store.
 */
private[binshift] final class KeyBins(keySchema: StructType, bins: Int) {
  private val projection = UnsafeProjection.create(Seq(KeyBins.expression(
    keySchema.zipWithIndex.map { case (f, i) => BoundReference(i, f.dataType, f.nullable) }, bins)))

  def apply(key: UnsafeRow): Int = projection(key).getInt(0)
}

private[sql] object KeyBins {
  /**
   * Bin of a row. The exchange and the store must agree on it, so both take it from here.
   *
   * Relies on Spark: `HashPartitioning.partitionIdExpression` is `Pmod` of this very hash. Being the
   * same hash makes the first table of a checkpoint (bin modulo n, n dividing bins) place each key
   * where Spark does.
   */
  def expression(keys: Seq[Expression], bins: Int): Expression =
    Pmod(new CollationAwareMurmur3Hash(keys), Literal(bins))
}
