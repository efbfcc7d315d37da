package org.apache.spark.sql.execution.streaming.state.binshift.keys

import org.apache.spark.sql.catalyst.expressions.{CollationAwareMurmur3Hash, Expression, Literal, UnsafeProjection, UnsafeRow}

/**
 * Hashes that tell in which columns a key differs from others: for each column, a hash over all the other columns.
 *
 * Not thread-safe: the projection reuses its row.
 *
 * @param columns the columns of the key, those of structs one by one
 */
private[binshift] final class KeyHashes(columns: Seq[Expression]) {
  private val without = UnsafeProjection.create(columns.indices.map(i => hashOf(columns.patch(i, Nil, 1))))

  /** For each i, the hash of all columns but column i. Reuses the row that it returns. */
  def withoutEach(row: UnsafeRow): UnsafeRow = without(row)

  private def hashOf(some: Seq[Expression]): Expression = if (some.isEmpty) Literal(0) else new CollationAwareMurmur3Hash(some)
}
