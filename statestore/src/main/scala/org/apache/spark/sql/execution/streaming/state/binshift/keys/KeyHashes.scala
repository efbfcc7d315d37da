package org.apache.spark.sql.execution.streaming.state.binshift.keys

import org.apache.spark.sql.catalyst.expressions.{CollationAwareMurmur3Hash, Expression, Literal, UnsafeProjection, UnsafeRow}

/**
 * Hashes that distinguish the keys of rows: one over all columns of a key, and for each column, one over all the others.
 *
 * Not thread-safe: the projections reuse their rows.
 *
 * @param columns the columns of the key, those of structs one by one
 */
private[binshift] final class KeyHashes(columns: Seq[Expression]) {
  private val all = UnsafeProjection.create(Seq(hashOf(columns)))
  private lazy val without = UnsafeProjection.create(columns.indices.map(i => hashOf(columns.patch(i, Nil, 1))))

  def size: Int = columns.size
  def whole(row: UnsafeRow): Int = all(row).getInt(0)

  /** For each i, the hash of all columns but column i. Reuses the row that it returns. */
  def withoutEach(row: UnsafeRow): UnsafeRow = without(row)

  private def hashOf(some: Seq[Expression]): Expression = if (some.isEmpty) Literal(0) else new CollationAwareMurmur3Hash(some)
}
