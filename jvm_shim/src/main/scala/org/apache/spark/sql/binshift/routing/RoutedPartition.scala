package org.apache.spark.sql.binshift.routing

import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.catalyst.expressions.{Expression, GetArrayItem, Literal}
import org.apache.spark.sql.catalyst.expressions.codegen.{CodegenContext, ExprCode}
import org.apache.spark.sql.execution.streaming.state.binshift.keys.KeyBins
import org.apache.spark.sql.types.{DataType, IntegerType}

/**
 * The partition that owns the bin of a row's key.
 *
 * To whoever analyses, compares or prints a plan, this is a function of the keys and of nothing else, like Spark's own
 * `HashPartitioning`. The hash and the table only come up when it is evaluated. Spark analyses the partitioning of a finished plan
 * again, for example when it hands a batch to `foreachBatch`, and its analyser refuses a hash of maps, which its own
 * partitioning computes as well without showing it.
 *
 * @param owners the owner of each bin, as an array; no child, so that nothing looks into it or copies it
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

  /** What is evaluated. */
  private[binshift] lazy val owner: Expression = GetArrayItem(owners, KeyBins.expression(keys, bins), failOnError = false)

  override protected def withNewChildrenInternal(newChildren: IndexedSeq[Expression]): Expression = copy(keys = newChildren)
}
