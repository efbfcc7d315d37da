package org.apache.spark.sql.execution.streaming.state.binshift.keys

import org.apache.spark.sql.catalyst.expressions.{CollationAwareMurmur3Hash, Expression, Literal, UnsafeProjection, UnsafeRow}

/**
 * Hashes by which the key of a row is told from others: one of all its columns, and one of all but each of them.
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

  /** Without column i, for each i. The same row is handed out again. */
  def withoutEach(row: UnsafeRow): UnsafeRow = without(row)

  private def hashOf(some: Seq[Expression]): Expression = if (some.isEmpty) Literal(0) else new CollationAwareMurmur3Hash(some)
}
