package org.apache.spark.sql.execution.streaming.state.binshift.routing

import java.util.function.ToIntFunction

import org.apache.spark.rdd.RDD
import org.apache.spark.sql.catalyst.expressions.{Attribute, BindReferences, Expression, UnsafeProjection, UnsafeRow}
import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.execution.streaming.state.binshift.keys.KeyBins
import org.apache.spark.sql.catalyst.plans.physical.Partitioning
import org.apache.spark.sql.execution.{SparkPlan, UnaryExecNode}
import org.apache.spark.unsafe.Platform

/**
 * Gives the rows of each task in the order of their bins, a run of rows at a time. Rows of one bin keep
 * their order.
 *
 * In a binned store, the keys of one bin are neighbours. So rows in this order find the blocks of their state in the processor's
 * caches, while rows in the arbitrary order of a shuffle read all over the store. The order only matters for speed. That's why this
 * isn't one of Spark's sorts, which takes a page of up to 64 MB for each task, and holds all rows before it returns the first.
 *
 * Relies on Spark: an exchange returns `UnsafeRow`s and reuses them, so rows that are kept have to be copied.
 *
 * @param keys       the expressions that the exchange below hashes
 * @param arriving   bins whose rows come after those of all others, so that bins on demand can travel while the other rows are
 *                   processed
 * @param notesKeys  whether to note the keys of these rows ([[TouchedKeys]]), because the operators above look up state by them
 * @param forgetting ids of those operators whose scans only remove rows
 */
private[sql] final case class OrderByBinExec(
    keys: Seq[Expression], bins: Int, arriving: Set[Int], notesKeys: Boolean, forgetting: Set[Long], child: SparkPlan)
  extends UnaryExecNode {

  override def output: Seq[Attribute] = child.output
  override def outputPartitioning: Partitioning = child.outputPartitioning

  override protected def doExecute(): RDD[InternalRow] = {
    val bound = BindReferences.bindReferences(keys, child.output)
    // Local copies, so that the closure doesn't carry this plan and everything below it to the tasks.
    val (count, late, fields, notes, ids) = (bins, arriving, child.output.size, notesKeys, forgetting)
    child.execute().mapPartitionsInternal { rows =>
      val binOf = new KeyBins(bound, count)
      val places = Array.tabulate(count)(bin => if (late(bin)) count + bin else bin)
      def placeOf(row: UnsafeRow): Int = places(binOf(row))
      val placed: ToIntFunction[UnsafeRow] =
        if (!notes) placeOf(_)
        else {
          val (touched, keyOf) = (TouchedKeys.begin(ids, late), UnsafeProjection.create(bound))
          row => {
            val place = placeOf(row)
            if (place >= count) touched.add(place - count, keyOf(row))
            place
          }
        }
      new OrderedRuns(rows.asInstanceOf[Iterator[UnsafeRow]], fields, placed, OrderedRuns.RunBytes)
    }
  }

  override protected def withNewChildInternal(newChild: SparkPlan): SparkPlan = copy(child = newChild)
}

/**
 * Returns rows in the order of `placeOf`, within runs of up to `runBytes`, or of one larger row.
 *
 * The returned row is reused, and valid until the next one is requested, as with a shuffle's rows.
 *
 * @param placeOf called once per row, before the first row of its run is returned; not a Scala function, which would box each place
 */
private[binshift] final class OrderedRuns(
    rows: Iterator[UnsafeRow], fields: Int, placeOf: ToIntFunction[UnsafeRow], runBytes: Int)
  extends Iterator[InternalRow] {

  /** The rows of a run, one after the other. */
  private var bytes = new Array[Byte](math.min(runBytes, 64 << 10))
  /** The offset of each row; the entry after the last one is the end. */
  private var begins = new Array[Int](256)
  /** Place and number of each row, combined into one comparable value. */
  private var order = new Array[Long](255)
  private var count = 0
  private var done = 0
  /** The first row of the next run. */
  private var left: Option[UnsafeRow] = None
  private val row = new UnsafeRow(fields)

  override def hasNext: Boolean = done < count || left.nonEmpty || rows.hasNext

  override def next(): InternalRow = {
    if (done == count) read()
    if (count == 0) throw new NoSuchElementException("there are no more rows")
    val number = order(done).toInt
    done += 1
    row.pointTo(bytes, Platform.BYTE_ARRAY_OFFSET + begins(number), begins(number + 1) - begins(number))
    row
  }

  private def read(): Unit = {
    count = 0
    done = 0
    left.foreach(add)
    left = None
    while (left.isEmpty && rows.hasNext) {
      val next = rows.next()
      // Spark reuses this row for the next one, but nobody requests that before this one has been added.
      if (count > 0 && begins(count) + next.getSizeInBytes > runBytes) left = Some(next) else add(next)
    }
    java.util.Arrays.sort(order, 0, count)
  }

  private def add(next: UnsafeRow): Unit = {
    val begin = begins(count)
    val end = begin + next.getSizeInBytes
    if (end > bytes.length) bytes = java.util.Arrays.copyOf(bytes, math.max(end, math.min(runBytes, 2 * bytes.length)))
    if (count == order.length) {
      order = java.util.Arrays.copyOf(order, 2 * count)
      begins = java.util.Arrays.copyOf(begins, 2 * count + 1)
    }
    next.writeToMemory(bytes, Platform.BYTE_ARRAY_OFFSET + begin)
    order(count) = placeOf.applyAsInt(next).toLong << 32 | count
    count += 1
    begins(count) = end
  }
}

private[binshift] object OrderedRuns {
  /** Room for some ten thousand rows, which usually is a good part of what a store gets in an epoch. */
  val RunBytes: Int = 8 << 20
}
