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
 * Neighbours in a binned store are keys of one bin, so rows in this order find the blocks of their state
 * in the processor's caches, where the arbitrary order of a shuffle reads all over the store. Order is
 * good for speed and for nothing else, hence no sort of Spark's, which takes a page of up to 64 MB for
 * each task, and holds all rows before it gives the first.
 *
 * Relies on Spark: an exchange gives `UnsafeRow`s and reuses them, so that whoever keeps one copies it.
 *
 * @param keys       what the exchange below hashes
 * @param arriving   bins whose rows come after those of all others, so that bins that come on demand travel
 *                   while the others' rows are processed
 * @param notesKeys  whether the keys of these rows are noted ([[TouchedKeys]]), since the operators above look up by them
 * @param forgetting ids of those operators whose scans only forget
 */
private[sql] final case class OrderByBinExec(
    keys: Seq[Expression], bins: Int, arriving: Set[Int], notesKeys: Boolean, forgetting: Set[Long], child: SparkPlan)
  extends UnaryExecNode {

  override def output: Seq[Attribute] = child.output
  override def outputPartitioning: Partitioning = child.outputPartitioning

  override protected def doExecute(): RDD[InternalRow] = {
    val bound = BindReferences.bindReferences(keys, child.output)
    // Not this plan with all that is below it: a task gets what it needs.
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
 * Rows in the order of `placeOf`, within runs that hold as many rows as `runBytes` take, or one.
 *
 * The same row is handed out again, and is good until the next one is asked for, as with a shuffle's rows.
 *
 * @param placeOf called once per row, before the first row of its run is handed out; not a function of Scala's, which would make
 *                an object of each place
 */
private[binshift] final class OrderedRuns(
    rows: Iterator[UnsafeRow], fields: Int, placeOf: ToIntFunction[UnsafeRow], runBytes: Int)
  extends Iterator[InternalRow] {

  /** The rows of a run, one after the other. */
  private var bytes = new Array[Byte](math.min(runBytes, 64 << 10))
  /** Where each begins; the entry after the last is the end. */
  private var begins = new Array[Int](256)
  /** Place and number of each row, in one comparable value. */
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
      // Spark gives it again for the row after, which nobody asks for before this one was added.
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
  /** Some ten thousand rows, which is a good part of the rows of an epoch for each bin of a store. */
  val RunBytes: Int = 8 << 20
}
