package org.apache.spark.sql.binshift.routing

import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.catalyst.expressions.{Expression, GetArrayItem, Literal}
import org.apache.spark.sql.catalyst.expressions.codegen.{CodegenContext, ExprCode}
import org.apache.spark.sql.execution.streaming.state.binshift.keys.KeyBins
import org.apache.spark.sql.types.{DataType, IntegerType}

/**
 * Evaluates to the partition that owns the bin of a row's key.
 *
 * In a plan that is analysed, compared or printed, this looks like a function of the keys only, like Spark's own `HashPartitioning`.
 * The hash and the table appear only when it is evaluated. The reason is that Spark analyses the partitioning of a finished plan
 * again, for example when it hands a batch to `foreachBatch`, and its analyser refuses a hash of maps. Spark's own partitioning
 * computes such a hash as well, but doesn't show it.
 *
 * @param owners the owner of each bin, as an array. It isn't a child, so that nothing looks into it or copies it.
 */
private[binshift] final case class RoutedPartition(keys: Seq[Expression], bins: Int, owners: Literal) extends Expression {

  override def children: Seq[Expression] = keys
  override def dataType: DataType = IntegerType
  override def nullable: Boolean = false
  override def prettyName: String = "routed_partition"

  override protected def stringArgs: Iterator[Any] = keys.iterator
  override def toString: String = keys.mkString(s"$prettyName(", ", ", ")")

  override def eval(input: InternalRow): Any = owner.eval(input)

  override protected def doGenCode(ctx: CodegenContext, ev: ExprCode): ExprCode = {
    val code = owner.genCode(ctx)
    ev.copy(code = code.code, isNull = code.isNull, value = code.value)
  }

  /** The expression that is evaluated. */
  private[binshift] lazy val owner: Expression = GetArrayItem(owners, KeyBins.expression(keys, bins), failOnError = false)

  override protected def withNewChildrenInternal(newChildren: IndexedSeq[Expression]): Expression = copy(keys = newChildren)
}
